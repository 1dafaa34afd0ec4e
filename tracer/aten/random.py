"""Random ops of aten, drawn in the order in which eager draws.

torch fills memory in order. A permuted tensor (the mask of a dropout behind a transpose, say) is
drawn in its memory's order and permuted, so that one seed gives the numbers that eager gives.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch

from gradof.errors import ConfigError, InferenceError
from gradof.ir.attrs import Attr
from gradof.ir.types import BF16, F16, F64
from gradof.ops.expr import Expr, F, Number
from gradof.ops.opaque import by_torch
from gradof.tracer.aten.registry import Call, aten


def _drawn(c: Call, kind: str, memory: torch.Tensor, **attrs: Attr) -> Expr:
    """A random tensor of the first result's type, drawn in the memory order of `memory`."""
    type_ = c.type()
    assert type_.shape is not None
    draw = F.__getattr__(kind).with_emitter(c.emitter)
    typed: dict[str, Attr] = {"dtype": type_.dtype, "device": type_.device}
    if memory.is_contiguous():
        return draw(**attrs, shape=type_.shape, **typed)
    order = sorted(range(memory.dim()), key=lambda d: -memory.stride()[d])
    if not memory.permute(order).is_contiguous():
        raise InferenceError(f"{kind} numbers in a tensor of strides {tuple(memory.stride())}")
    if kind == "normal":  # by another algorithm than where dims are in order
        normal = F.normal_in_order.with_emitter(c.emitter)
        flat = normal(**attrs, order=tuple(order), shape=type_.shape, **typed)
    else:
        flat = draw(**attrs, shape=tuple(type_.shape[d] for d in order), **typed)
    return flat.permute(tuple(order.index(d) for d in range(len(order))))


def _float(value: Number) -> float:
    assert not isinstance(value, complex)
    return float(value)


@aten("bernoulli.p")
def bernoulli(c: Call, x: Expr, p: float, *, generator: Any = None) -> Expr:
    return _drawn(c, "bernoulli", c.args[0], p=_float(p))


@aten("native_dropout.default")  # what dropout is on CUDA devices
def native_dropout(c: Call, x: Expr, p: float, train: bool | None) -> tuple[Expr, Expr]:
    if train is False or p == 0:
        return F.copy(x), c.full(1, c.type(1))
    if p == 1:
        return F.mul(x, 0.0), c.full(0, c.type(1))
    kept = _kept(c, x, _float(p))
    return x * kept.cast(x.dtype) * (1.0 / (1.0 - p)), kept


def _kept(c: Call, x: Expr, p: float) -> Expr:
    """The mask: drawn by torch, or by kernels where GRADOF_DROPOUT asks for that."""
    device, width = x.type.device, 8 if x.dtype in (F16, BF16) else 4
    cells = x.type.size
    if not in_kernels() or x.dtype == F64 or cells % 4 or not device.startswith("cuda"):
        draw = F.dropout_mask.with_emitter(c.emitter)
        return draw(p=p, shape=x.shape, dtype=x.dtype, device=device)
    width = 4 if cells % width else width
    state = F.philox_state.with_emitter(c.emitter)
    seed, place = state.multiple(cells=cells, width=width, dtype=x.dtype, device=device)
    at = F.position.with_emitter(c.emitter)(shape=x.shape, device=device)
    return F.philox_kept(at, seed, place, p=p, width=width, cells=cells)


def in_kernels() -> bool:
    """GRADOF_DROPOUT, `torch` by default; ConfigError where it is neither that nor `kernel`."""
    value = os.environ.get("GRADOF_DROPOUT", "torch")
    if value not in ("torch", "kernel"):
        raise ConfigError(
            f"GRADOF_DROPOUT is {value!r}", hint="torch draws masks itself, kernel draws them"
        )
    return value == "kernel"


@aten("bernoulli.default")
def bernoulli_like(c: Call, p: Expr, *, generator: Any = None) -> Expr:
    return F.bernoulli_like(p)


