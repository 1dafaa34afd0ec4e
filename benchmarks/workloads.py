"""What is measured on a CPU: each workload for torch, for numpy and for JAX, on the same arrays.

A workload is a function of arrays whose value is one number, and the positions of the arguments to
differentiate. The JAX version gets `jax.numpy`; HIPS autograd gets `autograd.numpy`, both as `np`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from more_workloads import (
    adam,
    adam_inputs,
    attention,
    attention_array,
    attention_inputs,
    cell_inputs,
    dropout_residual,
    heat,
    heat_inputs,
    linear_layers,
    linear_layers_array,
    linear_layers_inputs,
    lstm_cell,
    lstm_cell_array,
    scalar,
)
from torch.nn import functional as F

# "fused": pointwise and reductions; "random": with random draws; "matmul": the library's products;
# "small": overhead
Kind = str


@dataclass(frozen=True)
class Workload:
    """One workload; `torch` or `array` may be missing."""

    name: str
    kind: Kind
    make: Callable[[np.random.Generator], list[Any]]
    argnums: tuple[int, ...]
    torch: Callable[..., Any] | None = None
    array: Callable[..., Any] | None = None  # array(np, *args) for numpy, JAX and HIPS autograd


def _normal(*shapes: tuple[int, ...], dtype: Any = np.float32) -> Callable[..., list[Any]]:
    return lambda rng: [rng.standard_normal(s).astype(dtype) for s in shapes]


def gelu(x: Any, b: Any, y: Any) -> Any:
    """Pointwise, with a bias."""
    return ((F.gelu(x + b, approximate="tanh") - y) ** 2).mean()


def gelu_array(np: Any, x: Any, b: Any, y: Any) -> Any:
    """The same."""
    z = x + b
    t = np.tanh(0.7978845608028654 * (z + 0.044715 * z * z * z))
    return np.mean((0.5 * z * (1.0 + t) - y) ** 2)


def rmsnorm(x: Any, w: Any, y: Any) -> Any:
    """A row reduction, and what reads it."""
    return (x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w * y).sum()


def rmsnorm_array(np: Any, x: Any, w: Any, y: Any) -> Any:
    """The same."""
    return np.sum(x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-6) * w * y)


def layernorm(x: Any, w: Any, b: Any, y: Any) -> Any:
    """Two row reductions."""
    return (F.layer_norm(x, (x.shape[-1],), w, b) * y).sum()


def layernorm_array(np: Any, x: Any, w: Any, b: Any, y: Any) -> Any:
    """The same."""
    d = x - np.mean(x, axis=-1, keepdims=True)
    return np.sum((d / np.sqrt(np.mean(d * d, axis=-1, keepdims=True) + 1e-5) * w + b) * y)


def cross_entropy(x: Any, t: Any) -> Any:
    """A softmax over rows, and one of its elements each."""
    return F.cross_entropy(x, t)


def cross_entropy_array(np: Any, x: Any, t: Any) -> Any:
    """The same."""
    m = np.max(x, axis=1, keepdims=True)
    logs = x - m - np.log(np.sum(np.exp(x - m), axis=1, keepdims=True))
    return -np.mean(logs[np.arange(x.shape[0]), t])


def swiglu(a: Any, b: Any, y: Any) -> Any:
    """Two streams."""
    return (F.silu(a) * b * y).sum()


def swiglu_array(np: Any, a: Any, b: Any, y: Any) -> Any:
    """The same."""
    return np.sum(a / (1.0 + np.exp(-a)) * b * y)


def residual(x: Any, b: Any, r: Any, w: Any, c: Any, y: Any) -> Any:
    """Bias, residual and layer norm."""
    return (F.layer_norm(x + b + r, (x.shape[-1],), w, c) * y).sum()


def residual_array(np: Any, x: Any, b: Any, r: Any, w: Any, c: Any, y: Any) -> Any:
    """The same."""
    return layernorm_array(np, x + b + r, w, c, y)


def prices(s: Any, k: Any, t: Any, v: Any) -> Any:
    """The price of each option by Black and Scholes."""
    root = v * torch.sqrt(t)
    d1 = (torch.log(s / k) + (0.02 + v * v / 2) * t) / root
    d2 = d1 - root
    normal = 0.7071067811865476
    cdf1 = 0.5 * torch.erfc(-d1 * normal)
    cdf2 = 0.5 * torch.erfc(-d2 * normal)
    return s * cdf1 - k * torch.exp(-0.02 * t) * cdf2


def black_scholes(s: Any, k: Any, t: Any, v: Any) -> Any:
    """A million options; the gradients are their greeks."""
    return prices(s, k, t, v).sum()


def _options(rng: np.random.Generator) -> list[Any]:
    n = 1_000_000
    return [rng.uniform(*r, n) for r in ((80, 120), (80, 120), (0.1, 2), (0.1, 0.5))]


def mixture(np: Any, x: Any, mu: Any, logs: Any) -> Any:
    """Log-likelihood of a mixture of Gaussians in one dimension."""
    z = (x[:, None] - mu[None, :]) / np.exp(logs)[None, :]
    terms = -0.5 * z * z - logs[None, :]
    m = np.max(terms, axis=1, keepdims=True)
    return np.mean(m[:, 0] + np.log(np.sum(np.exp(terms - m), axis=1)))


def mlp(x: Any, w1: Any, w2: Any, t: Any) -> Any:
    """Two products and a softmax."""
    return F.cross_entropy(torch.relu(x @ w1) @ w2, t)


def mlp_array(np: Any, x: Any, w1: Any, w2: Any, t: Any) -> Any:
    """The same."""
    return cross_entropy_array(np, np.maximum(x @ w1, 0.0) @ w2, t)


def mlp_inputs(rng: np.random.Generator) -> list[Any]:
    """A batch of 128; no unit is within rounding of relu's kink.

    There the order of a sum decides on which side a unit is, and each library is right with
    another gradient.
    """
    x, w1, w2 = (
        (rng.standard_normal(shape) / scale).astype(np.float32)
        for shape, scale in (((128, 784), 1), ((784, 512), 28), ((512, 10), 23))
    )
    while np.abs(x.astype(np.float64) @ w1).min() < 1e-5:
        x = rng.standard_normal((128, 784)).astype(np.float32)
    return [x, w1, w2, rng.integers(0, 10, 128)]


def chain(x: Any, w: Any) -> Any:
    """Small arrays: what is measured is overhead."""
    return (torch.tanh(x @ w) * 2.0 + 1.0).square().sum()


def chain_array(np: Any, x: Any, w: Any) -> Any:
    """The same."""
    return np.sum(np.square(np.tanh(x @ w) * 2.0 + 1.0))


def rosenbrock(np: Any, p: Any) -> Any:
    """A thousand dimensions, which numpy computes in microseconds."""
    return np.sum(100 * (p[1:] - p[:-1] ** 2) ** 2 + (1 - p[:-1]) ** 2)


def logistic(np: Any, w: Any, x: Any, y: Any) -> Any:
    """Logistic regression."""
    return np.mean(np.logaddexp(0.0, -y * (x @ w)))


ROWS, COLUMNS = 4096, 1024
_BIG = (ROWS, COLUMNS)
WORKLOADS = [
    Workload("gelu-bias-mse 4096x1024", "fused", _normal(_BIG, (COLUMNS,), _BIG), (0, 1), gelu,
             gelu_array),
    Workload("rmsnorm 4096x1024", "fused", _normal(_BIG, (COLUMNS,), _BIG), (0, 1), rmsnorm,
             rmsnorm_array),
    Workload("layernorm 4096x1024", "fused", _normal(_BIG, (COLUMNS,), (COLUMNS,), _BIG),
             (0, 1, 2), layernorm, layernorm_array),
    Workload("cross-entropy 1024x4096", "fused",
             lambda rng: [rng.standard_normal((1024, 4096)).astype(np.float32),
                          rng.integers(0, 4096, 1024)], (0,), cross_entropy, cross_entropy_array),
    Workload("swiglu 4096x1024", "fused", _normal(_BIG, _BIG, _BIG), (0, 1), swiglu, swiglu_array),
    Workload("bias-residual-layernorm", "fused",
             _normal(_BIG, (COLUMNS,), _BIG, (COLUMNS,), (COLUMNS,), _BIG), (0, 1, 2, 3, 4),
             residual, residual_array),
    Workload("bias-dropout-residual-layernorm", "random",
             _normal(_BIG, (COLUMNS,), _BIG, (COLUMNS,), (COLUMNS,), _BIG), (0, 1, 2, 3, 4),
             dropout_residual),
    Workload("Adam update 1M", "fused", adam_inputs, (0, 1, 2, 3), None, adam),
    Workload("heat 512x512 f64, 4 steps", "fused", heat_inputs, (0, 1), None, heat),
    Workload("Black-Scholes 1M f64", "fused", _options, (0, 1, 2, 3), black_scholes),
    Workload("mixture 65536x16 f64", "fused", _normal((65536,), (16,), (16,), dtype=np.float64),
             (1, 2), None, mixture),
    Workload("mlp 128x784-512-10", "matmul",
             mlp_inputs, (1, 2), mlp, mlp_array),
    Workload("LSTM cell 256", "matmul", cell_inputs, (2, 3, 4, 5), lstm_cell, lstm_cell_array),
    Workload("attention 8x128x64", "matmul", attention_inputs, (0, 1, 2, 3, 4), attention,
             attention_array),
    Workload("linear layers 256x256-1024-256", "matmul", linear_layers_inputs, (0, 1, 2, 3, 4),
             linear_layers, linear_layers_array),
    Workload("scalar", "small", lambda rng: [np.array(0.7)], (0,), None, scalar),
    Workload("chain 16x16", "small", _normal((16, 16), (16, 16)), (0, 1), chain, chain_array),
    Workload("Rosenbrock 1000", "small", _normal((1000,), dtype=np.float64), (0,), None,
             rosenbrock),
    Workload("logistic 569x30", "small",
             lambda rng: [rng.standard_normal(30), rng.standard_normal((569, 30)),
                          np.sign(rng.standard_normal(569))], (0,), None, logistic),
]  # fmt: skip
