"""A compiled function that is called many times while nothing of Python's changes.

    slope = Steady(fn).run(theta)   # for one integral: slope(y, t) is fn(y, t, theta)
    slope(y, t)                     # looks for a trace, as any call does
    slope(y1, t1)                   # runs the code which that has found
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradof.errors import InputError
from gradof.runtime.cache import Bound, Entry
from gradof.runtime.once import compiled_once
from gradof.tracer.core.result import TensorOut

Function = Callable[..., Any]


class Steady:
    """A function of arrays that gives an array; see the module docstring."""

    def __init__(self, fn: Function) -> None:
        self.compiled = compiled_once(fn)
        self._last: tuple[Entry, bool] | None = None  # and whether its code may be called at once

    def run(self, *fixed: Any) -> Function:
        """The function of what comes before `fixed`: arrays of the same types at each call."""
        found: Function | None = None

        def call(*args: Any) -> Any:
            nonlocal found
            if found is None:
                found = self._found(args, fixed)
            return found(*args)

        return call

    def _found(self, args: tuple[Any, ...], fixed: tuple[Any, ...]) -> Function:
        bound = self.compiled.bind((*args, *fixed), {})
        if self._last is None or self._last[0] is not bound.entry:
            self._last = bound.entry, self._is_simple(bound, (*args, *fixed))
        if not self._last[1]:
            return lambda *args: self.compiled(*args, *fixed)
        run, rest = bound.entry.plan.executable.function, bound.inputs[len(args) :]

        def call(*args: Any) -> Any:
            return run(*map(np.asarray, args), *rest)[0]

        return call

    def _is_simple(self, bound: Bound, args: tuple[Any, ...]) -> bool:
        """Whether the call is its code, and the result an array that it makes."""
        try:
            self.compiled.prepare(*args)
        except InputError:  # such as where values decide what runs
            return False
        out = bound.entry.traced.outputs
        plain = len(out) == 1 and isinstance(out[0], TensorOut) and out[0].view is None
        return plain and bound.entry.plan.executable.is_silent
