"""numpy functions that join arrays and take them apart."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradof.ops.expr import Expr, F
from gradof.tracer.numpy.functions import as_array, axis_of, composed, expression, whole
from gradof.tracer.numpy.recorder import Recorder


@expression(np.concatenate)
def _concatenate(
    r: Recorder, arrays: Any, /, axis: Any = 0, *, dtype: Any = None, casting: Any = None
) -> Expr:
    traced = [r.traced(as_array(a)) for a in arrays]
    target = r.ir_dtype(dtype or np.result_type(*(t.dtype for t in traced)))
    parts = [t.expr.cast(target) for t in traced]
    if axis is None:
        parts, axis = [p.reshape((t.size,)) for p, t in zip(parts, traced, strict=True)], 0
    return F.cat(*parts, dim=axis_of(axis, parts[0].rank))


@expression(np.stack)
def _stack(
    r: Recorder, arrays: Any, axis: int = 0, *, dtype: Any = None, casting: Any = None
) -> Expr:
    traced = [r.traced(as_array(a)) for a in arrays]
    target = r.ir_dtype(dtype or np.result_type(*(t.dtype for t in traced)))
    shape = traced[0].shape
    dim = axis_of(axis, len(shape) + 1)
    parts = [t.expr.reshape((*shape[:dim], 1, *shape[dim:])).cast(target) for t in traced]
    return F.cat(*parts, dim=dim)


@composed(np.unstack)
def _unstack(x: Any, /, *, axis: int = 0) -> Any:
    moved = np.moveaxis(x, axis, 0)
    return tuple(moved[i] for i in range(moved.shape[0]))


@composed(np.vstack)
def _vstack(tup: Any, *, dtype: Any = None, casting: Any = None) -> Any:
    return np.concatenate([np.atleast_2d(as_array(a)) for a in tup], axis=0, dtype=dtype)


@composed(np.hstack)
def _hstack(tup: Any, *, dtype: Any = None, casting: Any = None) -> Any:
    parts = [np.atleast_1d(as_array(a)) for a in tup]
    return np.concatenate(parts, axis=0 if np.ndim(parts[0]) == 1 else 1, dtype=dtype)


@composed(np.dstack)
def _dstack(tup: Any) -> Any:
    return np.concatenate([np.atleast_3d(as_array(a)) for a in tup], axis=2)


@composed(np.column_stack)
def _column_stack(tup: Any) -> Any:
    parts = [as_array(a) for a in tup]
    return np.concatenate(
        [np.reshape(p, (-1, 1)) if np.ndim(p) < 2 else p for p in parts], axis=1
    )


@composed(np.block)
def _block(arrays: Any) -> Any:
    rank = max(_block_depth(arrays), _block_rank(arrays))

    def join(nest: Any, axis: int) -> Any:
        if isinstance(nest, list):
            return np.concatenate([join(n, axis + 1) for n in nest], axis=axis)
        part = as_array(nest)
        return np.reshape(part, (1,) * (rank - np.ndim(part)) + np.shape(part))

    return join(arrays, rank - _block_depth(arrays))


def _block_depth(nest: Any) -> int:
    return 1 + _block_depth(nest[0]) if isinstance(nest, list) else 0


def _block_rank(nest: Any) -> int:
    return max(map(_block_rank, nest)) if isinstance(nest, list) else int(np.ndim(nest))


@composed(np.append)
def _append(arr: Any, values: Any, axis: Any = None) -> Any:
    if axis is None:
        return np.concatenate([np.ravel(as_array(arr)), np.ravel(as_array(values))])
    return np.concatenate([arr, values], axis=axis)


@composed(np.split)
def _split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    return np.array_split(ary, indices_or_sections, axis)


@composed(np.vsplit)
def _vsplit(ary: Any, indices_or_sections: Any) -> Any:
    return np.array_split(ary, indices_or_sections, 0)


@composed(np.hsplit)
def _hsplit(ary: Any, indices_or_sections: Any) -> Any:
    return np.array_split(ary, indices_or_sections, 0 if ary.ndim == 1 else 1)


@composed(np.dsplit)
def _dsplit(ary: Any, indices_or_sections: Any) -> Any:
    return np.array_split(ary, indices_or_sections, 2)


@composed(np.array_split)
def _array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    dim = axis_of(axis, ary.ndim)
    pieces = np.array_split(np.arange(ary.shape[dim]), whole(indices_or_sections))
    lead = (slice(None),) * dim
    return [ary[(*lead, slice(int(p[0]), int(p[-1]) + 1) if len(p) else slice(0, 0))]
            for p in pieces]  # fmt: skip


@composed(np.delete)
def _delete(arr: Any, obj: Any, axis: Any = None) -> Any:
    x = np.ravel(arr) if axis is None else arr
    dim = 0 if axis is None else axis_of(axis, x.ndim)
    kept = np.delete(np.arange(x.shape[dim]), whole(obj))
    return np.take(x, kept, axis=dim)


@composed(np.insert)
def _insert(arr: Any, obj: Any, values: Any, axis: Any = None) -> Any:
    x = np.ravel(as_array(arr)) if axis is None else arr
    dim = 0 if axis is None else axis_of(axis, x.ndim)
    n, obj = x.shape[dim], whole(obj)
    one = not isinstance(obj, slice) and np.size(obj) == 1
    count = len(np.insert(np.arange(n), obj, -1)) - n
    new = as_array(values).astype(x.dtype)
    if one:  # the new elements' own dim is the first of values, or missing
        new = np.reshape(new, (1,) * (x.ndim - np.ndim(new)) + np.shape(new))
        new = np.moveaxis(new, 0, dim) if np.ndim(obj) == 0 else new
        count = np.shape(new)[dim]
    places = [int(np.ravel(obj)[0])] * count if one else obj
    source = np.insert(np.arange(n), places, n + np.arange(count))
    new = np.broadcast_to(new, (*x.shape[:dim], count, *x.shape[dim + 1 :]))
    return np.take(np.concatenate([x, new], axis=dim), source.tolist(), axis=dim)

