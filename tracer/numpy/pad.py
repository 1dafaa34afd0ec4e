"""np.pad in all its modes, and windows.

Modes that repeat elements are gathers. Those that are linear in the array (odd reflection, means,
ramps) multiply by what numpy makes of unit vectors.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradof.ops.expr import F
from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.functions import as_array, axis_of, composed, whole

_GATHERS = ("edge", "wrap", "reflect", "symmetric")
_STATISTICS: dict[str, Any] = {
    "maximum": np.max, "minimum": np.min, "median": np.median, "mean": np.mean,
}  # fmt: skip


@composed(np.pad)
def _pad(array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Any:
    array = as_array(array)
    widths = _widths(whole(pad_width), array.ndim)
    if callable(mode):
        raise TypeError("argument mode that is a function")
    if mode in ("constant", "empty"):  # what "empty" leaves open is zero, the same at every call
        return _pad_constant(array, widths, kwargs.get("constant_values", 0))
    for dim, (before, after) in enumerate(widths):
        if before or after:
            array = _along(array, dim, int(before), int(after), mode, kwargs)
    return np.copy(array)


def _widths(pad_width: Any, rank: int) -> Any:
    if isinstance(pad_width, dict):
        pairs: list[Any] = [(0, 0)] * rank
        for axis, width in whole(list(pad_width.items())):
            pairs[axis_of(axis, rank)] = (width, width) if np.ndim(width) == 0 else width
        pad_width = pairs
    return np.broadcast_to(np.asarray(pad_width), (rank, 2))


def _along(array: Any, dim: int, before: int, after: int, mode: str, kwargs: Any) -> Any:
    n = array.shape[dim]
    odd = kwargs.get("reflect_type", "even") == "odd"
    if mode in _GATHERS and not odd:
        places = np.pad(np.arange(n), (before, after), mode=mode)  # type: ignore[call-overload]
        return np.take(array, places.tolist(), axis=dim)
    if mode in ("reflect", "symmetric"):
        units = np.pad(np.eye(n), ((before, after), (0, 0)), mode, **kwargs)  # type: ignore[call-overload]
        padded = np.tensordot(units.astype(array.dtype), array, axes=([1], [dim]))
        return np.moveaxis(padded, 0, dim)
    ends = [array[(*(slice(None),) * dim, place)] for place in (slice(0, 1), slice(n - 1, n))]
    if mode == "linear_ramp":
        targets = np.broadcast_to(as_array(kwargs.get("end_values", 0)), (array.ndim, 2))[dim]
        parts = [_ramp(ends[i], targets[i], w, dim) for i, w in enumerate((before, after))]
        parts[0] = np.flip(parts[0], dim)
    else:
        lengths = _lengths(kwargs.get("stat_length"), array.ndim)[dim]
        parts = []
        for i, width in enumerate((before, after)):
            k = n if lengths[i] is None else min(int(lengths[i]), n)
            chunk = array[(*(slice(None),) * dim, slice(0, k) if i == 0 else slice(n - k, n))]
            value = _STATISTICS[mode](chunk, axis=dim, keepdims=True)
            parts.append(np.repeat(value, width, axis=dim))
    return np.concatenate([parts[0], array, parts[1]], axis=dim).astype(array.dtype)


def _ramp(edge: Any, target: Any, width: int, dim: int) -> Any:
    """From the edge, left out, to the target."""
    shape = [-1 if d == dim else 1 for d in range(edge.ndim)]
    weight = np.reshape(np.arange(1, width + 1) / max(width, 1), shape).astype(edge.dtype)
    return edge + (target - edge) * weight


def _lengths(stat_length: Any, rank: int) -> Any:
    given = np.asarray([None]) if stat_length is None else np.asarray(stat_length)
    return np.broadcast_to(given, (rank, 2))


def _pad_constant(array: Any, widths: Any, values: Any) -> Any:
    if isinstance(array, TracedArray) and type(values) in (int, float) and abs(values) < 2**53:
        pads = tuple((int(before), int(after)) for before, after in widths)
        padded = array.recorder.numpy(np.pad, array, pads, constant_values=values)
        expr = F.pad(array.expr, pads=pads, value=float(values))
        return array.recorder.wrap(padded, expr)
    fill = np.broadcast_to(as_array(values), (array.ndim, 2))
    for dim, (before, after) in enumerate(widths):
        parts = [array]
        for place, width in ((0, before), (1, after)):
            shape = [*array.shape[:dim], int(width), *array.shape[dim + 1 :]]
            block = np.broadcast_to(fill[dim, place], shape).astype(array.dtype)
            if width:
                parts.insert(0 if place == 0 else len(parts), block)
        array = np.concatenate(parts, axis=dim) if len(parts) > 1 else array
    return np.copy(array)
