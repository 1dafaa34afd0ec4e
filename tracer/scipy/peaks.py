"""scipy.signal.find_peaks, and functions of scipy.signal and scipy.stats by their Python code.

How many peaks there are is read by Python: a trace is for one number of them. Where they are is
found anew at each call.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.black_box import call as call_black_box
from gradof.tracer.numpy.functions import as_array
from gradof.tracer.scipy.calls import holds_traced, original_of, scipy_function
from gradof.tracer.scipy.twins import through

through(
    "scipy.signal.lombscargle", "scipy.stats.boxcox", "scipy.spatial.procrustes",
)


_SCALES = {"normal": 1.3489795003921634}  # the range of the standard normal distribution


@scipy_function("scipy.stats.iqr")
def _iqr(
    x: Any, axis: Any = None, rng: Any = (25, 75), scale: Any = 1.0, nan_policy: str = "propagate",
    interpolation: Any = "linear", keepdims: bool = False,
) -> Any:  # fmt: skip
    if nan_policy != "propagate":
        raise TypeError("argument nan_policy")
    scale = _SCALES.get(scale.lower(), scale) if isinstance(scale, str) else scale
    percentile: Any = np.percentile
    low, high = (percentile(x, q, axis=axis, method=interpolation, keepdims=keepdims)
                 for q in sorted(rng))  # fmt: skip
    return (high - low) / scale


@scipy_function("scipy.stats.boxcox_llf")
def _boxcox_llf(
    lmb: Any, data: Any, *, axis: int = 0, keepdims: bool = False, nan_policy: str = "propagate"
) -> Any:
    if nan_policy != "propagate" or keepdims:
        raise TypeError("argument nan_policy or keepdims")
    from scipy.special import boxcox

    data = as_array(data) * 1.0
    # whose variance does not depend on where the transform is zero
    variance = np.var(boxcox(data, lmb), axis=axis)
    logs = np.sum(np.log(data), axis=axis)
    return (lmb - 1.0) * logs - 0.5 * data.shape[axis] * np.log(variance)


_NAME = "scipy.signal.find_peaks"
_PLACES = ("plateau_sizes", "left_edges", "right_edges", "left_bases", "right_bases")


@scipy_function(_NAME, raw=True)
def _find_peaks(original: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    if not holds_traced((x, args, kwargs)):
        return original(x, *args, **kwargs)
    if type(x) is not TracedArray or holds_traced((args, kwargs)):
        raise TypeError("find_peaks of traced values with limits that are traced")

    def places(x: Any) -> Any:
        at, found = original(np.array(x), *args, **kwargs)
        rows = [at, *(found[name] for name in _PLACES if name in found)]
        if "widths" in found:
            rows += [np.floor(found["left_ips"]), np.ceil(found["right_ips"])]
        return np.stack(rows).astype(np.intp)

    def count(x: Any) -> Any:
        return np.int64(places(x).shape[1])

    known = int(call_black_box(x.recorder, f"{_NAME}: how many", count, (x,), None, None))
    rows = call_black_box(x.recorder, _NAME, places, (x,), None, None)
    assert rows.shape[1] == known
    bound = inspect.signature(original).bind(x, *args, **kwargs)
    bound.apply_defaults()
    return rows[0], _properties(x.astype(np.float64), rows, bound.arguments)


def _properties(x: Any, rows: Any, asked: dict[str, Any]) -> dict[str, Any]:
    """What find_peaks tells of the peaks, by the limits that it is given, as in its notes."""
    at, *places = rows
    found: dict[str, Any] = {}
    if asked["plateau_size"] is not None:
        found |= zip(_PLACES[:3], places[:3], strict=True)
        places = places[3:]
    if asked["height"] is not None:
        found["peak_heights"] = x[at]
    if asked["threshold"] is not None:
        found["left_thresholds"] = x[at] - x[at - 1]
        found["right_thresholds"] = x[at] - x[at + 1]
    if asked["prominence"] is None and asked["width"] is None:
        return found
    left, right = places[:2]
    prominences = x[at] - np.maximum(x[left], x[right])
    found |= {"prominences": prominences, "left_bases": left, "right_bases": right}
    if asked["width"] is not None:
        found |= _widths(x, at, prominences, places[2:], asked["rel_height"])
    return found


def _widths(x: Any, at: Any, prominences: Any, places: Any, rel_height: Any) -> dict[str, Any]:
    """Where lines between two samples, left and right of the peaks, come to their heights."""
    heights = x[at] - prominences * rel_height
    left, right = places
    first = left + _crossing(x, left, 1, heights)
    last = right - _crossing(x, right, -1, heights)
    return {"widths": last - first, "width_heights": heights, "left_ips": first, "right_ips": last}


def _crossing(x: Any, at: Any, step: int, heights: Any) -> Any:
    """How far from a place to the next a line between the two comes to a height, if it does."""
    crosses = x[at] < heights
    inside = np.where(crosses, at, at - step)  # no division by zero where it does not
    rise = x[inside + step] - x[inside]
    return np.where(crosses, (heights - x[at]) / np.where(crosses, rise, 1.0), 0.0)


def _indices(peaks: Any) -> Any:
    """Places of peaks; an empty list is one of none."""
    peaks = as_array(peaks)
    return peaks if peaks.size else np.zeros(0, np.intp)


@scipy_function("scipy.signal.peak_prominences")
def _peak_prominences(x: Any, peaks: Any, wlen: Any = None) -> Any:
    x, peaks = as_array(x).astype(np.float64), _indices(peaks)
    original = original_of("scipy.signal.peak_prominences")

    def bases(x: Any, peaks: Any) -> Any:
        return np.stack(original(np.array(x), peaks, wlen)[1:])

    left, right = _places("scipy.signal.peak_prominences", bases, x, peaks)
    return x[peaks] - np.maximum(x[left], x[right]), left, right


@scipy_function("scipy.signal.peak_widths")
def _peak_widths(
    x: Any, peaks: Any, rel_height: Any = 0.5, prominence_data: Any = None, wlen: Any = None
) -> Any:
    x, peaks = as_array(x).astype(np.float64), _indices(peaks)
    if prominence_data is None:
        prominence_data = _peak_prominences(x, peaks, wlen)
    original = original_of("scipy.signal.peak_widths")

    def sides(x: Any, peaks: Any, rel_height: Any, *data: Any) -> Any:
        left, right = original(np.array(x), peaks, float(rel_height), data)[2:]
        return np.stack([np.floor(left), np.ceil(right)]).astype(np.intp)

    places = _places("scipy.signal.peak_widths", sides, x, peaks, rel_height, *prominence_data)
    return tuple(_widths(x, peaks, prominence_data[0], places, rel_height).values())


def _places(name: str, function: Any, *given: Any) -> Any:
    """Two rows of indices that scipy finds for the peaks of a signal."""
    recorder = next(v.recorder for v in given if type(v) is TracedArray)
    return call_black_box(recorder, name, function, given, None, None)
