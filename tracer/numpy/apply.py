"""numpy's helpers that call a Python function, or that are called by indexing: vectorize, r_, c_.

numpy runs them in ways that do not reach its protocols (on arrays of objects, through C), so these
stand in their place while a trace runs (see numpy_creation).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradof.errors import UnsupportedOpError
from gradof.tracer.numpy.functions import as_array, axis_of, composed
from gradof.tracer.numpy.grids import is_traced_slice, ranged
from gradof.tracer.numpy.recorder import contains_traced, is_weak
from gradof.tracer.state.source import user_loc

Function = Callable[..., Any]


@composed(np.apply_along_axis)
def _apply_along_axis(func1d: Function, axis: int, arr: Any, *args: Any, **kwargs: Any) -> Any:
    arr = as_array(arr)
    dim = axis_of(axis, arr.ndim)
    moved = np.moveaxis(arr, dim, -1)
    rest = moved.shape[:-1]
    rows = [
        as_array(func1d(moved[place], *args, **kwargs)) for place in np.ndindex(*rest)
    ]  # fmt: skip
    inner = np.shape(rows[0])
    stacked = np.reshape(np.stack(rows), (*rest, *inner))
    order = list(range(len(rest)))
    order[dim:dim] = range(len(rest), len(rest) + len(inner))
    return np.transpose(stacked, order)


@composed(np.apply_over_axes)
def _apply_over_axes(func: Function, a: Any, axes: Any) -> Any:
    for axis in np.atleast_1d(axes).tolist():
        result = func(a, axis)
        a = result if np.ndim(result) == np.ndim(a) else np.expand_dims(result, axis)
    return a


@composed(np.astype)
def _astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
    return x.astype(dtype, copy=copy)


def vectorized(original: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of an `np.vectorize` object; with traced arrays its function runs by element."""
    self, args = args[0], args[1:]
    if not contains_traced((*args, *kwargs.values())):
        return original(self, *args, **kwargs)
    if kwargs or self.excluded:
        raise UnsupportedOpError(
            "np.vectorize of traced arrays with keywords or excluded arguments",
            loc=user_loc(), hint="pass them by position, or write a lambda around the function",
        )
    arrays = [as_array(a) for a in args]
    ranks = [0] * len(arrays)
    if self.signature is not None:
        inputs = self.signature.partition("->")[0].split("),")
        ranks = [len([d for d in part.strip("() ").split(",") if d]) for part in inputs]
    loops = [np.shape(a)[: np.ndim(a) - k] for a, k in zip(arrays, ranks, strict=True)]
    shape = np.broadcast_shapes(*loops)
    wide = [
        np.broadcast_to(a, (*shape, *np.shape(a)[np.ndim(a) - k :]))
        for a, k in zip(arrays, ranks, strict=True)
    ]
    results = [self.pyfunc(*(a[place] for a in wide)) for place in np.ndindex(*shape)]
    if not isinstance(results[0], tuple):
        return _joined(self, results, shape)
    return tuple(_joined(self, list(column), shape) for column in zip(*results, strict=True))


def _joined(self: Any, results: list[Any], shape: tuple[int, ...]) -> Any:
    arrays = [as_array(r) for r in results]
    joined = np.reshape(np.stack(arrays), (*shape, *np.shape(arrays[0])))
    return joined.astype(self.otypes[0]) if self.otypes else joined


class Concatenator:
    """`np.r_` and `np.c_` for traced arrays; everything else they do stays theirs."""

    def __init__(self, original: Any) -> None:
        self.original = original

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)

    def __len__(self) -> int:
        return 0

    def __getitem__(self, key: Any) -> Any:
        items = list(key) if isinstance(key, tuple) else [key]
        if not contains_traced(items) and not any(map(is_traced_slice, items)):
            return self.original[key]
        axis, rank, start = self.original.axis, self.original.ndmin, self.original.trans1d
        if isinstance(items[0], str):
            numbers = items.pop(0)
            if numbers in ("r", "c"):
                raise UnsupportedOpError(
                    f"np.r_[{numbers!r}, ...] makes a matrix, which cannot be traced",
                    loc=user_loc(), hint="use np.concatenate",
                )
            given = [int(n) for n in numbers.split(",")]
            axis, rank, start = given + [axis, rank, start][len(given) :]
        parts = [self._part(item, rank, start) for item in items]
        # Python numbers do not widen the result, as in numpy
        kinds = [i if is_weak(i) else p.dtype for i, p in zip(items, parts, strict=True)]
        return np.concatenate(parts, axis=axis, dtype=np.result_type(*kinds))

    def _part(self, item: Any, rank: int, start: int) -> Any:
        if is_traced_slice(item):
            part = ranged(item)
        else:
            part = self.original[item] if isinstance(item, slice) else as_array(item)
        part = np.reshape(part, 1) if np.ndim(part) == 0 and rank <= 1 else part
        missing = max(rank - np.ndim(part), 0)
        # the part's own dims stand from `start` on, or last
        lead = missing if np.ndim(part) == 0 or start == -1 else min(start, missing)
        return np.reshape(part, (*(1,) * lead, *np.shape(part), *(1,) * (missing - lead)))
