"""Shapes and layout: reshape, permute, expand, slices, concatenation, flips, indexing along a dim.

All dims are non-negative; slices are normalised (0 <= start <= stop <= n, step > 0). A negative
step is a slice and a flip, which the tracers write out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradof.errors import InferenceError
from gradof.ir.attrs import Attr
from gradof.ir.extent import is_whole
from gradof.ir.types import Type
from gradof.ops.expr import Expr, F, Like
from gradof.ops.families import (
    broadcast_shapes,
    check_dims,
    int_tuple,
    shaped,
    tensor,
)
from gradof.ops.memory import empty
from gradof.ops.registry import Family, op
from gradof.tuning import ZEROED_CELLS  # by name: exported files hold the numbers

Array = NDArray[Any]
Shape = tuple[int, ...]


def _reshape(x: Shape, *, shape: Shape) -> Shape:
    target = int_tuple(shape, "shape")
    if math.prod(x) != math.prod(target) or any(d < 0 for d in target):
        raise InferenceError(f"cannot reshape {list(x)} to {list(target)}")
    return target


op("reshape(x; shape) -> y", family=shaped(_reshape), traits={"view", "linear"},
   numpy="{x}.reshape({shape})", vjp={"x": lambda g, x_like: g.reshape(x_like.shape)})


def _permute(x: Shape, *, dims: Shape) -> Shape:
    order = int_tuple(dims, "dims")
    if sorted(order) != list(range(len(x))):
        raise InferenceError(f"{order} is no permutation of the {len(x)} dims")
    return tuple(x[d] for d in order)


def _permute_vjp(g: Expr, dims: Shape) -> Expr:
    return g.permute(tuple(dims.index(i) for i in range(len(dims))))


op("permute(x; dims) -> y", family=shaped(_permute), traits={"view", "linear"},
   numpy="{x}.transpose({dims})", vjp={"x": _permute_vjp})


def _expand(x: Shape, *, shape: Shape) -> Shape:
    target = int_tuple(shape, "shape")
    if broadcast_shapes(x, target) != target:
        raise InferenceError(f"cannot expand {list(x)} to {list(target)}")
    return target


op("expand(x; shape) -> y", family=shaped(_expand), traits={"view", "linear"},
   numpy="np.broadcast_to({x}, {shape})",
   vjp={"x": lambda g, x_like: F.sum_to(g, shape=x_like.shape)},
   doc="Broadcasting made explicit; the gradient is summed back.")


def _sum_to(x: Shape, *, shape: Shape) -> Shape:
    target = int_tuple(shape, "shape")
    if broadcast_shapes(x, target) != x:
        raise InferenceError(f"cannot sum {list(x)} to {list(target)}")
    return target


def _expand_sum_to(x: Expr, shape: Shape) -> Expr:
    lead = x.rank - len(shape)
    dims = tuple(range(lead)) + tuple(
        i + lead for i, n in enumerate(shape) if n == 1 and x.shape[i + lead] != 1
    )
    return x.sum(dims, keepdims=True).reshape(shape)


op("sum_to(x; shape) -> y", family=shaped(_sum_to), expand=_expand_sum_to,
   doc="The sum over the dims along which `shape` was broadcast: the adjoint of expand.")


def _slice_shape(x: Shape, *, dim: int, start: int, stop: int, step: int) -> Shape:
    check_dims((dim,), len(x))
    if not (0 <= start <= stop <= x[dim] and step > 0):
        raise InferenceError(f"slice {start}:{stop}:{step} of a dim of size {x[dim]}")
    return (*x[:dim], -(-(stop - start) // step), *x[dim + 1 :])


def _slice_vjp(g: Expr, x_like: Like, dim: int, start: int, stop: int, step: int) -> Expr:
    return F.unslice(g, shape=x_like.shape, dim=dim, start=start, stop=stop, step=step)


def _np_slice(x: Array, *, dim: int, start: int, stop: int, step: int) -> Array:
    return x[(slice(None),) * dim + (slice(start, stop, step),)]


op("slice(x; dim, start, stop, step) -> y", family=shaped(_slice_shape),
   traits={"view", "linear"}, numpy=_np_slice, vjp={"x": _slice_vjp})


def _unslice_shape(
    g: Shape, *, shape: Shape, dim: int, start: int, stop: int, step: int
) -> Shape:
    if _slice_shape(shape, dim=dim, start=start, stop=stop, step=step) != g:
        raise InferenceError(f"{list(g)} is not that slice of {list(shape)}")
    return shape


def _pad_shape(x: Shape, *, pads: tuple[tuple[int, int], ...], value: float) -> Shape:
    if len(pads) != len(x) or any(a < 0 or b < 0 for a, b in pads):
        raise InferenceError(f"pads {pads} do not fit a tensor of rank {len(x)}")
    return tuple(n + a + b for n, (a, b) in zip(x, pads, strict=True))


def _np_pad(x: Array, *, pads: tuple[tuple[int, int], ...], value: float) -> Array:
    """Each element is written once; np.pad goes over the array once per dim."""
    result = empty(_pad_shape(x.shape, pads=pads, value=value), x.dtype)
    inside = result
    for dim, (low, high) in enumerate(pads):
        if low or high:
            head, size = (slice(None),) * dim, inside.shape[dim]
            inside[(*head, slice(0, low))] = value
            inside[(*head, slice(size - high, size))] = value
            inside = inside[(*head, slice(low, size - high))]
    inside[...] = x
    return result


def _np_unslice(
    g: Array, *, shape: Shape, dim: int, start: int, stop: int, step: int
) -> Array:
    if step != 1 or g.size < ZEROED_CELLS:
        result = np.zeros(shape, g.dtype)
        _np_slice(result, dim=dim, start=start, stop=stop, step=step)[...] = g
        return result
    pads = tuple((start, n - stop) if k == dim else (0, 0) for k, n in enumerate(shape))
    return _np_pad(g, pads=pads, value=0)


def _unslice_vjp(g: Expr, dim: int, start: int, stop: int, step: int) -> Expr:
    return F.slice(g, dim=dim, start=start, stop=stop, step=step)


op("unslice(g_in; shape, dim, start, stop, step) -> y", family=shaped(_unslice_shape),
   traits={"linear"}, numpy=_np_unslice, vjp={"g_in": _unslice_vjp},
   doc="Zeros of `shape` with the slice set to the operand: the adjoint of slice.")


def _slice_scatter_shape(x: Shape, src: Shape, **where: int) -> Shape:
    if _slice_shape(x, **where) != src:
        raise InferenceError(f"{list(src)} does not fit that slice of {list(x)}")
    return x


def _np_slice_scatter(x: Array, src: Array, **where: int) -> Array:
    result = x.copy()
    _np_slice(result, **where)[...] = src
    return result


def _slice_scatter_x(g: Expr, src_like: Like, dim: int, start: int, stop: int, step: int) -> Expr:
    return F.slice_scatter(g, src_like.zeros(), dim=dim, start=start, stop=stop, step=step)


op("slice_scatter(x, src; dim, start, stop, step) -> y", family=shaped(_slice_scatter_shape),
   numpy=_np_slice_scatter, vjp={"x": _slice_scatter_x, "src": _unslice_vjp},
   doc="x with a slice replaced by src.")


def _cat_shape(*shapes: Shape, dim: int) -> Shape:
    first = shapes[0]
    check_dims((dim,), len(first))
    for s in shapes[1:]:
        if len(s) != len(first) or s[:dim] + s[dim + 1 :] != first[:dim] + first[dim + 1 :]:
            raise InferenceError(f"cannot concatenate {list(first)} and {list(s)} along {dim}")
    return (*first[:dim], sum(s[dim] for s in shapes), *first[dim + 1 :])


def _infer_cat(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    dtypes = {tensor(t).dtype for t in inputs}
    if len(dtypes) > 1:
        shown = ", ".join(sorted(map(str, dtypes)))
        raise InferenceError(f"operands of dtypes {shown}; insert a cast")
    return shaped(_cat_shape).infer(inputs, attrs)


def _cat_vjp(g: Expr, xs_like: Sequence[Like], dim: int) -> list[Expr]:
    grads, at = [], 0
    for like in xs_like:
        n = like.shape[dim]
        grads.append(F.slice(g, dim=dim, start=at, stop=at + n, step=1))
        at += n
    return grads


op("cat(*xs; dim) -> y", family=Family(_infer_cat), traits={"linear"},
   numpy="np.concatenate(({xs},), axis={dim})", vjp={"xs": _cat_vjp})


def _flip_shape(x: Shape, *, dims: Shape) -> Shape:
    check_dims(dims, len(x))
    return x


op("flip(x; dims) -> y", family=shaped(_flip_shape), traits={"view", "linear"},
   numpy="np.flip({x}, {dims})", vjp={"x": lambda g, dims: F.flip(g, dims=dims)})


def _pad_vjp(g: Expr, pads: tuple[tuple[int, int], ...]) -> Expr:
    for dim, (low, high) in enumerate(pads):
        if low or high:
            g = F.slice(g, dim=dim, start=low, stop=g.shape[dim] - high, step=1)
    return g


op("pad(x; pads, value) -> y", family=shaped(_pad_shape), numpy=_np_pad, vjp={"x": _pad_vjp},
   doc="`pads` is one (before, after) pair per dim, none negative (a crop is a slice).")


def _infer_arange(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    n = attrs["n"]
    if not is_whole(n) or n < 0:
        raise InferenceError(f"arange needs a length, not {n!r}")
    from gradof.ops.structural import typed_zero

    typed = {"dtype": attrs["dtype"], "shape": (n,), "device": attrs["device"]}
    return typed_zero(inputs, typed)


op("arange(; n, start, step, dtype, device) -> y", family=Family(_infer_arange),
   traits={"constant"}, numpy="({start} + {step} * np.arange({n})).astype({dtype})")
