"""scipy.ndimage: measurements of labelled parts of an array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.functions import as_array, squared_size
from gradof.tracer.numpy.reductions import safe_root
from gradof.tracer.scipy.calls import scipy_function


def _parts(x: Any, labels: Any, index: Any) -> list[Any]:
    """The places of each part; one part without an index."""
    if isinstance(index, TracedArray):
        raise TypeError("argument index that is traced")
    if isinstance(labels, TracedArray):  # how many places a part has is read by Python
        flat: Any = np.ravel(np.broadcast_to(labels, x.shape))
        at = [flat > 0] if index is None else [flat == i for i in np.ravel(index)]
        return [np.nonzero(inside)[0] for inside in at]
    if labels is None:
        return [np.arange(x.size)]
    labels = np.broadcast_to(np.asarray(labels), x.shape).reshape(-1)
    if index is None:
        return [np.flatnonzero(labels > 0)]
    return [np.flatnonzero(labels == i) for i in np.asarray(index).reshape(-1)]


def _measure(names: tuple[str, ...], function: Callable[[Any], Any]) -> None:
    @scipy_function(*(f"scipy.ndimage.{name}" for name in names[:1]))
    def measured(input: Any, labels: Any = None, index: Any = None) -> Any:
        x = as_array(input)
        flat = np.ravel(x)
        values = [function(np.take(flat, places)) for places in _parts(x, labels, index)]
        if labels is None or index is None:
            return values[0]
        return np.reshape(np.stack(values), np.shape(index))


def _variance(x: Any) -> Any:
    return np.mean(squared_size(x - np.mean(x)))


_measure(("sum_labels",), np.sum)
_measure(("mean",), np.mean)
_measure(("variance",), _variance)
_measure(("standard_deviation",), lambda x: safe_root(_variance(x)))
_measure(("minimum",), np.min)
_measure(("maximum",), np.max)
_measure(("median",), np.median)


@scipy_function("scipy.ndimage.center_of_mass")
def _center_of_mass(input: Any, labels: Any = None, index: Any = None) -> Any:
    x = as_array(input)
    flat = np.ravel(x)
    grids = [g.reshape(-1) for g in np.indices(x.shape).astype(np.float64)]
    centers = []
    for places in _parts(x, labels, index):
        mass = np.take(flat, places)
        centers.append(tuple(np.sum(mass * np.take(g, places)) / np.sum(mass) for g in grids))
    return centers[0] if labels is None or index is None or np.ndim(index) == 0 else centers
