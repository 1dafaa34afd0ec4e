"""numpy functions of order statistics: partitions, medians, quantiles; with nans skipped."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gradof.tracer.numpy.functions import as_array, axes, composed

# --- partitions -----------------------------------------------------------------------------------


@composed(np.partition)
def _partition(a: Any, kth: Any, axis: Any = -1, kind: Any = None, order: Any = None) -> Any:
    """Sorted: numpy leaves the order between the pivots open, and this is one it allows."""
    return np.sort(a, axis, order=order)


@composed(np.argpartition)
def _argpartition(a: Any, kth: Any, axis: Any = -1, kind: Any = None, order: Any = None) -> Any:
    return np.argsort(a, axis, order=order)


@composed(np.lexsort)
def _lexsort(keys: Any, axis: int = -1) -> Any:
    columns = [as_array(k) for k in keys]
    place = np.argsort(columns[0], axis=axis, kind="stable")
    for column in columns[1:]:
        later = np.argsort(np.take_along_axis(column, place, axis), axis=axis, kind="stable")
        place = np.take_along_axis(place, later, axis)
    return place


# --- quantiles ------------------------------------------------------------------------------------

# Hyndman and Fan (1996): the place of a quantile, counted from 0, is
# n q + alpha + q (1 - alpha - beta) - 1, rounded as numpy's is, whose floor is asked for.
_CONTINUOUS = {
    "interpolated_inverted_cdf": (0.0, 1.0), "hazen": (0.5, 0.5), "weibull": (0.0, 0.0),
    "median_unbiased": (1 / 3, 1 / 3), "normal_unbiased": (3 / 8, 3 / 8),
}  # fmt: skip
_ROUNDED: dict[str, Callable[[Any], Any]] = {
    "lower": np.floor, "higher": np.ceil, "midpoint": lambda p: 0.5 * (np.floor(p) + np.ceil(p)),
    "nearest": np.round,
}  # fmt: skip


def _place(q: Any, n: Any, method: str) -> Any:
    """Where between the ordered elements a quantile lies; its fraction says how it is mixed."""
    if method in _ROUNDED:
        return _ROUNDED[method](q * (n - 1))
    if method == "linear":
        return (n - 1) * q
    if method in _CONTINUOUS:
        alpha, beta = _CONTINUOUS[method]
        return n * q + (alpha + q * (1 - alpha - beta)) - 1
    if method == "inverted_cdf":
        return np.ceil(q * n) - 1
    if method == "closest_observation":
        virtual = q * n - 1.5
        lower = np.floor(virtual)
        even = (lower == virtual) & (lower % 2 == 1)
        return np.where(even, lower, lower + 1)
    if method == "averaged_inverted_cdf":
        virtual = q * n
        return np.where(np.floor(virtual) == virtual, virtual - 0.5, np.floor(virtual))
    raise TypeError(f"argument method={method!r}")


def _flattened(a: Any, axis: Any) -> tuple[Any, tuple[int, ...], list[int]]:
    """The reduced dims as the first, the others after it."""
    x = as_array(a)
    if x.dtype.kind == "c":
        raise TypeError("an argument that is complex")
    x = x if x.dtype.kind == "f" else x.astype(float)
    dims = axes(axis, x.ndim)
    rest = [d for d in range(x.ndim) if d not in dims]
    moved = np.transpose(x, [*dims, *rest])
    count = math.prod(x.shape[d] for d in dims)
    return np.reshape(moved, (count, *(x.shape[d] for d in rest))), dims, rest


def _kept(result: Any, q: Any, shape: tuple[int, ...], dims: tuple[int, ...]) -> Any:
    ones = tuple(1 if d in dims else s for d, s in enumerate(shape))
    return np.reshape(result, (*np.shape(q), *ones))


def _mixed(ordered: Any, q: Any, count: Any, method: str) -> Any:
    """Quantiles q of the first `count` elements along the first dim."""
    rest = ordered.ndim - 1
    q = np.reshape(q, (*np.shape(q), *(1,) * rest))
    place = np.clip(_place(q, count, method), 0, count - 1)
    low = np.floor(place)
    weight = place - low
    high = np.minimum(low + 1, count - 1)
    below, above = (_at(ordered, where) for where in (low, high))
    # where both are one, their difference may be nan (inf - inf) although it has no part
    step = above - below
    mixed = np.where(weight >= 0.5, above - step * (1 - weight), below + step * weight)
    return np.where(weight == 0, below, mixed)


def _at(ordered: Any, place: Any) -> Any:
    """Elements at whole places along the first dim; `place` has leading dims of q's."""
    lead = np.ndim(place) - ordered.ndim + 1
    index = np.broadcast_to(place, (*np.shape(place)[:lead], *ordered.shape[1:]))
    count = math.prod(np.shape(place)[:lead])
    index = np.reshape(as_array(index).astype(np.int64), (count, *ordered.shape[1:]))
    picked = np.take_along_axis(ordered, index, axis=0)
    return np.reshape(picked, (*np.shape(place)[:lead], *ordered.shape[1:]))


