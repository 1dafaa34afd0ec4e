"""Python's `cmath` for traced numbers, in functions of numpy.

    abs(cmath.exp(1j * x[0]) + cmath.sqrt(x[1] - 4.0))      x: real or complex

Results are complex numbers of Python's, as `cmath`'s are. Python raises at poles, and so does every
call; where a value overflows, the trace raises, and later calls have an infinity.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.floats import as_float
from gradof.tracer.numpy.math_arrays import one_number
from gradof.tracer.numpy.recorder import real

Function = Callable[..., Any]
_POLES: dict[str, tuple[complex, ...]] = {
    "log": (0,), "log10": (0,), "atan": (1j, -1j), "atanh": (1, -1),
}  # fmt: skip


def _complex(z: Any) -> Any:
    return one_number(z, complex)


def _function(name: str, function: Function) -> Function:
    original = getattr(cmath, name)

    def computed(z: Any) -> Any:
        if not isinstance(z, TracedArray):
            return original(z)
        z = _complex(z)
        if any(z == pole for pole in _POLES.get(name, ())):  # read: a branch of the trace
            raise ValueError("math domain error")
        original(real(z))  # raises what Python raises
        return as_float(function(z))

    return computed


def _log(z: Any, base: Any = math.e) -> Any:
    natural = FUNCTIONS["ln"]
    return natural(z) if base == math.e else natural(z) / natural(base)


def _polar(z: Any) -> tuple[Any, Any]:
    return as_float(abs(_complex(z))), FUNCTIONS["phase"](z)


def _rect(r: Any, phi: Any) -> Any:
    return as_float(_complex(r * np.cos(phi) + 1j * (r * np.sin(phi))))


def _is_close(a: Any, b: Any, *, rel_tol: float = 1e-9, abs_tol: float = 0.0) -> bool:
    return bool(abs(a - b) <= max(rel_tol * max(abs(a), abs(b)), abs_tol))


FUNCTIONS: dict[str, Function] = {
    **{name: _function(name, getattr(np, ours)) for name, ours in {
        "sqrt": "sqrt", "exp": "exp", "log10": "log10", "sin": "sin", "cos": "cos", "tan": "tan",
        "asin": "arcsin", "acos": "arccos", "atan": "arctan", "sinh": "sinh", "cosh": "cosh",
        "tanh": "tanh", "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh",
        "phase": "angle",
    }.items()},
    "ln": _function("log", np.log), "log": _log, "polar": _polar, "rect": _rect,
    "isnan": lambda z: bool(np.isnan(_complex(z))), "isinf": lambda z: bool(np.isinf(_complex(z))),
    "isfinite": lambda z: bool(np.isfinite(_complex(z))), "isclose": _is_close,
}  # fmt: skip
