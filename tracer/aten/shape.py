"""Views, joins and slices of aten as reshape, permute, expand, slice, cat, flip and pad."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gradof.errors import UnsupportedOpError
from gradof.ir.attrs import Dense
from gradof.ops.expr import Expr, F, Number
from gradof.tracer.aten.registry import Call, aten, scalar_for

Ints = Sequence[int]


def wrap_dim(dim: int, rank: int) -> int:
    """A dim counted from the front."""
    return dim + max(rank, 1) if dim < 0 else dim


@aten("view.default", "_unsafe_view.default", "reshape.default", "unflatten.int", "squeeze.default",
      "squeeze.dim", "squeeze.dims", "unsqueeze.default", "_reshape_alias.default",
      "view_copy.default", "_reshape_copy.default", "flatten.using_ints")  # fmt: skip
def reshape(c: Call, x: Expr, *_: Any) -> Expr:
    shape = c.type().shape
    assert shape is not None
    return F.alias(x) if shape == x.shape else F.reshape(x, shape=shape)


@aten("expand.default", "expand_copy.default", "broadcast_to.default")
def expand(c: Call, x: Expr, size: Ints, *, implicit: bool = False) -> Expr:
    shape = c.type().shape
    assert shape is not None
    return F.alias(x) if shape == x.shape else F.expand(x, shape=shape)


@aten("permute.default")
def permute(c: Call, x: Expr, dims: Ints) -> Expr:
    return F.permute(x, dims=tuple(wrap_dim(d, x.rank) for d in dims))


@aten("transpose.int")
def transpose(c: Call, x: Expr, a: int, b: int) -> Expr:
    order = list(range(x.rank))
    if not order:
        return F.alias(x)
    a, b = wrap_dim(a, x.rank), wrap_dim(b, x.rank)
    order[a], order[b] = order[b], order[a]
    return F.permute(x, dims=tuple(order))


@aten("t.default")
def t(c: Call, x: Expr) -> Expr:
    return F.alias(x) if x.rank < 2 else F.permute(x, dims=(1, 0))


@aten("select.int")
def select(c: Call, x: Expr, dim: int, index: int) -> Expr:
    dim = wrap_dim(dim, x.rank)
    return F.select(x, dim=dim, index=index + x.shape[dim] if index < 0 else index)


def _bounds(n: int, start: int | None, end: int | None, step: int) -> tuple[int, int]:
    """torch's slice bounds, normalised to 0 <= start <= stop <= n."""
    low, high, _ = slice(start, end).indices(n)
    return low, max(low, high)


