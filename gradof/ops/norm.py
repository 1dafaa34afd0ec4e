"""Variances, norms and normalisations.

Variance is computed in two passes, mean((x - mean(x))^2), which does not cancel. Where a root's
gradient is infinite (std and norms at 0) the gradient is zero, as torch's is. The normalisations
leave scale and shift to their callers, and return the statistics that torch returns as well.
"""

from __future__ import annotations

import math

from gradof.errors import InferenceError
from gradof.ops.expr import Expr, F
from gradof.ops.families import check_dims, composite, reduction
from gradof.ops.registry import op

Dims = tuple[int, ...]
REAL = frozenset({"float"})


def _count(x: Expr, dims: Dims) -> int:
    return math.prod(x.shape[d] for d in check_dims(dims, x.rank))


def _centred(x: Expr, dims: Dims) -> tuple[Expr, Expr]:
    mean = F.mean(x, dims=dims, keepdims=True)
    return mean, x - mean


def _var(x: Expr, dims: Dims, correction: float, keepdims: bool) -> Expr:
    _, centred = _centred(x, dims)
    # With no degree of freedom left this is 0/0 = nan, as in torch.
    return F.sum(F.square(centred), dims=dims, keepdims=keepdims) / max(
        0.0, _count(x, dims) - float(correction)
    )


def _std(x: Expr, dims: Dims, correction: float, keepdims: bool) -> Expr:
    return F.safe_sqrt(F.var(x, dims=dims, correction=correction, keepdims=keepdims))


def _safe_sqrt(x: Expr) -> Expr:
    at_zero = x == 0.0
    return F.where(at_zero, 0.0, F.sqrt(F.where(at_zero, 1.0, x)))


op("safe_sqrt(x) -> y", family=composite(_safe_sqrt, elementwise=True), expand=_safe_sqrt,
   formula="sqrt(x)", domain=(0.3, 3), doc="The square root, with gradient 0 at 0.")
op("var(x; dims, correction, keepdims) -> y", family=reduction(REAL), expand=_var)
op("std(x; dims, correction, keepdims) -> y", family=reduction(REAL), expand=_std)


def _vector_norm(x: Expr, ord: float, dims: Dims, keepdims: bool) -> Expr:
    p = float(ord)
    if p == 1.0 or (p != 0.0 and _count(x, dims) == 1):  # a power of one number may overflow
        return F.sum(F.abs(x), dims=dims, keepdims=keepdims)
    if p == 2.0:
        return F.safe_sqrt(F.sum(F.square(x), dims=dims, keepdims=keepdims))
    if p == 0.0:
        return F.sum((x != 0.0).cast(x.dtype), dims=dims, keepdims=keepdims)
    if math.isinf(p):
        extreme = F.even_max if p > 0 else F.even_min
        return extreme(F.abs(x), dims=dims, keepdims=keepdims)
    # Zero elements give gradient 0 (with p < 1 theirs is infinite) and, with p > 0, add nothing;
    # with p < 0 the norm is then 0.
    at_zero = x == 0.0
    alone = 0.0 if p > 0 else math.inf
    powers = F.where(at_zero, alone, F.pow(F.abs(F.where(at_zero, 1.0, x)), p))
    total = F.sum(powers, dims=dims, keepdims=keepdims)
    none = total == alone
    return F.where(none, 0.0, F.pow(F.where(none, 1.0, total), 1.0 / p))


op("vector_norm(x; ord, dims, keepdims) -> y", family=reduction(REAL), expand=_vector_norm)


