"""numpy's functions of indices: those of traced whole numbers are traced.

    i, j = np.unravel_index(np.argmax(x), x.shape)      # i, j are values of the graph
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradof import tuning
from gradof.tracer.numpy.black_box import call
from gradof.tracer.numpy.functions import as_array, composed, traced_all, whole
from gradof.tracer.numpy.layouts import order_of


@composed(np.ix_)
def _ix(*args: Any) -> Any:
    places = [as_array(a) for a in args]
    if any(np.ndim(p) != 1 for p in places):
        raise ValueError("Cross index must be 1 dimensional")
    places = [np.nonzero(p)[0] if p.dtype == bool else p for p in places]
    rank = len(places)
    return tuple(np.reshape(p, (1,) * i + (-1,) + (1,) * (rank - i - 1)) for i, p in
                 enumerate(places))  # fmt: skip


@composed(np.isin)
def _isin(
    element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *,
    kind: Any = None,
) -> Any:  # fmt: skip
    x, tests = as_array(element), np.ravel(as_array(test_elements))
    if x.size * tests.size > tuning.COMPARED:  # numpy sorts them
        given: Any = ((x, tests, assume_unique, invert), {})
        recorder = traced_all(x, tests)[0].recorder
        return call(recorder, "numpy.isin", lambda args, _: np.isin(*args), given, None, None)
    found = np.any(np.reshape(x, (*np.shape(x), 1)) == tests, axis=-1)
    return np.logical_not(found) if invert else found


@composed(np.unravel_index)
def _unravel_index(indices: Any, shape: Any, order: str = "C") -> Any:
    sizes, order = np.atleast_1d(whole(shape)).tolist(), order_of(order)
    places = as_array(indices)
    _check_inside(places, math.prod(sizes), "index is out of bounds for array with size")
    columns = []
    for size in reversed(sizes) if order == "C" else sizes:
        columns.append(places % max(size, 1))
        places = places // max(size, 1)
    return tuple(reversed(columns) if order == "C" else columns)


@composed(np.ravel_multi_index)
def _ravel_multi_index(
    multi_index: Any, dims: Any, mode: Any = "raise", order: str = "C"
) -> Any:
    sizes, order = np.atleast_1d(whole(dims)).tolist(), order_of(order)
    modes = (mode,) * len(sizes) if isinstance(mode, str) else mode
    step, flat, pairs = 1, 0, list(zip(multi_index, sizes, modes, strict=True))
    for given, size, how in reversed(pairs) if order == "C" else pairs:
        place: Any = as_array(given)
        if how == "raise":
            _check_inside(place, size, "invalid entry in coordinates array")
        else:
            place = place % size if how == "wrap" else np.clip(place, 0, size - 1)
        flat, step = flat + place * step, step * size
    return flat


def _check_inside(places: Any, size: int, message: str) -> None:
    """ValueError where one is not; the trace holds where all are."""
    if np.size(places) and not np.all((places >= 0) & (places < size)):
        raise ValueError(message)
