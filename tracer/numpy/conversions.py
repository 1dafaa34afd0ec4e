"""`float(x)`, `np.float64(x)` and their like of traced arrays, as code that is traced calls them.

    history.append(float(loss))      a number of the graph: each call stores its own
    return float(loss)               and it keeps its gradient
    n = int(x[0])                    a traced number: the trace holds for n where n itself is needed
    complex(a, b)                    a complex number of both
    self.dtype(x)                    `x.astype(self.dtype)`, or a number where numpy's is one

Python makes a float of whatever `__float__` returns, and numpy a plain array, so the gradient would
be lost. What calls it is noted, and the next run lends the name to one of these, at that call alone
(`callees`); `isinstance(x, float)` beside it asks Python's own.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradof.ir.types import I64
from gradof.tracer.core.number import LARGEST, TracedNumber, converted
from gradof.tracer.numpy.active import active_recorder
from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.callees import is_type
from gradof.tracer.numpy.creation import replacements
from gradof.tracer.numpy.deferred import memories
from gradof.tracer.numpy.floats import as_float, as_python
from gradof.tracer.numpy.operands import contains_traced


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


class _Complex(Conversion):
    """`complex` of one number or two."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """A complex number of the trace for one; else what the class makes."""
        if kwargs or len(args) not in (1, 2) or not contains_traced(args):
            return self.cls(*args, **kwargs)
        self.cls(*(np.zeros_like(memories(x)) for x in args))  # Python's own errors
        recorder: Any = active_recorder()
        made = np.zeros(1, np.complex128)
        whole = recorder.wrap(made, recorder.constant(made))
        for x, unit in zip(args, (1, 1j), strict=False):
            if np.iscomplexobj(memories(x)):
                whole += np.reshape(x, 1) * unit
            elif unit == 1:
                whole.real = np.reshape(x, 1)
            else:
                whole.imag += np.reshape(x, 1)  # not 1j * x, which has a real part where x is nan
        return as_python(whole[0])


class _Typed(Conversion):
    """A type of numpy's numbers."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Of one traced array, or a nest with some, an array or number of this dtype."""
        if len(args) != 1 or kwargs or not contains_traced(args[0]):
            return self.cls(*args, **kwargs)
        recorder: Any = active_recorder()
        x = recorder.traced(args[0])
        if x.is_constant:
            return self.cls(x.plain())
        shape = self.cls(np.zeros(x.shape, x.dtype)).shape  # float64 of one element is a number
        made = np.reshape(x.astype(np.dtype(self.cls)), shape)
        return made if shape else made[()]


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


CONVERSIONS: dict[type, Conversion] = {
    **{cls: Conversion(cls) for cls in (float, int)}, complex: _Complex(complex),
    **{cls: _Typed(cls) for cls in set(np.sctypeDict.values()) if is_type(cls)},
}  # fmt: skip


class _Calls:
    """What traced code's calls stand for, in packages, too: types, and functions in C."""

    def get(self, function: Any, default: Any = None, /) -> Any:
        """What stands for it; the default for all that is called as it is."""
        if isinstance(function, type) and function in CONVERSIONS:
            return CONVERSIONS[function]
        original, standing = replacements().get(id(function), (None, None))
        return standing if original is function and standing is not None else default


CALLS = _Calls()
