"""numpy functions that rearrange: views (reshape, transpose, ...), joins, splits, padding."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from gradof.ops.expr import Expr, F
from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.deferred import memories
from gradof.tracer.numpy.functions import (
    as_array,
    axes,
    axis_of,
    composed,
    expression,
    view_of,
    whole,
)
from gradof.tracer.numpy.layouts import ask_layout, order_of
from gradof.tracer.numpy.recorder import Recorder
from gradof.tracer.numpy.view import View

ViewResult = tuple[Expr, View]
_MISSING: Any = object()

# --- views ----------------------------------------------------------------------------------------


@expression(np.reshape)
def _reshape(
    r: Recorder, a: Any, /, shape: Any = None, order: Any = "C", *, copy: Any = None
) -> ViewResult:
    array = r.traced(as_array(a))
    r.asks_layout(array)
    flags, order = array.memory.flags, order_of(order)
    if order == "A":
        ask_layout(array)
        order = "F" if flags.f_contiguous and not flags.c_contiguous else "C"
    target = tuple(array.memory.reshape(whole(shape), order=order).shape)
    old = array.shape
    if order == "F":  # the first index runs fastest: C order of the transposes
        return view_of(
            array,
            lambda x: _reversed(_reversed(x).reshape(target[::-1])),
            lambda x, s: _reversed(_reversed(s).reshape(old[::-1])),
        )
    return view_of(array, lambda x: x.reshape(target), lambda x, s: s.reshape(old))


def _reversed(x: Expr) -> Expr:
    return x.permute(tuple(reversed(range(x.rank))))


@composed(np.ravel)
def _ravel(a: Any, order: Any = "C") -> Any:
    flags, order = np.asarray(memories(a)).flags, order_of(order)
    dense = {"F": flags.f_contiguous, "C": flags.c_contiguous}.get(order, flags.forc)
    if order == "K":
        if isinstance(a, TracedArray):
            ask_layout(a)
        if not dense:
            raise TypeError("argument order='K', of memory with gaps")
        order = "A"
    flat = np.reshape(a, -1, order=order)
    return flat if dense else np.copy(flat)  # of what has gaps reshape may give a view, ravel never


@composed(np.squeeze)
def _squeeze(a: Any, axis: Any = None) -> Any:
    return np.reshape(a, np.squeeze(memories(a), axis=axis).shape)


@composed(np.expand_dims)
def _expand_dims(a: Any, axis: Any) -> Any:
    return np.reshape(a, np.expand_dims(memories(a), axis).shape)


@composed(np.atleast_1d)
def _atleast_1d(*arrays: Any) -> Any:
    shaped = tuple(np.reshape(a, np.atleast_1d(memories(a)).shape) for a in arrays)
    return shaped if len(shaped) > 1 else shaped[0]


@composed(np.atleast_2d)
def _atleast_2d(*arrays: Any) -> Any:
    shaped = tuple(np.reshape(a, np.atleast_2d(memories(a)).shape) for a in arrays)
    return shaped if len(shaped) > 1 else shaped[0]


@composed(np.atleast_3d)
def _atleast_3d(*arrays: Any) -> Any:
    shaped = tuple(np.reshape(a, np.atleast_3d(memories(a)).shape) for a in arrays)
    return shaped if len(shaped) > 1 else shaped[0]


@expression(np.transpose)
def _transpose(r: Recorder, a: Any, axes: Any = None) -> ViewResult:
    array = r.traced(as_array(a))
    rank = array.ndim
    order = tuple(reversed(range(rank))) if axes is None else tuple(axis_of(d, rank) for d in axes)
    inverse = tuple(order.index(i) for i in range(rank))
    return view_of(array, lambda x: x.permute(order), lambda x, s: s.permute(inverse))


@composed(np.matrix_transpose, np.linalg.matrix_transpose)
def _matrix_transpose(x: Any, /) -> Any:
    return np.swapaxes(x, -1, -2)


@composed(np.swapaxes)
def _swapaxes(a: Any, axis1: int, axis2: int) -> Any:
    order = list(range(a.ndim))
    order[axis1], order[axis2] = order[axis2], order[axis1]
    return np.transpose(a, order)


@composed(np.moveaxis)
def _moveaxis(a: Any, source: Any, destination: Any) -> Any:
    pairs = [
        [axis_of(d, a.ndim) for d in (x if isinstance(x, Iterable) else [x])]
        for x in (source, destination)
    ]
    order = [i for i in range(a.ndim) if i not in pairs[0]]
    for d, s in sorted(zip(pairs[1], pairs[0], strict=True)):
        order.insert(d, s)
    return np.transpose(a, order)


@composed(np.rollaxis)
def _rollaxis(a: Any, axis: int, start: int = 0) -> Any:
    moved, first = axis_of(axis, a.ndim), axis_of(start, a.ndim)
    places = [d for d in range(a.ndim) if d != moved]
    places.insert(first - (moved < first), moved)
    return np.transpose(a, places)


@expression(np.flip)
def _flip(r: Recorder, m: Any, axis: Any = None) -> ViewResult:
    array = r.traced(m)
    dims = axes(axis, array.ndim)
    return view_of(array, lambda x: F.flip(x, dims=dims), lambda x, s: F.flip(s, dims=dims))


@composed(np.fliplr)
def _fliplr(m: Any) -> Any:
    return np.flip(m, 1)


@composed(np.flipud)
def _flipud(m: Any) -> Any:
    return np.flip(m, 0)


@composed(np.rot90)
def _rot90(m: Any, k: int = 1, axes: Any = (0, 1)) -> Any:
    for _ in range(int(k % 4)):
        m = np.flip(np.swapaxes(m, axes[0], axes[1]), axes[0])
    return m


def _read_only(x: Expr, source: Expr) -> Expr:
    raise AssertionError("numpy refuses to write into this view first")


@expression(np.broadcast_to)
def _broadcast_to(r: Recorder, array: Any, shape: Any, subok: bool = False) -> ViewResult:
    target = (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(map(int, shape))
    return view_of(r.traced(as_array(array)), lambda x: x.expand(target), _read_only)


@composed(np.broadcast_arrays)
def _broadcast_arrays(*arrays: Any, subok: bool = False) -> Any:
    shape = np.broadcast_shapes(*(np.shape(a) for a in arrays))
    return tuple(np.broadcast_to(a, shape) for a in arrays)


@expression(np.linalg.diagonal)
def _linalg_diagonal(r: Recorder, x: Any, /, *, offset: int = 0) -> ViewResult:
    found: ViewResult = _diagonal(r, x, offset, -2, -1)
    return found


@expression(np.diagonal)
def _diagonal(r: Recorder, a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> ViewResult:
    array = r.traced(a)
    dim1, dim2 = axis_of(axis1, array.ndim), axis_of(axis2, array.ndim)
    return view_of(
        array,
        lambda x: F.diagonal(x, offset=int(offset), dim1=dim1, dim2=dim2),
        _read_only,
    )


@expression(np.lib.stride_tricks.sliding_window_view)
def _sliding_window_view(
    r: Recorder, x: Any, window_shape: Any, axis: Any = None, *, subok: bool = False,
    writeable: bool = False,
) -> ViewResult:  # fmt: skip
    if writeable:
        raise r.unsupported("sliding_window_view that is written into", "write into its array")
    array = r.traced(as_array(x))
    sizes = (window_shape,) if np.ndim(window_shape) == 0 else tuple(window_shape)
    given = range(array.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    dims = [axis_of(d, array.ndim) for d in given]

    def read(x: Expr) -> Expr:
        for dim, size in zip(dims, sizes, strict=True):
            x = F.unfold(x, dim=dim, size=int(size), step=1)
        return x

    return view_of(array, read, _read_only)


@composed(np.trace)
def _trace(
    a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None
) -> Any:
    return np.sum(np.diagonal(a, offset, axis1, axis2), axis=-1, dtype=dtype)


@composed(np.linalg.trace)
def _linalg_trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    return np.trace(x, offset, -2, -1, dtype)


# --- repeating, shifting, padding -----------------------------------------------------------------


@composed(np.tile)
def _tile(A: Any, reps: Any) -> Any:
    times = (int(reps),) if np.ndim(reps) == 0 else tuple(map(int, reps))
    rank = max(A.ndim, len(times))
    x = np.reshape(A, (1,) * (rank - A.ndim) + A.shape)
    times = (1,) * (rank - len(times)) + times
    for axis, n in enumerate(times):
        x = np.concatenate([x] * n, axis=axis) if n else x[(slice(None),) * axis + (slice(0, 0),)]
    return np.copy(x)


@composed(np.repeat)
def _repeat(a: Any, repeats: Any, axis: Any = None) -> Any:
    x = np.ravel(a) if axis is None else a
    dim = 0 if axis is None else axis_of(axis, x.ndim)
    return np.take(x, np.repeat(np.arange(x.shape[dim]), whole(repeats)).tolist(), axis=dim)


@composed(np.resize)
def _resize(a: Any, new_shape: Any) -> Any:
    new_shape = whole(new_shape)
    count = int(np.prod(new_shape, dtype=np.int64))
    if not a.size:  # numpy repeats a zero
        return np.zeros(new_shape, a.dtype)
    return np.reshape(np.ravel(a)[(np.arange(count) % a.size).tolist()], new_shape)


@expression(np.roll)
def _roll(r: Recorder, a: Any, shift: Any, axis: Any = None) -> Expr:
    array = r.traced(a)
    x, dims = (array.expr.reshape((array.size,)), 0) if axis is None else (array.expr, axis)
    shifts, places = np.broadcast_arrays(shift, dims)
    moved = F.roll(
        x, shifts=tuple(int(s) for s in shifts.flat),
        dims=tuple(axis_of(d, x.rank) for d in places.flat),
    )
    return moved.reshape(array.shape)


@composed(np.diff)
def _diff(
    a: Any, n: int = 1, axis: int = -1, prepend: Any = _MISSING, append: Any = _MISSING
) -> Any:
    if n == 0:
        return a
    dim = axis_of(axis, a.ndim)
    lead = (slice(None),) * dim
    extra: list[list[Any]] = []
    for edge in (prepend, append):
        if edge is _MISSING:
            extra.append([])
            continue
        part = as_array(edge)
        shape = (*a.shape[:dim], 1, *a.shape[dim + 1 :])
        extra.append([np.broadcast_to(part, shape) if np.ndim(part) == 0 else part])
    a = np.concatenate([*extra[0], a, *extra[1]], axis=dim) if any(extra) else a
    for _ in range(n):
        after, before = a[(*lead, slice(1, None))], a[(*lead, slice(None, -1))]
        a = np.not_equal(after, before) if a.dtype == bool else after - before
    return a


@composed(np.ediff1d)
def _ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    parts = [np.diff(np.ravel(ary))]
    if to_begin is not None:
        parts.insert(0, np.ravel(as_array(to_begin)))
    if to_end is not None:
        parts.append(np.ravel(as_array(to_end)))
    return np.concatenate(parts)


@expression(np.tril)
def _tril(r: Recorder, m: Any, k: int = 0) -> Expr:
    return F.tril(_matrix(r.traced(m)), diagonal=int(k))


@expression(np.triu)
def _triu(r: Recorder, m: Any, k: int = 0) -> Expr:
    return F.triu(_matrix(r.traced(m)), diagonal=int(k))


def _matrix(m: TracedArray) -> Expr:
    """A matrix, or one each of whose rows is the vector."""
    return m.expr if m.ndim > 1 else m.expr.expand((m.size, m.size))


@expression(np.diag)
def _diag(r: Recorder, v: Any, k: int = 0) -> Expr | ViewResult:
    array = r.traced(v)
    if array.ndim == 2:
        return view_of(
            array, lambda x: F.diagonal(x, offset=int(k), dim1=0, dim2=1), _read_only
        )
    return F.diag_embed(array.expr, offset=int(k), dim1=0, dim2=1)


@composed(np.diagflat)
def _diagflat(v: Any, k: int = 0) -> Any:
    return np.diag(np.ravel(v), k)


@composed(np.meshgrid)
def _meshgrid(*xi: Any, indexing: str = "xy", sparse: bool = False, copy: bool = True) -> Any:
    rank = len(xi)
    order = list(range(rank))
    if indexing == "xy" and rank > 1:
        order[0], order[1] = 1, 0
    shaped = [
        np.reshape(x, [-1 if d == order[i] else 1 for d in range(rank)]) for i, x in enumerate(xi)
    ]
    grids = shaped if sparse else np.broadcast_arrays(*shaped)
    return tuple(np.copy(x) for x in grids) if copy else tuple(grids)


def _answered(function: Any) -> None:
    @composed(function)
    def _(a: Any, b: Any, /, max_work: Any = None) -> bool:
        roots = [x.root for x in (a, b) if isinstance(x, TracedArray)]
        if all(id(root) in root.recorder.places for root in roots) and len({*map(id, roots)}) == 2:
            raise TypeError("argument that is another array of the caller's than the first")
        return bool(function(memories(a), memories(b)))


_answered(np.may_share_memory)
_answered(np.shares_memory)
