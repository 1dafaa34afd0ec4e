"""Normalisation and pooling of aten."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradof.ir.types import BF16, F16, F32
from gradof.ops.expr import Expr, F
from gradof.tracer.aten.registry import Call, aten

Ints = Sequence[int]


Adaptor = Callable[..., tuple[Expr, ...]]


def in_float32(adaptor: Adaptor) -> Adaptor:
    """Operands of half precision are normalised in float32; results have eager's dtypes."""

    @functools.wraps(adaptor)
    def run(c: Call, *args: Any, **kwargs: Any) -> tuple[Expr, ...]:
        if not any(isinstance(a, Expr) and a.dtype in (F16, BF16) for a in args):
            return adaptor(c, *args, **kwargs)
        wide = [a.cast(F32) if isinstance(a, Expr) else a for a in args]
        results = adaptor(c, *wide, **kwargs)
        return tuple(r.cast(c.type(i).dtype) for i, r in enumerate(results))

    return run


def _affine(y: Expr, weight: Expr | None, bias: Expr | None, shape: tuple[int, ...]) -> Expr:
    if weight is not None:
        y = y * weight.cast(y.dtype).reshape(shape)
    return y if bias is None else y + bias.cast(y.dtype).reshape(shape)


@aten("native_layer_norm.default")
@in_float32
def layer_norm(
    c: Call, x: Expr, shape: Ints, weight: Expr | None, bias: Expr | None, eps: float
) -> tuple[Expr, Expr, Expr]:
    dims = tuple(range(x.rank - len(shape), x.rank))
    y, mean, rstd = F.layer_norm.multiple(x, dims=dims, eps=eps)
    return _affine(y, weight, bias, tuple(shape)), mean, rstd


@aten("_fused_rms_norm.default")  # what rms_norm is on CUDA devices
def fused_rms_norm(
    c: Call, x: Expr, shape: Ints, weight: Expr | None, eps: float | None
) -> tuple[Expr, Expr]:
    wide = x.cast(F32) if x.dtype in (F16, BF16) else x
    if eps is None:
        eps = float(np.finfo(np.float32 if wide.dtype == F32 else np.float64).eps)
    dims = tuple(range(x.rank - len(shape), x.rank))
    y, rstd = F.rms_norm.multiple(wide, dims=dims, eps=eps)
    return _affine(y, weight, None, tuple(shape)).cast(x.dtype), rstd.cast(c.type(1).dtype)


@aten("native_group_norm.default")
@in_float32
def group_norm(
    c: Call, x: Expr, weight: Expr | None, bias: Expr | None, n: int, channels: int, space: int,
    groups: int, eps: float,
) -> tuple[Expr, Expr, Expr]:  # fmt: skip
    y, mean, rstd = F.group_norm.multiple(x, groups=groups, eps=eps)
    return _affine(y, weight, bias, _per_channel(x)), mean, rstd


def _per_channel(x: Expr) -> tuple[int, ...]:
    """The shape of one number per channel against x."""
    return (1, x.shape[1], *(1,) * (x.rank - 2))


def _given_statistics(c: Call, mean: Expr, var: Expr, eps: float) -> tuple[Expr, ...]:
    """The second and third result with statistics that were given: on CPUs torch saves none."""
    if not c.type(1).size:
        return tuple(c.full(0, c.type(i)) for i in (1, 2))
    return F.detach(mean), F.rsqrt(F.detach(var) + float(eps))


@aten("_native_batch_norm_legit_functional.default")
@in_float32
def batch_norm(
    c: Call, x: Expr, weight: Expr | None, bias: Expr | None, mean: Expr, var: Expr,
    training: bool, momentum: float, eps: float,
) -> tuple[Expr, ...]:  # fmt: skip
    if not training:
        y = F.batch_norm_inference(x, mean, var, eps=eps)
        saved = _given_statistics(c, mean, var, eps)
        return _affine(y, weight, bias, _per_channel(x)), *saved, mean, var
    y, m, rstd, v = F.batch_norm.multiple(x, eps=eps)
    n = x.type.size // x.shape[1]
    # The running variance is unbiased; no gradient flows into either.
    unbiased = F.detach(v) * (n / (n - 1.0) if n > 1 else float("nan"))
    new_mean = F.detach(m) * momentum + mean * (1.0 - momentum)
    new_var = unbiased * momentum + var * (1.0 - momentum)
    return _affine(y, weight, bias, _per_channel(x)), m, rstd, new_mean, new_var


