"""Ranges between traced numbers: `np.arange`, `np.r_`, `np.mgrid`, `np.ogrid`.

    t = np.arange(0.0, duration, dt)     start + i * step; the trace holds for as many numbers
    x = np.mgrid[lo:hi:50j]              the ends and the gradient to them
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from gradof.tracer.numpy.active import active_recorder
from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.functions import as_array
from gradof.tracer.numpy.operands import contains_traced


def is_traced_slice(item: Any) -> bool:
    """Whether a slice has a traced bound or step."""
    return isinstance(item, slice) and contains_traced((item.start, item.stop, item.step))


def is_of_floats(values: Any) -> bool:
    """Whether a traced number that is not whole is among these."""
    return any(type(x) is TracedArray and x.dtype.kind == "f" for x in values)


def arange(
    start: Any = None, stop: Any = None, step: Any = None, dtype: Any = None, *,
    device: Any = None, like: Any = None,
) -> Any:  # fmt: skip
    """np.arange of traced numbers: their count is read, and guarded, as is the sign of a step."""
    if stop is None:
        start, stop = 0, start
    start, step = 0 if start is None else start, 1 if step is None else step
    given = [x.dtype if isinstance(x, TracedArray) else x for x in (start, stop, step)]
    target = np.result_type(np.int64, *given) if dtype is None else np.dtype(dtype)
    count = _count(start, stop, step)
    first, second = (as_array(x).astype(target) for x in (start, start + step))
    return first + np.arange(count).astype(target) * (second - first)


def _count(start: Any, stop: Any, step: Any) -> int:
    count: Any = np.ceil(cast(Any, as_array((stop - start) / step)))
    return max(int(count), 0)


def _is_count(step: Any) -> bool:
    """Whether a step is a number of points, as in `0:1:5j`."""
    return isinstance(step, (complex, np.complexfloating))


def _points(step: Any) -> int:
    return int(abs(step))


def ranged(item: slice) -> Any:
    """One range of np.r_ or of a grid with one dim."""
    start = 0 if item.start is None else item.start
    if _is_count(item.step):
        return np.linspace(start, item.stop, _points(item.step))
    return arange(start, item.stop, item.step)


def _side(item: slice) -> Any:
    """One of several ranges: numpy computes these without the second number."""
    start, step = 0 if item.start is None else item.start, 1 if item.step is None else item.step
    if _is_count(step):
        count = _points(step)
        step = (item.stop - start) / float(count - 1) if count > 1 else step.real
    else:
        count = _count(start, item.stop, step)
    return np.arange(count) * step + start


def grid(original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`np.mgrid[key]` and `np.ogrid[key]`, where a bound is traced."""
    grids, key = args
    items = key if isinstance(key, tuple) else (key,)
    if active_recorder() is None or not any(map(is_traced_slice, items)):
        return original(*args, **kwargs)
    if not isinstance(key, tuple):
        return ranged(key)
    sides = np.ix_(*map(_side, items))
    return sides if grids.sparse else np.stack(np.broadcast_arrays(*sides))
