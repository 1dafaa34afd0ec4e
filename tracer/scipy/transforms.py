"""The compiler's own transformations, for adaptors that differentiate functions they are given.

The runtime sets them when traces first meet scipy: it is above the tracer.
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

    Within `alone()` compiled functions are called on numbers, while something else is traced;
    within `traced()` they are traced, as in a rule that is traced late.
    """

    grad: Function
    jacobian: Function
    jvp: Function
    alone: Callable[[], AbstractContextManager[None]]
    traced: Callable[[], AbstractContextManager[None]]


_SET: list[Transforms] = []


def set_transforms(transforms: Transforms) -> None:
    """From now on, these are the compiler's."""
    _SET[:] = [transforms]


def transforms() -> Transforms:
    """The compiler's."""
    return _SET[0]


def traced_rule(rule: Function) -> Function:
    """A rule of a black box that uses the transformations."""

    @functools.wraps(rule)
    def run(*args: Any) -> Any:
        with transforms().traced():
            return rule(*args)

    return run