@composed(np.quantile)
def _quantile(a: Any, q: Any, axis: Any = None, overwrite_input: bool = False,
              method: Any = "linear", keepdims: bool = False, *,
              weights: Any = None) -> Any:  # fmt: skip
    if weights is not None:
        raise TypeError("argument weights")
    moved, dims, _ = _flattened(a, axis)
    result = _mixed(np.sort(moved, axis=0), as_array(q), moved.shape[0], method)
    # nan anywhere makes the quantile nan; sorting alone would put it last
    result = np.where(np.any(np.isnan(moved), axis=0), np.nan, result)
    return _kept(result, q, np.shape(a), dims) if keepdims else result


@composed(np.percentile)
def _percentile(a: Any, q: Any, *args: Any, **kwargs: Any) -> Any:
    return np.quantile(a, np.true_divide(q, 100), *args, **kwargs)


@composed(np.median)
def _median(a: Any, axis: Any = None, *, overwrite_input: bool = False,
            keepdims: bool = False) -> Any:  # fmt: skip
    moved, dims, _ = _flattened(a, axis)
    n = moved.shape[0]
    if n == 0:
        return _of_none(a, moved, dims, keepdims)
    ordered = np.sort(moved, axis=0)  # nans stand last
    middle = ordered[n // 2] if n % 2 else _mean_of(ordered[n // 2 - 1], ordered[n // 2])
    result = np.where(np.isnan(ordered[-1]), np.nan, middle)
    return _kept(result, 0.5, np.shape(a), dims) if keepdims else result


def _of_none(a: Any, moved: Any, dims: tuple[int, ...], keepdims: bool) -> Any:
    result = np.full(moved.shape[1:], np.nan, moved.dtype)
    return _kept(result, 0.5, np.shape(a), dims) if keepdims else result


def _mean_of(low: Any, high: Any) -> Any:
    """Of two elements, as `np.mean` has it, not their quantile: ties depend on the last bit."""
    if low.dtype == np.float16:
        return _mean_of(low.astype(np.float32), high.astype(np.float32)).astype(np.float16)
    return (low + high) / 2


@composed(np.nanquantile)
def _nanquantile(a: Any, q: Any, axis: Any = None, overwrite_input: bool = False,
                 method: Any = "linear", keepdims: Any = False, *,
                 weights: Any = None) -> Any:  # fmt: skip
    if weights is not None:
        raise TypeError("argument weights")
    moved, dims, _ = _flattened(a, axis)
    count = np.sum(~np.isnan(moved), axis=0)
    ordered = np.sort(moved, axis=0)  # nans stand last
    counted = as_array(np.maximum(count, 1)).astype(moved.dtype)
    result = np.where(count == 0, np.nan, _mixed(ordered, as_array(q), counted, method))
    return _kept(result, q, np.shape(a), dims) if keepdims is True else result


@composed(np.nanpercentile)
def _nanpercentile(a: Any, q: Any, *args: Any, **kwargs: Any) -> Any:
    return np.nanquantile(a, np.true_divide(q, 100), *args, **kwargs)


@composed(np.nanmedian)
def _nanmedian(a: Any, axis: Any = None, overwrite_input: bool = False,
               keepdims: Any = False) -> Any:  # fmt: skip
    moved, dims, _ = _flattened(a, axis)
    if moved.shape[0] == 0:
        return _of_none(a, moved, dims, keepdims is True)
    count = np.sum(~np.isnan(moved), axis=0)
    ordered = np.sort(moved, axis=0)
    last = np.maximum(count - 1, 0)
    low, high = (_at(ordered, where) for where in (last // 2, (last + 1) // 2))
    middle = np.where(last % 2 == 0, low, _mean_of(low, high))
    result = np.where(count == 0, np.nan, middle)
    return _kept(result, 0.5, np.shape(a), dims) if keepdims is True else result


