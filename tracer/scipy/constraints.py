"""What a minimum is held to, in the forms that scipy.optimize takes, as two functions of x.

    equal, above = held_to(bounds, constraints, 3)      # equal(x) == 0, above(x) >= 0; or None

Of a pair of ends that are equal, or of which one is infinite, it is the numbers that decide, when
the function is made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradof.tracer.numpy.functions import as_array, whole

Function = Callable[..., Any]
Held = tuple[Function | None, Function | None]


def _bounds_of(bounds: Any, count: int) -> tuple[Any, Any]:
    """Vectors of lower and upper ends."""
    if hasattr(bounds, "lb"):
        ends = [as_array(bounds.lb), as_array(bounds.ub)]
    else:
        pairs = list(bounds)
        if len(pairs) == 1:  # `linprog` means every number by it
            pairs = pairs * count
        ends = [
            as_array([_end(pair[side], missing) for pair in pairs])
            for side, missing in ((0, -np.inf), (1, np.inf))
        ]
    low, high = (np.broadcast_to(e, (count,)) for e in ends)
    return low, high


def _end(value: Any, missing: float) -> Any:
    return missing if value is None else value


def _between(function: Function, low: Any, high: Any, parts: dict[str, list[Function]]) -> None:
    """A vector between two others."""
    equal = whole(low == high)  # the trace holds where the same ends are equal, or missing
    fixed = np.flatnonzero(equal)
    below = np.flatnonzero(whole(np.isfinite(low)) & ~equal)
    over = np.flatnonzero(whole(np.isfinite(high)) & ~equal)
    if len(fixed):
        parts["eq"].append(lambda x: np.take(function(x), fixed) - np.take(low, fixed))
    if len(below):
        parts["ineq"].append(lambda x: np.take(function(x), below) - np.take(low, below))
    if len(over):
        parts["ineq"].append(lambda x: np.take(high, over) - np.take(function(x), over))


def _constraint(given: Any, parts: dict[str, list[Function]]) -> None:
    if isinstance(given, dict):
        fun, args = given["fun"], given.get("args", ())
        args = args if isinstance(args, tuple) else (args,)
        parts[given["type"].lower()].append(
            lambda x: np.reshape(as_array(fun(x, *args)) * 1.0, -1)
        )
    else:
        if hasattr(given, "A"):
            matrix = as_array(given.A)
            matrix = matrix[None] if matrix.ndim == 1 else matrix

            def values(x: Any) -> Any:
                return matrix @ x
        else:
            def values(x: Any) -> Any:
                return np.reshape(as_array(given.fun(x)) * 1.0, -1)

        size = _size(given, values)
        low, high = (np.broadcast_to(as_array(e), (size,)) for e in (given.lb, given.ub))
        _between(values, low, high, parts)


def _size(given: Any, values: Function) -> int:
    """How many numbers a constraint has: as its ends, or its rows."""
    ends = max(np.size(as_array(given.lb)), np.size(as_array(given.ub)))
    return max(ends, np.atleast_2d(as_array(given.A)).shape[0]) if hasattr(given, "A") else ends


def held_to(bounds: Any, constraints: Any, count: int) -> Held:
    """Two functions of x, or None where nothing is asked of that kind."""
    parts: dict[str, list[Function]] = {"eq": [], "ineq": []}
    if constraints is not None:
        single = isinstance(constraints, dict) or hasattr(constraints, "lb")
        for one in [constraints] if single else constraints:
            _constraint(one, parts)
    if bounds is not None:
        low, high = _bounds_of(bounds, count)
        _between(lambda x: x, low, high, parts)
    return _joined(parts["eq"]), _joined(parts["ineq"])


def _joined(functions: list[Function]) -> Function | None:
    if not functions:
        return None
    return lambda x: np.concatenate([as_array(f(x)) for f in functions])
