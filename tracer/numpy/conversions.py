"""`float(x)` and `int(x)` of traced arrays, as code that is traced calls them.

    history.append(float(loss))      a number of the graph: each call stores its own
    return float(loss)               and it keeps its gradient
    n = int(x[0])                    a traced number: the trace holds for n where n itself is needed

Python makes a float of whatever `__float__` returns, so the gradient would be lost. What calls it
is noted, and the next run lends the name to one of these, at that call alone (Note [Adopted
arrays]); `isinstance(x, float)` beside it asks Python's own.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradof.ir.types import I64
from gradof.tracer.core.number import LARGEST, TracedNumber, converted
from gradof.tracer.numpy.array import TracedArray


class Conversion:
    """`float` or `int` for the thread that traces; all else is the class's own."""

    def __init__(self, cls: type) -> None:
        self.cls = cls

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """A number of the trace for one; else what the class makes."""
        if len(args) == 1 and not kwargs and type(args[0]) is TracedNumber:
            return converted(self.cls, args[0])
        if len(args) == 1 and not kwargs and type(args[0]) is TracedArray:
            x = args[0]
            if x.size == 1 and x.ndim == 0 and x.dtype.kind in "biuf" and not x.is_constant:
                return as_float(x) if self.cls is float else as_int(x)
        return self.cls(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cls, name)

    def __instancecheck__(self, value: Any) -> bool:
        return isinstance(value, self.cls)

    def __subclasscheck__(self, cls: Any) -> bool:
        return issubclass(cls, self.cls)


def as_float(x: Any) -> Any:
    """One number as Python's own: where it is stored or returned it is a float."""
    recorder = x.recorder
    dtype = x.dtype if x.dtype.kind == "f" else np.dtype(np.float64)
    made = np.copy(x).astype(dtype)[()]  # another object: x itself stays numpy's
    recorder.told.floats[id(made)] = made
    return made


def as_int(x: Any) -> Any:
    """The whole part of one number, which is read where Python needs it; its gradient is zero."""
    if x.dtype.kind == "f":
        if not np.isfinite(x):  # guarded
            return int(math.nan if np.isnan(x) else math.inf)  # Python's own error
        x = np.trunc(x)
    value = int(x.concrete)
    whole = x.astype(np.int64)
    if not -LARGEST < value < LARGEST:
        return int(whole)
    assert whole.expr.dtype == I64
    number: TracedNumber = x.recorder.numbers.element(value, whole.expr.value)
    return number


CONVERSIONS = {cls: Conversion(cls) for cls in (float, int)}