def _torch_norm_x(
    g: Expr, x: Expr, y: Expr, ord: float, dims: Dims, keepdims: bool
) -> Expr:  # fmt: skip
    dims = check_dims(dims, x.rank)
    kept = tuple(1 if d in dims else n for d, n in enumerate(x.shape))
    g, y = g.reshape(kept), y.reshape(kept)
    if _count(x, dims) == 1 and ord > 2.0:  # powers of one number may overflow
        size = F.where(y == 0.0, 1.0, y)
        return g * F.sign(x) * (size / size)  # which is a nan where it is no number
    if ord == 2.0 or (_count(x, dims) == 1 and ord < 0.0):
        return g * F.where(y == 0.0, 0.0, x / y)
    if ord < 1.0:
        powers = F.where(x == 0.0, 0.0, F.pow(F.abs(x), ord - 1.0))
        return F.sign(x) * powers * g * F.pow(y, 1.0 - ord)
    scale = F.where(y == 0.0, 0.0, g / F.pow(y, ord - 1.0))
    if ord < 2.0:
        return F.sign(x) * F.pow(F.abs(x), ord - 1.0) * scale
    return x * F.pow(F.abs(x), ord - 2.0) * scale


op("torch_norm(x; ord, dims, keepdims) -> y", family=reduction(REAL), expand=_vector_norm,
   vjp={"x": _torch_norm_x},
   doc="Of other orders than 0, 1 and inf; torch's gradient, whose own one at 0 is a NaN.")


def _normalize(x: Expr, dims: Dims, eps: float) -> tuple[Expr, Expr, Expr]:
    mean, centred = _centred(x, dims)
    var = F.mean(F.square(centred), dims=dims, keepdims=True)
    rstd = F.rsqrt(var + float(eps))
    return centred * rstd, mean, rstd


def _layer_norm(x: Expr, dims: Dims, eps: float) -> tuple[Expr, Expr, Expr]:
    return _normalize(x, dims, eps)


op("layer_norm(x; dims, eps) -> y, mean, rstd", family=composite(_layer_norm), expand=_layer_norm,
   doc="Without scale and shift; mean and 1/std keep the dims as 1.")


def _group_norm(x: Expr, groups: int, eps: float) -> tuple[Expr, Expr, Expr]:
    n, channels = x.shape[:2]
    if channels % groups:
        raise InferenceError(f"{channels} channels in {groups} groups")
    split = x.reshape((n, groups, x.type.size // max(1, n * groups)))
    y, mean, rstd = _normalize(split, (2,), eps)
    return y.reshape(x.shape), mean.reshape((n, groups)), rstd.reshape((n, groups))


op("group_norm(x; groups, eps) -> y, mean, rstd", family=composite(_group_norm),
   expand=_group_norm, doc="Without scale and shift; mean and 1/std are [N, groups].")


def _rms_norm(x: Expr, dims: Dims, eps: float) -> tuple[Expr, Expr]:
    rstd = F.rsqrt(F.mean(F.square(x), dims=dims, keepdims=True) + float(eps))
    return x * rstd, rstd


op("rms_norm(x; dims, eps) -> y, rstd", family=composite(_rms_norm), expand=_rms_norm,
   doc="x / sqrt(mean(x^2) + eps), without scale.")


def _batch_norm(x: Expr, eps: float) -> tuple[Expr, Expr, Expr, Expr]:
    dims = (0, *range(2, x.rank))
    mean, centred = _centred(x, dims)
    var = F.mean(F.square(centred), dims=dims, keepdims=True)
    rstd = F.rsqrt(var + float(eps))
    one = (x.shape[1],)
    return centred * rstd, mean.reshape(one), rstd.reshape(one), var.reshape(one)


op("batch_norm(x; eps) -> y, mean, rstd, var", family=composite(_batch_norm), expand=_batch_norm,
   doc="With the statistics of the batch, var biased, one per channel; without scale and shift.")


def _batch_norm_inference(x: Expr, mean: Expr, var: Expr, eps: float) -> Expr:
    shape = (1, x.shape[1], *(1,) * (x.rank - 2))
    return (x - mean.reshape(shape)) * F.rsqrt(var + float(eps)).reshape(shape)


op("batch_norm_inference(x, mean, var; eps) -> y", family=composite(_batch_norm_inference),
   expand=_batch_norm_inference, doc="With given statistics, one per channel.")