@aten("slice.Tensor")
def slice_(
    c: Call, x: Expr, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Expr:
    dim = wrap_dim(dim, x.rank)
    low, high = _bounds(x.shape[dim], start, end, step)
    if (low, high, step) == (0, x.shape[dim], 1):
        return F.alias(x)
    return F.slice(x, dim=dim, start=low, stop=high, step=step)


@aten("slice_scatter.default")
def slice_scatter(
    c: Call, x: Expr, src: Expr, dim: int = 0, start: int | None = None, end: int | None = None,
    step: int = 1,
) -> Expr:  # fmt: skip
    dim = wrap_dim(dim, x.rank)
    low, high = _bounds(x.shape[dim], start, end, step)
    src = src.cast(x.dtype)
    if (low, high, step) == (0, x.shape[dim], 1):
        return src.expand(x.shape)
    part = (*x.shape[:dim], -(-(high - low) // step), *x.shape[dim + 1 :])
    return F.slice_scatter(x, src.expand(part), dim=dim, start=low, stop=high, step=step)


@aten("select_scatter.default")
def select_scatter(c: Call, x: Expr, src: Expr, dim: int, index: int) -> Expr:
    dim = wrap_dim(dim, x.rank)
    index = index + x.shape[dim] if index < 0 else index
    part = src.cast(x.dtype).reshape((*x.shape[:dim], 1, *x.shape[dim + 1 :]))
    return F.slice_scatter(x, part, dim=dim, start=index, stop=index + 1, step=1)


@aten("diagonal_scatter.default")
def diagonal_scatter(
    c: Call, x: Expr, src: Expr, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Expr:
    n = math.prod(x.shape)
    index = np.diagonal(np.arange(n).reshape(x.shape), offset, dim1, dim2).ravel()
    part = src.cast(x.dtype).reshape(index.shape)
    flat = F.scatter(x.reshape((n,)), Dense.of(index), part, dim=0)
    return flat.reshape(x.shape)


def _split(x: Expr, dim: int, sizes: Ints) -> list[Expr]:
    dim, at, parts = wrap_dim(dim, x.rank), 0, []
    for n in sizes:
        parts.append(F.slice(x, dim=dim, start=at, stop=at + n, step=1))
        at += n
    return parts


@aten("split.Tensor", "split_with_sizes.default", "unsafe_split.Tensor", "chunk.default",
      "unsafe_split_with_sizes.default", "unsafe_chunk.default", "split.sizes")  # fmt: skip
def split(c: Call, x: Expr, sizes: int | Ints, dim: int = 0) -> list[Expr]:
    return _split(x, dim, [r.shape[wrap_dim(dim, x.rank)] for r in c.results])


@aten("unbind.int")
def unbind(c: Call, x: Expr, dim: int = 0) -> list[Expr]:
    n = x.shape[wrap_dim(dim, x.rank)]
    return [select(c, x, dim, i) for i in range(n)]


@aten("cat.default")
def cat(c: Call, xs: Sequence[Expr], dim: int = 0) -> Expr:
    result = c.type()
    assert result.shape is not None
    # torch lets an empty vector be joined to anything
    real = [x.cast(result.dtype) for x in xs if x.shape != (0,) or len(result.shape) == 1]
    return F.cat(*real, dim=wrap_dim(dim, len(result.shape)))


@aten("stack.default")
def stack(c: Call, xs: Sequence[Expr], dim: int = 0) -> Expr:
    result = c.type()
    dim = wrap_dim(dim, xs[0].rank + 1)
    parts = [x.cast(result.dtype).reshape((*x.shape[:dim], 1, *x.shape[dim:])) for x in xs]
    return F.cat(*parts, dim=dim)


@aten("flip.default")
def flip(c: Call, x: Expr, dims: Ints) -> Expr:
    return F.flip(x, dims=tuple(wrap_dim(d, x.rank) for d in dims))


@aten("roll.default")
def roll(c: Call, x: Expr, shifts: Ints, dims: Ints = ()) -> Expr:
    if not dims:
        flat = F.roll(x.reshape((x.type.size,)), shifts=tuple(shifts), dims=(0,))
        return flat.reshape(x.shape)
    return F.roll(x, shifts=tuple(shifts), dims=tuple(wrap_dim(d, x.rank) for d in dims))


@aten("repeat.default")
def repeat(c: Call, x: Expr, repeats: Ints) -> Expr:
    return F.repeat(x, repeats=tuple(repeats))


@aten("constant_pad_nd.default")
def constant_pad(c: Call, x: Expr, pad: Ints, value: Number = 0) -> Expr:
    # torch lists (before, after) from the last dim on; a negative pad is a crop
    pairs = [(0, 0)] * x.rank
    for i in range(len(pad) // 2):
        pairs[x.rank - 1 - i] = (pad[2 * i], pad[2 * i + 1])
    for dim, (low, high) in enumerate(pairs):
        if low < 0 or high < 0:
            n = x.shape[dim]
            x = F.slice(x, dim=dim, start=max(0, -low), stop=n - max(0, -high), step=1)
    grown = tuple((max(0, low), max(0, high)) for low, high in pairs)
    if not any(low or high for low, high in grown):
        return F.alias(x)
    return F.pad(x, pads=grown, value=scalar_for(value, x.type))


@aten("tril.default")
def tril(c: Call, x: Expr, diagonal: int = 0) -> Expr:
    return F.tril(x, diagonal=diagonal)


@aten("triu.default")
def triu(c: Call, x: Expr, diagonal: int = 0) -> Expr:
    return F.triu(x, diagonal=diagonal)


@aten("diagonal.default")
def diagonal(c: Call, x: Expr, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Expr:
    dims = (wrap_dim(dim1, x.rank), wrap_dim(dim2, x.rank))
    return F.diagonal(x, offset=offset, dim1=dims[0], dim2=dims[1])


@aten("unfold.default")
def unfold(c: Call, x: Expr, dim: int, size: int, step: int) -> Expr:
    if x.rank == 0:
        return x.reshape((size,))
    return F.unfold(x, dim=wrap_dim(dim, x.rank), size=size, step=step)


def _memory(c: Call, x: Expr) -> tuple[Expr, Ints]:
    """A tensor as it lies in memory, flat, and the dims in the order of their steps.

    UnsupportedOpError where it does not fill its part of the memory, each element once.
    """
    real = c.args[0]
    order = tuple(sorted(range(x.rank), key=lambda d: (-real.stride(d), d)))
    if not real.permute(order).is_contiguous():
        raise _not_in_the_graph(c)
    return x.permute(order).reshape((x.type.size,)), order


def _strided_places(c: Call, x: Expr, size: Ints, stride: Ints, offset: int | None) -> Expr:
    """Where in that memory the elements of `as_strided` are."""
    start = 0 if offset is None else offset - c.args[0].storage_offset()
    places = np.full(tuple(size), start, np.int64)
    for dim, step in enumerate(stride):
        along = np.arange(size[dim]) * step
        places += along.reshape((-1,) + (1,) * (len(size) - dim - 1))
    if places.size and (places.max() >= x.type.size or places.min() < 0):
        raise _not_in_the_graph(c)
    return c.constant(Dense.of(places))


def _not_in_the_graph(c: Call) -> UnsupportedOpError:
    return UnsupportedOpError(
        "as_strided of a tensor that is itself a view of another, whose memory is not in the "
        "graph", loc=c.emitter.body.loc, hint="take it of the other tensor, or index",
    )  # fmt: skip


@aten("as_strided.default", "as_strided_copy.default")
def as_strided(c: Call, x: Expr, size: Ints, stride: Ints, offset: int | None = None) -> Expr:
    flat, _ = _memory(c, x)
    return F.take(flat, _strided_places(c, x, size, stride, offset))


@aten("as_strided_scatter.default")
def as_strided_scatter(
    c: Call, x: Expr, src: Expr, size: Ints, stride: Ints, offset: int | None = None
) -> Expr:
    flat, order = _memory(c, x)
    places = _strided_places(c, x, size, stride, offset)
    flat = F.index_put(flat, src.cast(x.dtype), places, dims=(0,), accumulate=False)
    moved = flat.reshape(tuple(x.shape[d] for d in order))
    return moved.permute(tuple(order.index(d) for d in range(x.rank)))
