"""numpy functions whose result has a shape that depends on values.

    x[x > 0], np.nonzero(x), np.extract(mask, x), np.unique(x)

How many elements there are is read as a Python number, which the trace guards: it holds for
calls with as many. Which ones they are stays part of the graph. Sets, mostly of data without a
gradient, are numpy's own at each call.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from gradof.tracer.core.pytree import flatten
from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.black_box import call
from gradof.tracer.numpy.functions import as_array, composed, name_of, refused, traced_all


def _true_places(flat: Any) -> Any:
    """Where a flat mask is true, in order: a stable sort puts these places first."""
    count = int(np.sum(flat))
    return np.argsort(np.logical_not(flat), kind="stable")[:count]


@composed(np.nonzero)
def _nonzero(a: Any) -> Any:
    if a.ndim == 0:
        raise ValueError("Calling nonzero on 0d arrays is not allowed. Use np.atleast_1d first.")
    places = _true_places(np.ravel(a != 0))
    columns = []
    for size in reversed(a.shape):
        columns.append(places % max(size, 1))
        places = places // max(size, 1)
    return tuple(reversed(columns))


@composed(np.flatnonzero)
def _flatnonzero(a: Any) -> Any:
    return _true_places(np.ravel(a != 0))


@composed(np.argwhere)
def _argwhere(a: Any) -> Any:
    if a.ndim == 0:
        return np.zeros((int(a != 0), 0), np.int64)
    return np.stack(np.nonzero(a), axis=1)


@composed(np.extract)
def _extract(condition: Any, arr: Any) -> Any:
    mask, values = traced_all(condition, arr)
    return np.ravel(values)[_true_places(np.ravel(mask != 0))]


@composed(np.compress)
def _compress(condition: Any, a: Any, axis: Any = None) -> Any:
    mask, values = traced_all(condition, a)
    places = _true_places(mask != 0)
    return np.take(np.ravel(values) if axis is None else values, places, axis=axis or 0)


@composed(np.unique)
def _unique(
    ar: Any, return_index: bool = False, return_inverse: bool = False,
    return_counts: bool = False, axis: Any = None, *, equal_nan: bool = True, sorted: bool = True,
) -> Any:  # fmt: skip
    array = as_array(ar)
    values = np.ravel(array) if axis is None else array
    asked = {"return_index": True, "return_inverse": return_inverse, "return_counts": return_counts}
    if return_index or return_inverse or return_counts or axis is not None:
        _, first, *others = run_as_it_is(
            np.unique, array, equal_nan=equal_nan, axis=axis, **asked
        )
        found = np.take(values, first, axis=0 if axis is None else axis)
        more = (*([first] if return_index else []), *others)
        return (found, *more) if more else found
    values = np.sort(values)
    if values.size == 0:
        return values
    new = values[1:] != values[:-1]
    if equal_nan and values.dtype.kind == "f":
        new = np.logical_and(new, np.logical_not(np.isnan(values[:-1])))
    return values[np.concatenate([np.ones(1, bool), new])]


@composed(np.union1d)
def _union1d(ar1: Any, ar2: Any) -> Any:
    return np.unique(np.concatenate([np.ravel(as_array(ar)) for ar in (ar1, ar2)]))


def run_as_it_is(function: Any, *args: Any, **kwargs: Any) -> Any:
    """What numpy's own function gives at each call; asking for its gradient is an error.

    The shapes of what it gives are read as Python numbers.
    """
    leaves = flatten((args, kwargs))[0]
    recorder = next(x for x in leaves if isinstance(x, TracedArray)).recorder
    name = name_of(function)

    def run(args: Any, kwargs: Any) -> Any:
        return function(*args, **kwargs)

    def sizes(args: Any, kwargs: Any) -> Any:
        shapes = map(np.shape, flatten(run(args, kwargs))[0])
        return [np.int64(n) for shape in shapes for n in shape]

    for size in call(recorder, f"{name}: sizes", sizes, (args, kwargs), None, None):
        int(size)
    return call(recorder, name, run, (args, kwargs), None, None)


for _function in (
    np.intersect1d, np.setdiff1d, np.setxor1d, np.unique_all, np.unique_counts, np.unique_inverse,
    np.histogram_bin_edges,
):  # fmt: skip
    composed(_function)(functools.partial(run_as_it_is, _function))


@composed(np.trim_zeros)
def _trim_zeros(filt: Any, trim: str = "fb", axis: Any = None) -> Any:
    if filt.ndim != 1:
        raise TypeError("argument with more than one dim")
    found = filt != 0
    if not np.any(found):
        return filt[:0]
    sides = trim.lower()
    first = int(np.argmax(found)) if "f" in sides else 0
    last = int(np.argmax(found[::-1])) if "b" in sides else 0
    return filt[first : len(filt) - last]


@composed(np.bincount)
def _bincount(x: Any, /, weights: Any = None, minlength: int = 0) -> Any:
    size = int(minlength)
    x = as_array(x)
    x = x.astype(np.intp) if x.dtype == bool else x
    if isinstance(x, TracedArray):
        if x.size and not np.max(x) < size:  # the comparison is the path, where it suffices
            size = int(np.max(x)) + 1
    else:
        size = max(int(x.max(initial=-1)) + 1, size)
    if weights is None:
        result, weights = np.zeros_like(x, shape=(size,), dtype=np.intp), 1
    else:
        result = np.zeros_like(weights, shape=(size,), dtype=np.float64)
    np.add.at(result, x, weights)
    return result


_FIXED_SHAPE = "use functions whose result has a fixed shape, such as np.where or np.sort"
refused(_FIXED_SHAPE, np.unique_values)