@aten("poisson.default")
def poisson(c: Call, rate: Expr, generator: Any = None) -> Expr:
    return F.poisson(rate)


@aten("binomial.default")
def binomial(c: Call, count: Expr, p: Expr, generator: Any = None) -> Expr:
    return F.binomial(count, p)


@aten("_standard_gamma.default")
def standard_gamma(c: Call, alpha: Expr, generator: Any = None) -> Expr:
    return F.standard_gamma(alpha)


@aten("_sample_dirichlet.default")
def dirichlet(c: Call, alpha: Expr, generator: Any = None) -> Expr:
    return F.dirichlet(alpha)


@aten("_dirichlet_grad.default")  # as torch.distributions calls it
def dirichlet_grad(c: Call, x: Expr, alpha: Expr, total: Expr) -> Expr:
    return by_torch("aten::_dirichlet_grad", x, alpha, total)


@aten("rand.default", "rand_like.default", "rand.generator")
def rand(c: Call, *_: Any, **__: Any) -> Expr:
    return _drawn(c, "uniform", c.results[0], low=0.0, high=1.0)


@aten("randn.default", "randn_like.default", "randn.generator")
def randn(c: Call, *_: Any, **__: Any) -> Expr:
    return _drawn(c, "normal", c.results[0], mean=0.0, std=1.0)


@aten("uniform.default")
def uniform(c: Call, x: Expr, low: float = 0.0, high: float = 1.0, **_: Any) -> Expr:
    return _drawn(c, "uniform", c.args[0], low=_float(low), high=_float(high))


@aten("normal_functional.default", "normal.default")
def normal(c: Call, x: Expr, mean: float = 0.0, std: float = 1.0, **_: Any) -> Expr:
    return _drawn(c, "normal", c.args[0], mean=_float(mean), std=_float(std))


@aten("normal.float_float")
def normal_of_size(c: Call, mean: float, std: float, size: Sequence[int], **_: Any) -> Expr:
    return _drawn(c, "normal", c.results[0], mean=_float(mean), std=_float(std))


@aten("normal.Tensor_float", "normal.float_Tensor", "normal.Tensor_Tensor")
def normal_of_tensors(c: Call, mean: Expr | float, std: Expr | float = 1.0, **_: Any) -> Expr:
    # As in eager no gradient flows into either; the reparametrised sample is mean + std * randn.
    if isinstance(std, Expr):
        unit = _drawn(c, "normal", c.results[0], mean=0.0, std=1.0)
        noise = unit * F.detach(std)
    else:
        noise = _drawn(c, "normal", c.results[0], mean=0.0, std=_float(std))
    return noise + (F.detach(mean) if isinstance(mean, Expr) else _float(mean))


@aten("exponential.default")
def exponential(c: Call, x: Expr, lambd: float = 1.0, **_: Any) -> Expr:
    return _drawn(c, "exponential", c.args[0], rate=_float(lambd))


@aten("randint.default", "randint.low", "randint.generator", "randint.low_generator",
      "randint_like.default", "randint_like.low_dtype")
def randint(c: Call, *args: Any, **_: Any) -> Expr:
    bounds = [a for a in args if isinstance(a, int)]
    low, high = bounds if len(bounds) == 2 else (0, bounds[0])
    return _drawn(c, "randint", c.results[0], low=low, high=high)


@aten("randperm.default", "randperm.generator")
def randperm(c: Call, n: int, **_: Any) -> Expr:
    type_ = c.type()
    return F.randperm.with_emitter(c.emitter)(n=n, dtype=type_.dtype, device=type_.device)


@aten("multinomial.default")
def multinomial(
    c: Call, p: Expr, num_samples: int, replacement: bool = False, *, generator: Any = None
) -> Expr:
    return F.multinomial(p, num_samples=num_samples, replacement=replacement)
