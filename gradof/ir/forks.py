"""Locks in a process that forks while other threads hold them.

    lock = forks.rlock()                      # free again in a child
    forks.finish_first(compile_lock)          # no fork while another thread is within it

A child has only the thread that forked: what another one held stays held for ever, and what it was
changing stays half changed. Where a lock only guards entries that are made whole and then put in
their place, the child takes it as free. What changes state of the process (LLVM's own, the flags of
a trace) is waited for before the fork, at most `PATIENCE` seconds: the thread that is within may be
waiting for the one that forks.
"""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

PATIENCE = 10.0  # seconds

_FREED: weakref.WeakSet[Any] = weakref.WeakSet()
_AWAITED: list[Any] = []
_taken: list[Any] = []  # of `_AWAITED`, by the thread that forks


def lock() -> threading.Lock:
    """A lock that is free in a child."""
    made = threading.Lock()
    _FREED.add(made)
    return made


def rlock() -> Any:
    """A reentrant lock that is free in a child."""
    made = threading.RLock()
    _FREED.add(made)
    return made


class cached_property(functools.cached_property[T]):  # as the library's
    """The standard library's, whose lock (Python 3.11 has one per property) is free in a child."""

    def __init__(self, function: Callable[[Any], T]) -> None:
        super().__init__(function)
        made = getattr(self, "lock", None)
        if made is not None:
            _FREED.add(made)


def finish_first(made: Any) -> Any:
    """The lock, which is waited for before a fork; of several the outermost is named first."""
    _AWAITED.append(made)
    return made


def _before() -> None:
    _taken[:] = [made for made in _AWAITED if made.acquire(timeout=PATIENCE)]


def _in_parent() -> None:
    while _taken:
        _taken.pop().release()


def _in_child() -> None:
    for made in [*_FREED, *_AWAITED]:
        made._at_fork_reinit()  # as the standard library's own locks
    _taken.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
