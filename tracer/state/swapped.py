"""Which functions have other code while a trace runs: see `gradof.tracer.core.swaps`."""

from __future__ import annotations

from types import CodeType, FunctionType

_OURS: set[int] = set()  # ids of code that is kept as long as its function


def note(code: CodeType) -> None:
    """This is code that functions have meanwhile."""
    _OURS.add(id(code))


def is_swapped(function: FunctionType) -> bool:
    """Whether a function has other code now, in which nothing of its own is to be found."""
    return id(function.__code__) in _OURS
