"""scipy.signal.find_peaks, and functions of scipy.signal and scipy.stats by their Python code.

How many peaks there are is read by Python: a trace is for one number of them. Where they are is
found anew at each call.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.black_box import call as call_black_box
from gradof.tracer.numpy.functions import as_array
from gradof.tracer.scipy.calls import holds_traced, scipy_function
from gradof.tracer.scipy.found import result_of
from gradof.tracer.scipy.twins import through

through(
    "scipy.signal.lombscargle", "scipy.stats.boxcox", "scipy.spatial.procrustes",
)


@scipy_function("scipy.stats.iqr")
def _iqr(
    x: Any, axis: Any = None, rng: Any = (25, 75), scale: Any = 1.0, nan_policy: str = "propagate",
    interpolation: Any = "linear", keepdims: bool = False,
) -> Any:  # fmt: skip
    if nan_policy != "propagate" or isinstance(scale, str):
        raise TypeError("argument nan_policy, or scale that is a text")
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


@scipy_function("scipy.signal.find_peaks", raw=True)
def _find_peaks(original: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    if not holds_traced((x, args, kwargs)):
        return original(x, *args, **kwargs)
    if type(x) is not TracedArray or holds_traced((args, kwargs)):
        raise TypeError("find_peaks of traced values with limits that are traced")
    name = "scipy.signal.find_peaks"

    def places(x: Any) -> Any:
        return np.asarray(original(np.array(x), *args, **kwargs)[0])

    def count(x: Any) -> Any:
        return np.int64(len(places(x)))

    known = int(call_black_box(x.recorder, f"{name}: how many", count, (x,), None, None))
    at = call_black_box(x.recorder, name, places, (x,), None, None)
    assert at.shape == (known,)
    return at, result_of(name, {"peak_heights": np.take(x, at)}, {})
