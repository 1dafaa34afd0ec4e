"""Python's `math` on traced numbers: recorded, where the graph has the function.

    scale = 1 / math.sqrt(self.step)       %0 : f64[] = sqrt(cast[f64](%step))

While a trace runs, the functions of the module `math` look for traced numbers; other arguments get
what they always got, in every thread. A function that was imported by its own name is the original,
for which the number is pinned (Note [Pinned numbers] in `tracer.number`).
"""

from __future__ import annotations

import contextlib
import functools
import math
import threading
from collections.abc import Callable, Iterator
from typing import Any

from gradof.ir.types import F64
from gradof.ops.expr import Expr, F
from gradof.tracer.core.number import TracedNumber

_LOCK = threading.RLock()
_depth = 0

# Where the argument has to be for the function to be what Python's is, rather than an error.
_Domain = Callable[[Expr], Expr]
_ANY: _Domain | None = None
_FUNCTIONS: dict[str, tuple[str, _Domain | None]] = {
    "sqrt": ("sqrt", lambda x: x >= 0), "log": ("log", lambda x: x > 0),
    "log2": ("log2", lambda x: x > 0), "log10": ("log10", lambda x: x > 0),
    "log1p": ("log1p", lambda x: x > -1), "exp": ("exp", lambda x: x < 700),
    "expm1": ("expm1", lambda x: x < 700), "sin": ("sin", _ANY), "cos": ("cos", _ANY),
    "tan": ("tan", _ANY), "tanh": ("tanh", _ANY), "atan": ("atan", _ANY),
    "erf": ("erf", _ANY), "fabs": ("abs", _ANY),
}  # fmt: skip


@contextlib.contextmanager
def traced_math() -> Iterator[None]:
    """Within it, `math.sqrt(n)` of a traced number is one."""
    global _depth
    with _LOCK:
        _depth += 1
        if _depth == 1:
            for name in _FUNCTIONS:
                setattr(math, name, _wrapped(name))
    try:
        yield
    finally:
        with _LOCK:
            _depth -= 1
            if _depth == 0:
                for name in _FUNCTIONS:
                    setattr(math, name, getattr(math, name).__wrapped__)


def _wrapped(name: str) -> Callable[..., Any]:
    plain = getattr(math, name)

    @functools.wraps(plain)
    def function(*args: Any) -> Any:
        if len(args) == 1 and type(args[0]) is TracedNumber:
            return _recorded(name, plain, args[0])
        return plain(*args)

    return function


def _recorded(name: str, plain: Callable[[float], float], number: TracedNumber) -> TracedNumber:
    op, domain = _FUNCTIONS[name]
    value = plain(number.value)  # raises what Python raises
    numbers = number.numbers
    real = number.cast(F64)
    if domain is not None:
        numbers.guard(lambda: domain(real), True)
    expr = numbers.emit(lambda: getattr(F, op)(real))
    return TracedNumber(numbers, value, expr, number.leaves, number.read)
