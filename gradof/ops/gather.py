"""Gathering along one dim, and scattering into one: each is the adjoint of the other.

>>> F.gather(x, index, dim=1)                   # x[i, index[i, j]]
>>> F.index_select(x, rows, dim=0)              # x[rows]

Torch callers have torch's functions: they share the work among threads, and add what is scattered
ten times as fast as numpy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradof.errors import InferenceError
from gradof.ir.attrs import Attr
from gradof.ir.types import Type
from gradof.ops.expr import Expr, F, Like
from gradof.ops.families import check_dims, known_shape, tensor
from gradof.ops.registry import Family, op
from gradof.tuning import ADDED_ROW, ADDED_SORTED  # by name: exports hold the numbers

Array = NDArray[Any]


def _infer_in_range(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    index = tensor(inputs[0], "the index")
    if index.dtype.kind not in ("int", "uint"):
        raise InferenceError(f"an index of dtype {index.dtype}; integers are due")
    if attrs["error"] not in _OUT_OF_RANGE:
        raise InferenceError(f"an index out of range raises {sorted(_OUT_OF_RANGE)}")
    return (index,)


def zero_division(_: str) -> RuntimeError:
    """What torch raises for a divisor of 0 among integers, on the CPU."""
    return RuntimeError("ZeroDivisionError")


_OUT_OF_RANGE: dict[Any, Callable[[str], Exception]] = {
    "index": IndexError, "runtime": RuntimeError, "divisor": zero_division,
}  # fmt: skip


def _np_in_range(index: Array, *, size: int, wraps: bool, error: str) -> Array:
    if not index.size:
        return index
    if index.dtype == np.int64 and index.view(np.uint64).max() < size:  # a negative one is large
        return index
    low, high = index.min(), index.max()
    if low < (-size if wraps else 0) or high >= size:
        bad = high if high >= size else low
        raise _OUT_OF_RANGE[error](f"index {bad} is out of bounds for dimension with size {size}")
    result: Array = np.where(index < 0, index + size, index) if low < 0 else index
    return result


# numpy counts every negative index from the end, torch's gathers refuse them, and an index into
# flattened dims may be wrong and yet in range: so indices of the caller's are checked on their own.
op("in_range(index; size, wraps, error) -> y", family=Family(_infer_in_range), traits={"view"},
   numpy=_np_in_range, vjp={"index": None},
   doc="The index, in [0, size); with `wraps`, negative entries count from the end. Anything else"
       " raises IndexError (error='index') or RuntimeError (error='runtime', or 'divisor', which"
       " says that a divisor is 0).")


def _infer_index_select(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    x, index = tensor(inputs[0]), tensor(inputs[1], "the index")
    shape, n = known_shape(x), known_shape(index)
    (dim,) = check_dims((attrs["dim"],), len(shape))
    if index.dtype.kind not in ("int", "uint") or len(n) != 1:
        raise InferenceError(f"the index must be integers in one dim, not {index}")
    return (x.with_shape((*shape[:dim], n[0], *shape[dim + 1 :])),)


def _index_select_vjp(g: Expr, x_like: Like, index: Expr, dim: int) -> Expr:
    return F.index_add(x_like.zeros(), index, g, dim=dim)


op("index_select(x, index; dim) -> y", family=Family(_infer_index_select),
   numpy="np.take({x}, {index}, axis={dim})", traits={"selects"},
   torch="torch.index_select({x}, {dim}, {index}.long())",
   vjp={"x": _index_select_vjp, "index": None}, names=["aten.index_select"])


def _infer_index_add(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    x, src = tensor(inputs[0]), tensor(inputs[2])
    (want,) = _infer_index_select(inputs[:2], attrs)
    if src != want:
        raise InferenceError(f"the source is {src}, not {want}")
    return (x,)


def _np_index_add(x: Array, index: Array, src: Array, *, dim: int) -> Array:
    result = x.copy()
    rows, sources = np.moveaxis(result, dim, 0), np.moveaxis(src, dim, 0)
    if src.size < ADDED_ROW * index.size:
        np.add.at(rows, index, sources)
        return result
    for k, row in zip(index.tolist(), sources, strict=True):  # np.add.at takes 10 ns a number
        rows[k] += row
    return result


op("index_add(x, index, src; dim) -> y", family=Family(_infer_index_add), numpy=_np_index_add,
   torch="torch.index_add({x}, {dim}, {index}.long(), {src})",
   vjp={"x": lambda g: g, "index": None,
        "src": lambda g, index, dim: F.index_select(g, index, dim=dim)})


def _infer_gather(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    x, index = tensor(inputs[0]), tensor(inputs[1], "the index")
    shape, n = known_shape(x), known_shape(index)
    (dim,) = check_dims((attrs["dim"],), len(shape))
    if index.dtype.kind not in ("int", "uint") or len(n) != len(shape):
        raise InferenceError(f"the index must be integers of rank {len(shape)}, not {index}")
    if any(a > b for i, (a, b) in enumerate(zip(n, shape, strict=True)) if i != dim):
        raise InferenceError(f"the index {index} is larger than {x} off dim {dim}")
    return (x.with_shape(n),)


def _grid(index: Array, dim: int) -> tuple[Array, ...]:
    grid: list[Array] = list(np.ogrid[tuple(slice(n) for n in index.shape)])
    grid[dim] = index
    return tuple(grid)


def _np_gather(x: Array, index: Array, *, dim: int) -> Array:
    result: Array = x[_grid(index, dim)]
    return result


op("gather(x, index; dim) -> y", family=Family(_infer_gather), numpy=_np_gather,
   traits={"selects"},
   torch="torch.gather({x}, {dim}, {index}.long())",
   vjp={"x": lambda g, x_like, index, dim: F.scatter_add(x_like.zeros(), index, g, dim=dim),
        "index": None})


def _infer_scatter(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    x, index, src = tensor(inputs[0]), tensor(inputs[1], "the index"), tensor(inputs[2])
    _infer_gather(inputs[:2], attrs)
    if src.dtype != x.dtype or src.shape != index.shape:
        raise InferenceError(f"the source is {src}, but the index {index} and the operand {x}")
    return (x,)


def _np_scatter_add(x: Array, index: Array, src: Array, *, dim: int) -> Array:
    counted = ADDED_SORTED < x.size <= 4 * index.size
    if x.dtype not in (np.float32, np.float64) or not counted:
        result = x.copy()
        np.add.at(result, _grid(index, dim), src)
        return result
    steps = [math.prod(x.shape[d + 1 :]) for d in range(x.ndim)]
    places = np.asarray(sum(at * n for at, n in zip(_grid(index, dim), steps, strict=True)))
    sums = np.bincount(places.reshape(-1), src.reshape(-1), x.size)  # faster, and in float64
    total: Array = (x + sums.reshape(x.shape)).astype(x.dtype, copy=False)
    return total


op("scatter_add(x, index, src; dim) -> y", family=Family(_infer_scatter), numpy=_np_scatter_add,
   torch="torch.scatter_add({x}, {dim}, {index}.long(), {src})",
   vjp={"x": lambda g: g, "index": None,
        "src": lambda g, index, dim: F.gather(g, index, dim=dim)})


def _np_scatter(x: Array, index: Array, src: Array, *, dim: int) -> Array:
    result = x.copy()
    result[_grid(index, dim)] = src
    return result


op("scatter(x, index, src; dim) -> y", family=Family(_infer_scatter), numpy=_np_scatter,
   torch="torch.scatter({x}, {dim}, {index}.long(), {src})",
   vjp={"x": lambda g, index, src_like, dim: F.scatter(g, index, src_like.zeros(), dim=dim),
        "index": None, "src": lambda g, index, dim: F.gather(g, index, dim=dim)},
   doc="x with elements overwritten; where an index repeats, eager leaves the choice open.")
