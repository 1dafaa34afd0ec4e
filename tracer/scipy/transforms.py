"""The compiler's own transformations, for adaptors that differentiate functions they are given.

The runtime sets them before the first trace: it is above the tracer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

Function = Callable[..., Any]


@dataclass(frozen=True)
class Transforms:
    """`grad`, `jacobian` and `jvp` of `gradof`, within a trace and outside of one.

    `steady(fn).run(theta)` is a compiled function of what comes before theta, to be called while
    nothing of Python's changes.
    Within `alone()` compiled functions are called on numbers, while something else is traced;
    within `traced()` they are traced, as in a rule that is traced late.
    """

    grad: Function
    jacobian: Function
    jvp: Function
    steady: Function
    alone: Callable[[], AbstractContextManager[None]]
    traced: Callable[[], AbstractContextManager[None]]


_MAKE: list[Callable[[], Transforms]] = []


def set_transforms(make: Callable[[], Transforms]) -> None:
    """From now on, what `make` gives is the compiler's; it is asked when an adaptor needs them."""
    _MAKE[:] = [functools.cache(make)]


def transforms() -> Transforms:
    """The compiler's."""
    return _MAKE[0]()


def traced_rule(rule: Function) -> Function:
    """A rule of a black box that uses the transformations."""

    @functools.wraps(rule)
    def run(*args: Any) -> Any:
        with transforms().traced():
            return rule(*args)

    return run