@aten("native_batch_norm.default", "_native_batch_norm_legit.no_stats",
      "_native_batch_norm_legit_no_training.default")  # fmt: skip
@in_float32
def batch_norm_plain(
    c: Call, x: Expr, weight: Expr | None, bias: Expr | None, *rest: Any
) -> tuple[Expr, ...]:
    name, eps = c.func.name(), rest[-1]
    if name.endswith("no_training") or (name.endswith("native_batch_norm") and not rest[2]):
        y = F.batch_norm_inference(x, rest[0], rest[1], eps=eps)
        saved = _given_statistics(c, rest[0], rest[1], eps)
    else:
        y, mean, rstd, _ = F.batch_norm.multiple(x, eps=eps)
        saved = (mean, rstd)
    return _affine(y, weight, bias, _per_channel(x)), *saved


def _per_dim(values: int | Ints, rank: int) -> tuple[int, ...]:
    """torch takes one number for all dims."""
    if isinstance(values, int):
        return (values,) * rank
    return tuple(values) * (rank if len(values) == 1 else 1)


@aten("max_pool2d_with_indices.default", "max_pool3d_with_indices.default")
def max_pool(
    c: Call, x: Expr, kernel: Ints, stride: Ints = (), padding: int | Ints = 0,
    dilation: int | Ints = 1, ceil_mode: bool = False,
) -> tuple[Expr, ...]:  # fmt: skip
    rank = 3 if "3d" in c.func.name() else 2
    pool = F.max_pool3d_with_indices if rank == 3 else F.max_pool2d_with_indices
    window = _per_dim(kernel, rank)
    return pool.multiple(
        x, kernel=window, stride=_per_dim(stride, rank) or window,
        padding=_per_dim(padding, rank), dilation=_per_dim(dilation, rank), ceil_mode=ceil_mode,
    )  # fmt: skip


@aten("avg_pool1d.default", "avg_pool2d.default", "avg_pool3d.default")
def avg_pool(
    c: Call, x: Expr, kernel: Ints, stride: Ints = (), padding: int | Ints = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
) -> Expr:  # fmt: skip
    rank = int(c.func.name().removesuffix("_backward")[-2])
    window = _per_dim(kernel, rank)
    return F.avg_pool(
        x, kernel=window, stride=_per_dim(stride, rank) or window,
        padding=_per_dim(padding, rank), ceil_mode=ceil_mode,
        count_include_pad=count_include_pad, divisor_override=divisor_override,
    )  # fmt: skip


@aten("_adaptive_avg_pool2d.default", "_adaptive_avg_pool3d.default",
      "adaptive_avg_pool1d.default")  # fmt: skip
def adaptive_avg_pool(c: Call, x: Expr, size: Ints) -> Expr:
    return F.adaptive_avg_pool(x, size=tuple(size))


@aten("adaptive_max_pool2d.default", "adaptive_max_pool3d.default")
def adaptive_max_pool(c: Call, x: Expr, size: Ints) -> tuple[Expr, ...]:
    pool = F.adaptive_max_pool3d if "3d" in c.func.name() else F.adaptive_max_pool2d
    return pool.multiple(x, size=tuple(size))


@aten("fractional_max_pool2d.default", "fractional_max_pool3d.default")
def fractional_max_pool(
    c: Call, x: Expr, kernel: Ints, size: Ints, samples: Expr
) -> tuple[Expr, ...]:
    pool = F.fractional_max_pool3d if "3d" in c.func.name() else F.fractional_max_pool2d
    rank = 3 if "3d" in c.func.name() else 2
    return pool.multiple(x, samples, kernel=_per_dim(kernel, rank), size=_per_dim(size, rank))
