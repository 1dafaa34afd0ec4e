"""Further workloads: cells, blocks, stencils, optimisers, scalars."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F


def dropout_residual(x: Any, b: Any, r: Any, w: Any, c: Any, y: Any) -> Any:
    """Bias, dropout, residual and layer norm."""
    h = F.dropout(x + b, 0.1) + r
    return (F.layer_norm(h, (x.shape[-1],), w, c) * y).sum()


def lstm_cell(x: Any, h: Any, c: Any, w: Any, u: Any, b: Any) -> Any:
    """One step of an LSTM, and its gradient."""
    i, f, g, o = (x @ w + h @ u + b).chunk(4, dim=1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return (torch.sigmoid(o) * torch.tanh(c)).square().mean()


def lstm_cell_array(np: Any, x: Any, h: Any, c: Any, w: Any, u: Any, b: Any) -> Any:
    """The same."""

    def sigmoid(z: Any) -> Any:
        return 1.0 / (1.0 + np.exp(-z))

    z = x @ w + h @ u + b
    n = c.shape[1]
    c = sigmoid(z[:, n : 2 * n]) * c + sigmoid(z[:, :n]) * np.tanh(z[:, 2 * n : 3 * n])
    return np.mean((sigmoid(z[:, 3 * n :]) * np.tanh(c)) ** 2)


def attention(x: Any, wq: Any, wk: Any, wv: Any, wo: Any) -> Any:
    """One head over a batch of sequences, written out."""
    q, k, v = x @ wq, x @ wk, x @ wv
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return (x + torch.softmax(scores, -1) @ v @ wo).square().mean()


def attention_array(np: Any, x: Any, wq: Any, wk: Any, wv: Any, wo: Any) -> Any:
    """The same."""
    q, k, v = x @ wq, x @ wk, x @ wv
    scores = q @ np.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1])
    e = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    return np.mean((x + e / np.sum(e, axis=-1, keepdims=True) @ v @ wo) ** 2)


def heat(np: Any, u: Any, k: Any, y: Any) -> Any:
    """Four steps of the heat equation on a square, against a measured state."""
    for _ in range(4):
        inner = u[1:-1, 1:-1]
        step = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4.0 * inner
        u = np.pad(inner + k[1:-1, 1:-1] * step, 1)
    return np.mean((u - y) ** 2)


def scalar(np: Any, x: Any) -> Any:
    """A function of one number."""
    return np.sin(x) * np.exp(-x * x) + np.sqrt(1.0 + x * x)


def adam(np: Any, p: Any, g: Any, m: Any, v: Any) -> Any:
    """An update of a million parameters; its gradient is what meta-learning differentiates."""
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    return np.sum(p - 0.001 * (m / 0.1) / (np.sqrt(v / 0.001) + 1e-8))


def long_chain(n: int) -> Any:
    """A chain of n ops, for the time to compile."""

    def fn(np: Any, x: Any) -> Any:
        for i in range(n // 2):
            x = np.sin(x) * (1.0 + 1e-4 * i)
        return np.sum(x)

    return fn


def cell_inputs(rng: np.random.Generator) -> list[Any]:
    """A batch of 256, 256 units."""
    shapes = ((256, 256), (256, 256), (256, 256), (256, 1024), (256, 1024), (1024,))
    return [(rng.standard_normal(s) / 16).astype(np.float32) for s in shapes]


def linear_layers(x: Any, w1: Any, b1: Any, w2: Any, b2: Any, y: Any) -> Any:
    """The two linear layers of a transformer's block, with weights as torch.nn.Linear has them."""
    return (F.linear(F.gelu(F.linear(x, w1, b1), approximate="tanh"), w2, b2) * y).sum()


def linear_layers_array(np: Any, x: Any, w1: Any, b1: Any, w2: Any, b2: Any, y: Any) -> Any:
    """The same."""
    h = x @ w1.T + b1
    t = np.tanh(0.7978845608028654 * (h + 0.044715 * h * h * h))
    return np.sum(((0.5 * h * (1.0 + t)) @ w2.T + b2) * y)


def linear_layers_inputs(rng: np.random.Generator) -> list[Any]:
    """256 tokens of 256 features, 1024 within."""
    shapes = ((256, 256), (1024, 256), (1024,), (256, 1024), (256,), (256, 256))
    return [(rng.standard_normal(s) / 16).astype(np.float32) for s in shapes]


def attention_inputs(rng: np.random.Generator) -> list[Any]:
    """Eight sequences of 128 places, 64 features."""
    shapes = ((8, 128, 64), *[(64, 64)] * 4)
    return [(rng.standard_normal(s) / 8).astype(np.float32) for s in shapes]


def heat_inputs(rng: np.random.Generator) -> list[Any]:
    """A square of 512."""
    u, y = rng.random((512, 512)), rng.random((512, 512))
    return [u, 0.1 + 0.1 * rng.random((512, 512)), y]


def adam_inputs(rng: np.random.Generator) -> list[Any]:
    """A million parameters with their moments."""
    p, g, m = (rng.standard_normal(1_000_000).astype(np.float32) for _ in range(3))
    return [p, g, m, rng.random(1_000_000).astype(np.float32)]
