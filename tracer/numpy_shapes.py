"""numpy functions that rearrange: views (reshape, transpose, ...), joins, splits, padding, products."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradof.ops.expr import Expr, F
from gradof.tracer.numpy_array import View
from gradof.tracer.numpy_functions import axes, axis_of, composed, expression, view_of
from gradof.tracer.numpy_recorder import Recorder, ir_dtype, real

ViewResult = tuple[Expr, View]

# --- views ----------------------------------------------------------------------------------------


@expression(np.reshape)
def _reshape(r: Recorder, a: Any, /, shape: Any = None, order: str = "C", *, copy: Any = None) -> ViewResult:
    if order != "C":
        raise r.unsupported(f"reshape(order={order!r})", "use order='C' and transpose")
    array = r.traced(a)
    target = tuple(array.real.reshape(real(shape)).shape)
    old = array.shape
    return view_of(array, lambda x: x.reshape(target), lambda x, s: s.reshape(old))


@composed(np.ravel)
def _ravel(a: Any, order: str = "C") -> Any:
    return np.reshape(a, -1, order=order)  # type: ignore[call-overload]


@composed(np.squeeze)
def _squeeze(a: Any, axis: Any = None) -> Any:
    return np.reshape(a, np.squeeze(a.real, axis=axis).shape)


@composed(np.expand_dims)
def _expand_dims(a: Any, axis: Any) -> Any:
    return np.reshape(a, np.expand_dims(a.real, axis).shape)


@composed(np.atleast_1d)
def _atleast_1d(*arrays: Any) -> Any:
    shaped = tuple(np.reshape(a, np.atleast_1d(real(a)).shape) for a in arrays)
    return shaped if len(shaped) > 1 else shaped[0]


@composed(np.atleast_2d)
def _atleast_2d(*arrays: Any) -> Any:
    shaped = tuple(np.reshape(a, np.atleast_2d(real(a)).shape) for a in arrays)
    return shaped if len(shaped) > 1 else shaped[0]


@expression(np.transpose)
def _transpose(r: Recorder, a: Any, axes: Any = None) -> ViewResult:
    array = r.traced(a)
    rank = array.ndim
    order = tuple(reversed(range(rank))) if axes is None else tuple(axis_of(d, rank) for d in axes)
    inverse = tuple(order.index(i) for i in range(rank))
    return view_of(array, lambda x: x.permute(order), lambda x, s: s.permute(inverse))


@composed(np.swapaxes)
def _swapaxes(a: Any, axis1: int, axis2: int) -> Any:
    order = list(range(a.ndim))
    order[axis1], order[axis2] = order[axis2], order[axis1]
    return np.transpose(a, order)


@composed(np.moveaxis)
def _moveaxis(a: Any, source: Any, destination: Any) -> Any:
    src = [axis_of(s, a.ndim) for s in (source if isinstance(source, (tuple, list)) else [source])]
    dst = [axis_of(d, a.ndim) for d in
           (destination if isinstance(destination, (tuple, list)) else [destination])]  # fmt: skip
    order = [i for i in range(a.ndim) if i not in src]
    for d, s in sorted(zip(dst, src, strict=True)):
        order.insert(d, s)
    return np.transpose(a, order)


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


@expression(np.broadcast_to)
def _broadcast_to(r: Recorder, array: Any, shape: Any, subok: bool = False) -> Expr:
    target = (shape,) if isinstance(shape, int) else tuple(shape)
    return r.traced(array).expr.expand(target)


@composed(np.broadcast_arrays)
def _broadcast_arrays(*arrays: Any, subok: bool = False) -> Any:
    shape = np.broadcast_shapes(*(np.shape(real(a)) for a in arrays))
    return tuple(np.broadcast_to(a, shape) for a in arrays)


# --- joining and splitting ------------------------------------------------------------------------


@expression(np.concatenate)
def _concatenate(r: Recorder, arrays: Any, /, axis: Any = 0, *, dtype: Any = None, casting: Any = None) -> Expr:
    traced = [r.traced(a) for a in arrays]
    target = ir_dtype(dtype or np.result_type(*(t.dtype for t in traced)))
    parts = [t.expr.cast(target) for t in traced]
    if axis is None:
        parts, axis = [p.reshape((t.size,)) for p, t in zip(parts, traced, strict=True)], 0
    return F.cat(*parts, dim=axis_of(axis, parts[0].rank))


@composed(np.stack)
def _stack(arrays: Any, axis: int = 0) -> Any:
    items = list(arrays)
    rank = np.ndim(real(items[0])) + 1
    return np.concatenate([np.expand_dims(_as_array(a), axis_of(axis, rank)) for a in items],
                          axis=axis_of(axis, rank))  # fmt: skip


def _as_array(a: Any) -> Any:
    return np.asarray(a) if isinstance(a, (bool, int, float)) else a


@composed(np.vstack)
def _vstack(tup: Any) -> Any:
    return np.concatenate([np.atleast_2d(_as_array(a)) for a in tup], axis=0)


@composed(np.hstack)
def _hstack(tup: Any) -> Any:
    parts = [np.atleast_1d(_as_array(a)) for a in tup]
    return np.concatenate(parts, axis=0 if np.ndim(real(parts[0])) == 1 else 1)


@composed(np.column_stack)
def _column_stack(tup: Any) -> Any:
    parts = [_as_array(a) for a in tup]
    return np.concatenate(
        [np.reshape(p, (-1, 1)) if np.ndim(real(p)) < 2 else p for p in parts], axis=1
    )


@composed(np.split)
def _split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    if isinstance(indices_or_sections, int) and ary.shape[axis] % indices_or_sections:
        raise ValueError("array split does not result in an equal division")
    return np.array_split(ary, indices_or_sections, axis)


@composed(np.array_split)
def _array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    moved = axis_of(axis, ary.ndim)
    pieces = np.array_split(np.arange(ary.shape[moved]), indices_or_sections)
    lead = (slice(None),) * moved
    return [ary[(*lead, slice(int(p[0]), int(p[-1]) + 1) if len(p) else slice(0, 0))]
            for p in pieces]  # fmt: skip


@composed(np.tile)
def _tile(A: Any, reps: Any) -> Any:
    times = (reps,) if isinstance(reps, int) else tuple(reps)
    rank = max(A.ndim, len(times))
    x = np.reshape(A, (1,) * (rank - A.ndim) + A.shape)
    times = (1,) * (rank - len(times)) + times
    for axis, n in enumerate(times):
        x = np.concatenate([x] * n, axis=axis) if n else x[(slice(None),) * axis + (slice(0, 0),)]
    return x


@composed(np.repeat)
def _repeat(a: Any, repeats: Any, axis: Any = None) -> Any:
    x = np.ravel(a) if axis is None else a
    axis = 0 if axis is None else axis_of(axis, x.ndim)
    index = np.repeat(np.arange(x.shape[axis]), repeats)
    return np.take(x, index, axis=axis)


@composed(np.roll)
def _roll(a: Any, shift: Any, axis: Any = None) -> Any:
    if axis is None:
        return np.reshape(np.roll(np.ravel(a), shift, 0), a.shape)
    shifts, dims = np.broadcast_arrays(shift, axis)
    for s, d in zip(np.ravel(shifts), np.ravel(dims), strict=True):
        n = a.shape[int(d)]
        a = np.take(a, (np.arange(n) - int(s)) % max(n, 1), axis=int(d))
    return a


@composed(np.rot90)
def _rot90(m: Any, k: int = 1, axes: Any = (0, 1)) -> Any:
    for _ in range(k % 4):
        m = np.flip(np.swapaxes(m, axes[0], axes[1]), axes[0])
    return m


@expression(np.pad)
def _pad(r: Recorder, array: Any, pad_width: Any, mode: str = "constant", constant_values: Any = 0) -> Expr:
    if mode != "constant" or np.ndim(constant_values) != 0:
        raise r.unsupported(f"np.pad(mode={mode!r}) with these values", "use np.concatenate")
    x = r.traced(array).expr
    pads = np.broadcast_to(np.asarray(pad_width), (x.rank, 2))
    value = float(constant_values) if x.dtype.is_float else int(constant_values)
    return F.pad(x, pads=tuple((int(a), int(b)) for a, b in pads), value=value)


@composed(np.diff)
def _diff(a: Any, n: int = 1, axis: int = -1) -> Any:
    for _ in range(n):
        lead = (slice(None),) * axis_of(axis, a.ndim)
        a = a[(*lead, slice(1, None))] - a[(*lead, slice(None, -1))]
    return a


@composed(np.append)
def _append(arr: Any, values: Any, axis: Any = None) -> Any:
    if axis is None:
        return np.concatenate([np.ravel(arr), np.ravel(_as_array(values))])
    return np.concatenate([arr, values], axis=axis)


@expression(np.tril)
def _tril(r: Recorder, m: Any, k: int = 0) -> Expr:
    return F.tril(r.traced(m).expr, diagonal=int(k))


@expression(np.triu)
def _triu(r: Recorder, m: Any, k: int = 0) -> Expr:
    return F.triu(r.traced(m).expr, diagonal=int(k))


@composed(np.diagonal)
def _diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    x = np.moveaxis(a, (axis1, axis2), (0, 1))
    rows, columns = np.nonzero(np.eye(x.shape[0], x.shape[1], k=offset, dtype=bool))
    return np.moveaxis(x[rows, columns], 0, -1)


@composed(np.diag)
def _diag(v: Any, k: int = 0) -> Any:
    if v.ndim == 2:
        return np.diagonal(v, k)
    n = v.shape[0] + abs(k)
    result = np.zeros_like(v, shape=(n, n))
    rows, columns = np.nonzero(np.eye(n, k=k, dtype=bool))
    result[rows, columns] = v
    return result


@composed(np.trace)
def _trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    return np.sum(np.diagonal(a, offset, axis1, axis2), axis=-1)


@composed(np.meshgrid)
def _meshgrid(*xi: Any, indexing: str = "xy", sparse: bool = False, copy: bool = True) -> Any:
    rank = len(xi)
    order = list(range(rank))
    if indexing == "xy" and rank > 1:
        order[0], order[1] = 1, 0
    shaped = [
        np.reshape(x, [-1 if d == order[i] else 1 for d in range(rank)]) for i, x in enumerate(xi)
    ]
    return tuple(shaped) if sparse else tuple(np.broadcast_arrays(*shaped))
