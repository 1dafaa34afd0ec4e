"""softmax, log_softmax and logsumexp, shifted by the largest element so that nothing overflows.

The shift cancels, so it is detached: no gradient flows through the maximum. A row of -inf gives
nan, as in torch, except in logsumexp, where it gives -inf with gradient 0.
"""

from __future__ import annotations

import math

from gradof.ir.types import BF16, F16, F32
from gradof.ops.expr import Expr, F
from gradof.ops.families import check_dims, reduction, unary
from gradof.ops.registry import Family, op

Dims = tuple[int, ...]


def _shifted(x: Expr, dim: int) -> Expr:
    check_dims((dim,), x.rank)
    if x.shape[dim] == 0:
        return x  # nothing to shift, and no maximum
    return x - F.detach(F.amax(x, dims=(dim,), keepdims=True))


def _softmax(x: Expr, dim: int) -> Expr:
    e = F.exp(_shifted(x, dim))
    return e / e.sum((dim,), keepdims=True)


def _log_softmax(x: Expr, dim: int) -> Expr:
    z = _shifted(x, dim)
    return z - F.log(F.exp(z).sum((dim,), keepdims=True))


def _softmax_x(g: Expr, y: Expr, dim: int) -> Expr:
    """That of the expansion is as long again, and reads the exponentials besides."""
    gradient, result = (v.cast(F32) if v.dtype in (F16, BF16) else v for v in (g, y))
    mean = (gradient * result).sum((dim,), keepdims=True)
    return ((gradient - mean) * result).cast(g.dtype)


op("softmax(x; dim) -> y", family=Family(unary().infer), expand=_softmax,
   vjp={"x": _softmax_x})
op("log_softmax(x; dim) -> y", family=Family(unary().infer), expand=_log_softmax)


def _logsumexp(x: Expr, dims: Dims, keepdims: bool) -> Expr:
    if not dims:
        return F.copy(x)
    if any(x.shape[d] == 0 for d in dims):
        return F.log(F.exp(x).sum(dims, keepdims))  # log of an empty sum: -inf
    top = F.detach(F.amax(x, dims=dims, keepdims=True))
    shift = F.where(F.isfinite(top), top, 0.0)
    total = F.exp(x - shift).sum(dims, keepdims=True)
    # With every element -inf the sum is 0; log 1 in its place keeps the gradient at 0, not nan.
    dead = total == 0.0
    y = F.where(dead, -math.inf, F.log(F.where(dead, 1.0, total)) + shift)
    if keepdims:
        return y
    return y.reshape(tuple(n for i, n in enumerate(y.shape) if i not in dims))


op("logsumexp(x; dims, keepdims) -> y", family=reduction(frozenset({"float"})),
   expand=_logsumexp)
