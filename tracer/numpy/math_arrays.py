"""Python's `math` for traced arrays of one element, in functions of numpy.

    math.sin(x[0]) + math.hypot(x[1], 2.0)

They compute in double precision, as Python does, and the result is a number of Python's (`floats`).

Note [Errors of math]
Where Python raises, numpy has a nan or an infinity. The trace asks Python's own function, and so
raises; a call does so by `math_result`. Where code that may catch the error waits for the function,
it decides what runs next: then the trace holds only for calls that are alike in this.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from gradof.ops.expr import F
from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.floats import as_float, may_be_caught
from gradof.tracer.numpy.functions import as_array
from gradof.tracer.numpy.recorder import real

Function = Callable[..., Any]


def one_number(x: Any, cls: type = float) -> Any:
    """One number as `float` or `complex` have it, in double precision."""
    if not isinstance(x, TracedArray):
        return cls(x)
    if x.size != 1:
        raise TypeError("only 0-dimensional arrays can be converted to Python scalars")
    return np.reshape(x, ()).astype(cls)[()]


def _in_double(name: str, function: Function) -> Function:
    @functools.wraps(function)
    def computed(*args: Any) -> Any:
        numbers = [one_number(a) for a in args]
        result = function(*numbers)
        if name not in _TOTAL:
            result = _without_errors(name, result, numbers)
        return tuple(map(as_float, result)) if isinstance(result, tuple) else as_float(result)

    return computed


def _without_errors(name: str, result: Any, numbers: list[Any]) -> Any:
    """The result, where Python gives one; see Note [Errors of math]."""
    recorder, caught = result.recorder, may_be_caught()
    if caught:
        recorder.read_number(np.isfinite(result))
    getattr(math, name)(*map(real, numbers))  # raises what Python raises
    if caught:
        return result
    operands = [recorder.traced(np.float64(n) if type(n) is float else n).expr for n in numbers]
    return recorder.wrap(real(result), F.math_result(result.expr, *operands, function=name))


def _special(name: str) -> Function:
    """A function of scipy.special's, which is loaded where it is needed."""

    def function(*args: Any) -> Any:
        import scipy.special

        return getattr(scipy.special, name)(*args)

    return function


def _log(x: Any, base: Any = math.e) -> Any:
    return np.log(x) if base == math.e else np.log(x) / np.log(base)


def _fsum(seq: Iterable[Any]) -> Any:
    return as_float(np.sum(np.stack([as_array(x) for x in seq]).astype(np.float64)))


def _prod(iterable: Iterable[Any], /, *, start: Any = 1) -> Any:
    return functools.reduce(operator.mul, iterable, start)


def _dist(p: Iterable[Any], q: Iterable[Any]) -> Any:
    return as_float(np.sqrt(_fsum([(a - b) ** 2 for a, b in zip(p, q, strict=True)])))


def _sumprod(p: Iterable[Any], q: Iterable[Any]) -> Any:
    return _fsum([a * b for a, b in zip(p, q, strict=True)])



# Functions that have a value for any number, and those whose numbers are as good as never so large.
_TOTAL = frozenset({
    "asinh", "atan", "atan2", "cbrt", "copysign", "degrees", "erf", "erfc", "fabs", "fma", "hypot",
    "ldexp", "modf", "radians", "tanh",
})  # fmt: skip

FUNCTIONS: dict[str, Function] = {
    **{name: _in_double(name, getattr(np, ours)) for name, ours in {
        "sqrt": "sqrt", "cbrt": "cbrt", "exp": "exp", "exp2": "exp2", "expm1": "expm1",
        "log2": "log2", "log10": "log10", "log1p": "log1p", "sin": "sin", "cos": "cos",
        "tan": "tan", "asin": "arcsin", "acos": "arccos", "atan": "arctan", "atan2": "arctan2",
        "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "asinh": "arcsinh", "acosh": "arccosh",
        "atanh": "arctanh", "fabs": "abs", "fmod": "fmod", "copysign": "copysign",
        "degrees": "degrees", "radians": "radians", "modf": "modf",
    }.items()},
    **{name: _in_double(name, _special(ours)) for name, ours in {
        "erf": "erf", "erfc": "erfc", "gamma": "gamma", "lgamma": "gammaln",
    }.items()},
    "log": _in_double("log", _log), "pow": _in_double("pow", lambda x, y: np.power(x, y)),
    "hypot": _in_double("hypot", lambda *x: np.sqrt(sum(v * v for v in x))),
    "fma": _in_double("fma", lambda x, y, z: x * y + z),
    "ldexp": _in_double("ldexp", lambda x, i: x * np.exp2(i)),
    "fsum": _fsum, "prod": _prod, "dist": _dist, "sumprod": _sumprod,
    "floor": lambda x: int(np.floor(x)), "ceil": lambda x: int(np.ceil(x)),
    "trunc": lambda x: int(np.trunc(x)),
    "isnan": lambda x: bool(np.isnan(x)), "isinf": lambda x: bool(np.isinf(x)),
    "isfinite": lambda x: bool(np.isfinite(x)),
    "isclose": lambda a, b, *, rel_tol=1e-9, abs_tol=0.0: bool(
        np.abs(a - b) <= np.maximum(rel_tol * np.maximum(np.abs(a), np.abs(b)), abs_tol)
    ),
}  # fmt: skip
