"""Reductions over `dims` (a tuple of distinct, non-negative dims), with `keepdims`.

amax and amin share the gradient evenly among ties, as torch's do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gradof.errors import InferenceError
from gradof.ir.attrs import Attr
from gradof.ir.extent import as_float
from gradof.ir.types import BF16, BOOL, F16, F32, I64, TensorType, Type
from gradof.ops.expr import Expr, F, Like
from gradof.ops.families import (
    ALL,
    ANY,
    ARITHMETIC,
    INEXACT,
    check_dims,
    known_shape,
    reduced_shape,
    reduction,
    tensor,
    unary,
)
from gradof.ops.registry import Family, op

Dims = tuple[int, ...]


def keep_reduced(g: Expr, x_like: Like, dims: Dims, keepdims: bool) -> Expr:
    """`g` with the reduced dims put back as 1 (nothing to do for unknown shapes reduced fully)."""
    if keepdims or not dims or x_like.type.shape is None:
        return g
    return g.reshape(tuple(1 if i in dims else n for i, n in enumerate(x_like.shape)))


def _sum_vjp(g: Expr, x_like: Like, dims: Dims, keepdims: bool) -> Expr:
    return x_like.expand(keep_reduced(g, x_like, dims, keepdims))


op("sum(x; dims, keepdims) -> y", family=reduction(ARITHMETIC), vjp={"x": _sum_vjp},
   traits={"linear"}, numpy="np.add.reduce({x}, axis={dims}, dtype={x}.dtype, keepdims={keepdims})")


def _mean(x: Expr, dims: Dims, keepdims: bool) -> Expr:
    count = 1
    for d in dims:
        count *= x.shape[d]
    # 1/0 of an empty mean is nan times the empty sum 0, as eager gives
    return x.sum(dims, keepdims) / as_float(count)


op("mean(x; dims, keepdims) -> y", family=reduction(INEXACT), expand=_mean)


def _extreme_vjp(g: Expr, x: Expr, y: Expr, dims: Dims, keepdims: bool) -> Expr:
    if not dims:
        return g
    kept = tuple(1 if i in dims else n for i, n in enumerate(x.shape))
    return _shared_by(x == y.reshape(kept), g.reshape(kept), dims)


def _shared_by(ties: Expr, g: Expr, dims: Dims) -> Expr:
    """A gradient that ties share evenly; in half precision their number may be beyond it."""
    counted = ties.cast(F32 if g.dtype in (F16, BF16) else g.dtype)
    share = g.cast(counted.dtype) / counted.sum(dims, keepdims=True)
    return ties.cast(g.dtype) * share.cast(g.dtype)


op("amax(x; dims, keepdims) -> y", family=reduction(ANY), vjp={"x": _extreme_vjp},
   traits={"selects"}, numpy="np.amax({x}, axis={dims}, keepdims={keepdims})")
op("amin(x; dims, keepdims) -> y", family=reduction(ANY), vjp={"x": _extreme_vjp},
   traits={"selects"}, numpy="np.amin({x}, axis={dims}, keepdims={keepdims})")


def _evenly_vjp(g: Expr, x: Expr, y: Expr, dims: Dims, keepdims: bool) -> Expr:
    if not dims:
        return g
    kept = y.reshape(tuple(1 if i in dims else n for i, n in enumerate(x.shape)))
    return _shared_by((x == kept) | ((x != x) & (kept != kept)), g.reshape(kept.shape), dims)


op("even_max(x; dims, keepdims) -> y", family=reduction(ANY), traits={"selects"},
   expand=lambda x, dims, keepdims: F.amax(x, dims=dims, keepdims=keepdims),
   vjp={"x": _evenly_vjp}, doc="torch.max of all: nans share its gradient, as ties do.")
op("even_min(x; dims, keepdims) -> y", family=reduction(ANY), traits={"selects"},
   expand=lambda x, dims, keepdims: F.amin(x, dims=dims, keepdims=keepdims),
   vjp={"x": _evenly_vjp}, doc="torch.min of all: nans share its gradient, as ties do.")
op("any(x; dims, keepdims) -> y", family=reduction(ALL, BOOL), vjp={"x": None},
   numpy="np.any({x}, axis={dims}, keepdims={keepdims})")
op("all(x; dims, keepdims) -> y", family=reduction(ALL, BOOL), vjp={"x": None},
   numpy="np.all({x}, axis={dims}, keepdims={keepdims})")


def _infer_arg(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    x = tensor(inputs[0])
    shape = known_shape(x)
    check_dims((attrs["dim"],), len(shape))
    if shape[_int(attrs["dim"])] == 0:
        raise InferenceError("argmax and argmin of an empty dim")
    reduced = reduced_shape(shape, (attrs["dim"],), attrs["keepdims"])
    return (TensorType(I64, reduced, x.device),)


def _int(value: Attr) -> int:
    if type(value) is not int:
        raise InferenceError(f"an int is due, not {value!r}")
    return value


op("argmax(x; dim, keepdims) -> y", family=Family(_infer_arg), vjp={"x": None},
   numpy="np.argmax({x}, axis={dim}, keepdims={keepdims})")
op("argmin(x; dim, keepdims) -> y", family=Family(_infer_arg), vjp={"x": None},
   numpy="np.argmin({x}, axis={dim}, keepdims={keepdims})")


def _cumsum_vjp(g: Expr, dim: int) -> Expr:
    return F.flip(F.cumsum(F.flip(g, dims=(dim,)), dim=dim), dims=(dim,))


op("cumsum(x; dim) -> y", family=Family(unary(ALL).infer), vjp={"x": _cumsum_vjp},
   numpy="np.cumsum({x}, axis={dim}, dtype={x}.dtype)",
   torch="torch.cumsum({x}, {dim}, dtype={x}.dtype)", traits={"linear"})


def _prod_vjp(g: Expr, x: Expr, dims: Dims, keepdims: bool) -> Expr:
    # Products of all others without division, so that zeros are exact: exclusive scans both ways
    # over the reduced dims, flattened to one.
    if not dims:
        return g
    rest = tuple(i for i in range(x.rank) if i not in dims)
    order = (*rest, *dims)
    moved = x.permute(order)
    outer = tuple(x.shape[i] for i in rest)
    count = 1
    for d in dims:
        count *= x.shape[d]
    flat = moved.reshape((*outer, count))
    others = F.exclusive_prod(flat)
    grad = (others * g.reshape((*outer, 1))).reshape(moved.shape)
    inverse = tuple(order.index(i) for i in range(x.rank))
    return grad.permute(inverse)


op("prod(x; dims, keepdims) -> y", family=reduction(ARITHMETIC), vjp={"x": _prod_vjp},
   numpy="np.multiply.reduce({x}, axis={dims}, dtype={x}.dtype, keepdims={keepdims})",
   domain=(0.5, 2))


def _exclusive_prod(x: Expr) -> Expr:
    """y[..., i] = product of x[..., j] over j != i, by doubling: log2(n) shifted products."""
    n = x.shape[-1]
    left, right = _shift(x, 1), _shift(x, -1)
    step = 1
    while step < n:
        left, right = left * _shift(left, step), right * _shift(right, -step)
        step *= 2
    return left * right


def _shift(x: Expr, by: int) -> Expr:
    """x moved by `by` along the last dim, ones moving in."""
    n, last = x.shape[-1], x.rank - 1
    k = min(abs(by), n)
    ones = F.full.with_emitter(x.emitter)(
        dtype=x.dtype, shape=(*x.shape[:-1], k), device=x.type.device, value=1.0
    )
    if by > 0:
        kept = F.slice(x, dim=last, start=0, stop=n - k, step=1)
        return F.cat(ones, kept, dim=last)
    kept = F.slice(x, dim=last, start=k, stop=n, step=1)
    return F.cat(kept, ones, dim=last)


op("exclusive_prod(x) -> y", family=Family(unary(INEXACT).infer), expand=_exclusive_prod,
   doc="The product of all other elements along the last dim.")
