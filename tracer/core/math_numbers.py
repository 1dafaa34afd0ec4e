"""Python's `math` on traced numbers: recorded, where the graph has the function.

    scale = 1 / math.sqrt(self.step)       %0 : f64[] = sqrt(cast[f64](%step))

While a trace runs, the functions of the module `math` look for traced numbers; other arguments get
what they always got, in every thread. A function that was imported by its own name is the original,
for which the number is pinned (Note [Pinned numbers] in `tracer.number`).
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from gradof.ir.types import F64
from gradof.ops.expr import Expr, F
from gradof.tracer.core.number import TracedNumber
from gradof.tracer.core.size_numbers import as_traced, is_positive
from gradof.tracer.core.stand_ins import StandIns

# Where the argument has to be for the function to be what Python's is, rather than an error.
_Domain = Callable[[Expr], Expr]
_ANY: _Domain | None = None
_FUNCTIONS: dict[str, tuple[str, _Domain | None]] = {
    "sqrt": ("sqrt", lambda x: x >= 0), "log": ("log", lambda x: x > 0),
    "log2": ("log2", lambda x: x > 0), "log10": ("log10", lambda x: x > 0),
    "log1p": ("log1p", lambda x: x > -1), "exp": ("exp", lambda x: x < 700),
    "expm1": ("expm1", lambda x: x < 700), "sin": ("sin", _ANY), "cos": ("cos", _ANY),
    "tan": ("tan", _ANY), "tanh": ("tanh", _ANY), "atan": ("atan", _ANY),
    "erf": ("erf", _ANY), "fabs": ("abs", _ANY), "erfc": ("erfc", _ANY), "cbrt": ("cbrt", _ANY),
    "exp2": ("exp2", lambda x: x < 1000), "asinh": ("asinh", _ANY),
    "sinh": ("sinh", lambda x: F.abs(x) < 700), "cosh": ("cosh", lambda x: F.abs(x) < 700),
    "asin": ("asin", lambda x: F.abs(x) <= 1), "acos": ("acos", lambda x: F.abs(x) <= 1),
    "acosh": ("acosh", lambda x: x >= 1), "atanh": ("atanh", lambda x: F.abs(x) < 1),
    "lgamma": ("lgamma", lambda x: x > 0),
}  # fmt: skip

_FROM_ZERO = ("sqrt", "log", "log2", "log10", "log1p")  # of any number above it


def _of_both(name: str) -> Callable[[Any, Any], Any]:
    """A function of two floats that has a value for any."""

    def function(a: Any, b: Any) -> TracedNumber:
        traced = [x for x in (a, b) if type(x) is TracedNumber]
        numbers = traced[0].numbers
        x, y = (v.cast(F64) if type(v) is TracedNumber else v for v in (a, b))
        expr = numbers.emit(lambda: getattr(F, name)(x, y))
        leaves = frozenset[Any]().union(*(v.leaves for v in traced))
        value = getattr(math, name)(_value(a), _value(b))
        return TracedNumber(numbers, value, expr, leaves, any(v.read for v in traced))

    return function


_OF_TWO = {"pow": operator.pow, "atan2": _of_both("atan2"), "hypot": _of_both("hypot")}
_NAMES = (*_FUNCTIONS, *_OF_TWO)
_UFUNCS = {np.abs: "fabs", np.arctan: "atan"} | {
    getattr(np, name): name for name in _FUNCTIONS if hasattr(np, name)
}  # fmt: skip
_WHOLE = {np.floor: (math.floor, "floor"), np.ceil: (math.ceil, "ceil"),
          np.trunc: (math.trunc, "trunc"), np.rint: (round, "round")}  # fmt: skip
_UFUNCS_OF_TWO: dict[Any, Callable[[Any, Any], Any]] = {
    np.minimum: min, np.maximum: max, np.add: operator.add, np.subtract: operator.sub,
    np.multiply: operator.mul, np.true_divide: operator.truediv, np.power: operator.pow,
}  # fmt: skip


def traced_math() -> AbstractContextManager[None]:
    """Within it, `math.sqrt(n)` of a traced number is one."""
    return _STAND_INS.placed()


def _wrapped(name: str) -> Any:
    original: Any = getattr(math, name)

    @functools.wraps(original)
    def function(*args: Any) -> Any:
        args = tuple(map(as_traced, args))
        if len(args) == 1 and type(args[0]) is TracedNumber:
            return _recorded(name, original, args[0])
        if name in _OF_TWO and len(args) == 2 and any(type(a) is TracedNumber for a in args):
            original(*map(_value, args))  # raises what Python raises
            return _OF_TWO[name](*(a * 1.0 for a in args))
        return original(*args)

    return function


def _recorded(name: str, original: Callable[[float], float], number: TracedNumber) -> TracedNumber:
    op, domain = _FUNCTIONS[name]
    value = original(number.value)  # raises what Python raises
    numbers = number.numbers
    real = number.cast(F64)
    if domain is not None and not (name in _FROM_ZERO and is_positive(real.value)):
        numbers.guard(lambda: domain(real), True)
    expr = numbers.emit(lambda: getattr(F, op)(real))
    return TracedNumber(numbers, value, expr, number.leaves, number.read)


_WRAPPED = {name: _wrapped(name) for name in _NAMES}
_STAND_INS = StandIns(math, _WRAPPED)
# What code calls by a name of its own, and what is lent there.
IMPORTED = {function.__wrapped__: function for function in _WRAPPED.values()}


def ufunc_of_numbers(ufunc: Any, method: str, inputs: Any, kwargs: Any) -> Any:
    """A ufunc of traced and plain numbers alone: a float of the graph, or pinned."""
    if method == "__call__" and not kwargs:
        found = _float_of(ufunc, inputs)
        if found is not NotImplemented:
            return found
    given = [x.pin() if type(x) is TracedNumber else x for x in inputs]
    return getattr(ufunc, method)(*given, **kwargs)


def _float_of(ufunc: Any, inputs: Any) -> Any:
    if any(type(x) not in (TracedNumber, int, float, np.float64) for x in inputs):
        return NotImplemented
    if ufunc in _UFUNCS_OF_TWO and any(isinstance(x, float) for x in inputs):
        a, b = (operator.mul(x, 1.0) if type(x) is TracedNumber else float(x) for x in inputs)
        is_defined = ufunc is not np.true_divide or b != 0  # numpy gives infinity
        is_defined &= ufunc is not np.power or a > 0
        return _numpys(_UFUNCS_OF_TWO[ufunc](a, b)) if is_defined else NotImplemented
    (x, *more) = inputs
    if more or (ufunc in (np.abs, *_WHOLE) and not isinstance(x, float)):
        return NotImplemented  # an integer of numpy's
    if ufunc in _WHOLE:
        return _numpys(x.whole(*_WHOLE[ufunc]))
    if ufunc not in _UFUNCS:
        return NotImplemented
    try:
        made = _recorded(_UFUNCS[ufunc], _WRAPPED[_UFUNCS[ufunc]].__wrapped__, x)
    except (ValueError, OverflowError):  # numpy gives nan or infinity
        return NotImplemented
    return _numpys(made)


def _numpys(number: Any) -> Any:
    """The number as numpy's functions give one: a `np.float64`."""
    return number * np.float64(1.0)


def _value(x: Any) -> Any:
    return x.value if type(x) is TracedNumber else x
