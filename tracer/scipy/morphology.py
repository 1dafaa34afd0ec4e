"""scipy.ndimage: parts of an image by thresholds, whole numbers and truths without a gradient.

    labels, count = ndimage.label(x > 0.5)             # a trace is for one number of parts
    np.sum(ndimage.sum_labels(x, labels, range(1, count + 1)))
    ndimage.distance_transform_edt(x > 0.5)            # steps, of x: no gradient

How many parts there are is read by Python. Where they are is found anew at each call.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from gradof.tracer.numpy.active import active_recorder
from gradof.tracer.numpy.black_box import call as call_black_box
from gradof.tracer.scipy.calls import holds_traced, original_of, scipy_function

_N = "scipy.ndimage"


def _found(name: str, args: Any, kwargs: dict[str, Any], like: Any) -> Any:
    """What scipy's function gives now, and at each call; `like` makes arrays of it."""
    recorder = active_recorder()
    assert recorder is not None
    original = original_of(name)

    def run(args: Any, kwargs: Any) -> Any:
        return like(original(*args, **kwargs))

    return call_black_box(recorder, name, run, (args, kwargs), None, None)


@scipy_function(f"{_N}.label", raw=True)
def _label(original: Any, *args: Any, **kwargs: Any) -> Any:
    if not holds_traced((args, kwargs)):
        return original(*args, **kwargs)
    given = inspect.signature(original).bind(*args, **kwargs).arguments
    if isinstance(given.get("output"), np.ndarray):
        raise TypeError("label of traced values with argument output that is an array")
    name = f"{_N}.label"
    labels, count = _found(name, args, kwargs, lambda found: (found[0], np.int64(found[1])))
    return labels, int(count)


@scipy_function(f"{_N}.find_objects", raw=True)
def _find_objects(original: Any, input: Any, max_label: Any = 0) -> Any:
    if not holds_traced((input, max_label)):
        return original(input, max_label)
    if holds_traced(max_label):
        max_label = int(max_label)
    rank = np.ndim(input)

    def ends(found: list[Any]) -> Any:
        missing = ((-1, -1),) * rank
        rows = [missing if f is None else [(s.start, s.stop) for s in f] for f in found]
        return np.array(rows, np.int64).reshape(len(found), rank, 2)

    rows = _found(f"{_N}.find_objects", (input, max_label), {}, ends)
    known = [[(int(a), int(b)) for a, b in row] for row in rows]
    return [None if row[0][0] < 0 else tuple(slice(a, b) for a, b in row) for row in known]


def _of_steps(name: str) -> None:
    """Whole numbers, which `calls` has recorded, or distances that follow from places alone."""

    @scipy_function(f"{_N}.{name}")
    def steps(*args: Any, **kwargs: Any) -> Any:
        given = inspect.signature(original_of(f"{_N}.{name}")).bind(*args, **kwargs).arguments
        if holds_traced(given.get("sampling")) or given.get("distances") is not None:
            raise TypeError("argument sampling that is traced, or distances")
        return _found(f"{_N}.{name}", args, kwargs, lambda found: found)


for _name in (
    "binary_erosion", "binary_dilation", "binary_opening", "binary_closing", "binary_fill_holes",
    "binary_propagation", "binary_hit_or_miss", "distance_transform_edt", "distance_transform_bf",
    "distance_transform_cdt",
):  # fmt: skip
    _of_steps(_name)
