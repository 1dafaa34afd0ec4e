"""Sorting, selection by order, and running extremes and products.

Ops that return indices give the gradient to the elements the indices name, and to no other, ties or
not. nan sorts as the largest value, as in torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradof.errors import InferenceError
from gradof.ir.attrs import Attr
from gradof.ir.types import I64, Type
from gradof.ops.expr import Expr, F, Like
from gradof.ops.families import ANY, Kinds, check_dims, known_shape, reduced_shape, tensor, unary
from gradof.ops.registry import Family, op

Array = NDArray[Any]
Pair = tuple[Array, Array]


def _picked(g_values: Expr, x_like: Like, indices: Expr, dim: int) -> Expr:
    return F.scatter_add(x_like.zeros(), indices, g_values, dim=dim)


def _picked_one(g_values: Expr, x_like: Like, indices: Expr, dim: int, keepdims: bool) -> Expr:
    kept = tuple(1 if i == dim else n for i, n in enumerate(x_like.shape))
    return _picked(g_values.reshape(kept), x_like, indices.reshape(kept), dim)


def _pair(shape_of: Callable[..., tuple[int, ...]], kinds: Kinds = ANY) -> Family:
    """Values of x's dtype and i64 indices, of the shape `shape_of(shape, **attrs)`."""

    def infer(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
        x = tensor(inputs[0])
        check_dims((attrs["dim"],), len(known_shape(x)))
        if x.dtype.kind not in kinds:
            raise InferenceError(f"an operand of dtype {x.dtype} where {sorted(kinds)} is due")
        y = x.with_shape(shape_of(known_shape(x), **attrs))
        return (y, y.with_dtype(I64))

    return Family(infer)


# --- sort, topk, kthvalue, median ---------------------------------------------------------------


def _same(shape: tuple[int, ...], **_: Attr) -> tuple[int, ...]:
    return shape


def _np_order(x: Array, dim: int, descending: bool) -> Array:
    order: Array
    if not descending:
        order = np.argsort(x, axis=dim, kind="stable")
        return order
    # Sorted back to front, so that equal elements keep their order and nan comes first.
    order = x.shape[dim] - 1 - np.argsort(np.flip(x, dim), axis=dim, kind="stable")
    return np.flip(order, dim)


def _np_sort(x: Array, *, dim: int, descending: bool, stable: bool) -> Pair:
    order = _np_order(x, dim, descending)
    return np.take_along_axis(x, order, dim), order


op("sort(x; dim, descending, stable) -> values, indices", family=_pair(_same), numpy=_np_sort,
   traits={"selects"},
   torch="torch.sort({x}, dim={dim}, descending={descending}, stable={stable})",
   vjp={"x": _picked}, doc="The order of equal elements is kept if stable; numpy always keeps it.")


def _topk_shape(shape: tuple[int, ...], *, k: int, dim: int, **_: Attr) -> tuple[int, ...]:
    if not 0 <= k <= shape[dim]:
        raise InferenceError(f"the {k} largest of {shape[dim]}")
    return (*shape[:dim], k, *shape[dim + 1 :])


def _np_topk(x: Array, *, k: int, dim: int, largest: bool, sorted: bool) -> Pair:
    order = np.take(_np_order(x, dim, largest), np.arange(k), axis=dim)
    return np.take_along_axis(x, order, dim), order


op("topk(x; k, dim, largest, sorted) -> values, indices", family=_pair(_topk_shape),
   numpy=_np_topk, torch="torch.topk({x}, {k}, {dim}, {largest}, {sorted})", vjp={"x": _picked},
   traits={"selects"})


def _one_shape(
    shape: tuple[int, ...], *, dim: int, keepdims: bool, k: int = 1
) -> tuple[int, ...]:
    if not 1 <= k <= shape[dim]:
        raise InferenceError(f"element {k} in order of {shape[dim]}")
    return reduced_shape(shape, (dim,), keepdims)


def _np_kthvalue(x: Array, *, k: int, dim: int, keepdims: bool) -> Pair:
    order = np.take(_np_order(x, dim, False), [k - 1], axis=dim)
    values = np.take_along_axis(x, order, dim)
    return (values, order) if keepdims else (values.squeeze(dim), order.squeeze(dim))


op("kthvalue(x; k, dim, keepdims) -> values, indices", family=_pair(_one_shape),
   numpy=_np_kthvalue, torch="torch.kthvalue({x}, {k}, {dim}, {keepdims})",
   vjp={"x": _picked_one}, traits={"selects"}, doc="The k-th smallest, counted from 1.")


def _np_median_dim(x: Array, *, dim: int, keepdims: bool) -> Pair:
    order = _np_order(x, dim, False)
    # nan wins wherever there is one; sorting has put it last
    last = np.take(order, [-1], axis=dim)
    middle = np.take(order, [(x.shape[dim] - 1) // 2], axis=dim)
    spoilt = np.isnan(np.take_along_axis(x, last, dim))
    where = np.where(spoilt, last, middle)
    values = np.take_along_axis(x, where, dim)
    return (values, where) if keepdims else (values.squeeze(dim), where.squeeze(dim))


# torch's reads beside an expanded operand (2.13: torch.arange(1., 6.).expand(4, 5).median(0))
op("median_dim(x; dim, keepdims) -> values, indices", family=_pair(_one_shape),
   numpy=_np_median_dim, torch="torch.median({x}.contiguous(), {dim}, {keepdims})",
   vjp={"x": _picked_one}, traits={"selects"},
   doc="The lower of the two middle elements, or nan if there is one.")


def _infer_median(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    x = tensor(inputs[0])
    if 0 in known_shape(x):
        raise InferenceError("the median of nothing")
    return (x.with_shape(()),)


def _median_vjp(g: Expr, x: Expr, y: Expr) -> Expr:
    ties = ((x == y) | (F.isnan(x) & F.isnan(y))).cast(x.dtype)
    return ties * (g / F.sum(ties, dims=tuple(range(x.rank)), keepdims=False))


def _np_median(x: Array) -> Array:
    return _np_median_dim(x.reshape(-1), dim=0, keepdims=False)[0]


op("median(x) -> y", family=Family(_infer_median), numpy=_np_median, torch="torch.median",
   vjp={"x": _median_vjp}, traits={"selects"},
   doc="Of all elements; ties share the gradient, as torch's do.")

# --- running ------------------------------------------------------------------------------------


def _np_running(extreme: Any) -> Callable[..., Pair]:
    def run(x: Array, *, dim: int) -> Pair:
        values = extreme.accumulate(x, axis=dim)
        # the latest element that equals the running extreme
        hits = (x == values) | np.isnan(x)
        at = np.arange(x.shape[dim]).reshape((-1,) + (1,) * (x.ndim - dim - 1))
        return values, np.maximum.accumulate(np.where(hits, at, 0), axis=dim)

    return run


for _name, _ufunc in (("cummax", np.maximum), ("cummin", np.minimum)):
    op(f"{_name}(x; dim) -> values, indices", family=_pair(_same), numpy=_np_running(_ufunc),
       torch=f"torch.{_name}({{x}}, {{dim}})", vjp={"x": _picked}, traits={"selects"})


def _filled(x: Expr, count: int, dim: int, value: float) -> Expr:
    """As many equal elements along a dim of an array like x."""
    return F.full.with_emitter(x.emitter)(
        dtype=x.dtype, shape=(*x.shape[:dim], count, *x.shape[dim + 1 :]), device=x.type.device,
        value=value,
    )  # fmt: skip


def _later(x: Expr, by: int, dim: int) -> Expr:
    """x moved down by `by` along a dim, zeros moving in."""
    kept = F.slice(x, dim=dim, start=by, stop=x.shape[dim], step=1)
    return F.cat(kept, _filled(x, by, dim, 0.0), dim=dim)


def _cumprod_vjp(g: Expr, x: Expr, y: Expr, dim: int) -> Expr:
    # dx_j = (product before j) * s_j, where s_j = g_j + x_{j+1} s_{j+1}: exact at zeros, where
    # division would give nan. s by doubling: of windows, their own sums and their products.
    n, step = x.shape[dim], 1
    if n == 0:
        return g
    known = F.slice(y, dim=dim, start=0, stop=n - 1, step=1)
    before = F.cat(_filled(y, 1, dim, 1.0), known, dim=dim)
    total, factor = g, _later(x, 1, dim)
    while step < n:
        total = total + factor * _later(total, step, dim)
        step *= 2
        if step < n:
            factor = factor * _later(factor, step // 2, dim)
    return before * total


op("cumprod(x; dim) -> y", family=Family(unary(frozenset({"float", "int"})).infer),
   numpy="np.cumprod({x}, axis={dim}, dtype={x}.dtype)",
   torch="torch.cumprod({x}, {dim}, dtype={x}.dtype)",
   vjp={"x": _cumprod_vjp})


def _logcumsumexp_vjp(g: Expr, x: Expr, y: Expr, dim: int) -> Expr:
    if x.shape[dim] == 1:
        return g

    # dx_j = exp(x_j) sum_{i >= j} g_i exp(-y_i), in logarithms, for g's two signs apart.
    def part(positive: bool) -> Expr:
        mine = (g > 0.0) if positive else (g < 0.0)
        size = F.where(mine, g if positive else -g, 1.0)
        logs = F.where(mine, F.log(size) - y, -np.inf)
        back = F.flip(F.logcumsumexp(F.flip(logs, dims=(dim,)), dim=dim), dims=(dim,))
        return F.exp(back + x)

    return part(True) - part(False)


def _np_logcumsumexp(x: Array, *, dim: int) -> Array:
    result: Array = np.logaddexp.accumulate(x, axis=dim)
    return result


op("logcumsumexp(x; dim) -> y", family=Family(unary().infer), numpy=_np_logcumsumexp,
   torch="torch.logcumsumexp({x}, {dim})", vjp={"x": _logcumsumexp_vjp})
