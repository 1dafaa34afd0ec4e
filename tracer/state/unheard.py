"""Our own code inside a traced run, which the profile hook of `reads` need not see.

    @unheard
    def __torch_function__(self, func, types, args, kwargs): ...    # no event reaches the hook
        heard(func, args, kwargs)                                   # here all do again

A hook costs each call and return of Python a call of its own: a third of what tracing a model took
went into calls of the tracer's. What may run code of the user's goes through `heard`.

Nor is it what the traced function does if the garbage collector runs while it is traced, and calls
`gc.callbacks` of some library, or if a module is imported for the first time: the hook is off
around them. torch imports a thousand modules when one of its transforms is first used.
"""

from __future__ import annotations

import gc
import importlib
import sys
import threading
from _lsprof import Profiler as _Profiler
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from gradof.ir import forks

P = ParamSpec("P")
T = TypeVar("T")


class _Hooks(threading.local):
    """The hook that is on in this thread, and the one that is off meanwhile.

    They are kept here because a question to `sys` is an event of its own, which the hook hears.
    """

    def __init__(self) -> None:
        self.on: Any = None
        self.off: Any = None


_HOOKS = _Hooks()
_set = sys.setprofile


def is_listening() -> bool:
    """Whether the hook is on in this thread, or is off for our own code alone."""
    return _HOOKS.on is not None or _HOOKS.off is not None


def quietly(fn: Callable[..., Any], *args: Any) -> Any:
    """`fn(*args)`, run with the thread's profile hook off."""
    hook = _HOOKS.on
    if hook is None:
        return fn(*args)
    _set(None)
    _HOOKS.on, outer, _HOOKS.off = None, _HOOKS.off, hook
    try:
        return fn(*args)
    finally:
        _HOOKS.on, _HOOKS.off = hook, outer
        _set(hook)


def unheard(fn: Callable[P, T]) -> Callable[P, T]:
    """The function, run with the thread's profile hook off."""

    @wraps(fn)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        hook = _HOOKS.on
        if hook is None:
            return fn(*args, **kwargs)
        _set(None)
        _HOOKS.on, outer, _HOOKS.off = None, _HOOKS.off, hook
        try:
            return fn(*args, **kwargs)
        finally:
            _HOOKS.on, _HOOKS.off = hook, outer
            _set(hook)

    return run


def heard(fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """`fn(*args, **kwargs)` with the hook that `unheard` has taken off, if any."""
    hook = _HOOKS.off
    if hook is None or _HOOKS.on is not None:
        return fn(*args, **kwargs)
    _HOOKS.on = hook
    _set(hook)
    try:
        return fn(*args, **kwargs)
    finally:
        _set(None)
        _HOOKS.on = None


def take_off() -> Any:
    """Take the thread's profile hook off, whoever set it, and return it for `put_back`."""
    hook = sys.getprofile()
    if isinstance(hook, _Profiler):  # cProfile, up to Python 3.11, is such a hook
        hook.disable()
    _set(None)
    return hook


def put_back(hook: Any) -> None:
    """Set what `take_off` has returned."""
    if isinstance(hook, _Profiler):
        _set(None)
        hook.enable()
    else:
        _set(hook)


@contextmanager
def unprofiled() -> Iterator[None]:
    """Within it no profile hook hears, ours or one of the user's."""
    hook = take_off()
    try:
        yield
    finally:
        put_back(hook)


class _Collections:
    """The first and the last of `gc.callbacks`: between them the thread's hook is off."""

    def __init__(self) -> None:
        self._off = threading.local()

    def first(self, phase: str, info: dict[str, int]) -> None:
        self._off.hook = _HOOKS.on if sys.getprofile() is not None else None  # a walk is on
        if self._off.hook is not None:
            _set(None)
            _HOOKS.on = None

    def last(self, phase: str, info: dict[str, int]) -> None:
        hook, self._off.hook = getattr(self._off, "hook", None), None
        if hook is not None:
            _HOOKS.on = hook
            _set(hook)


_IMPORTLIB: Any = importlib._bootstrap


class _Imports:
    """What looks for a module and runs its body, unheard while any hook is on."""

    def __init__(self) -> None:
        self._lock = forks.lock()
        self._count = 0
        self._pythons: Any = None

    def start(self) -> None:
        with self._lock:
            self._count += 1
            if self._count == 1:
                self._pythons, _IMPORTLIB._find_and_load = _IMPORTLIB._find_and_load, self._find

    def stop(self) -> None:
        with self._lock:
            self._count -= 1
            if not self._count:
                _IMPORTLIB._find_and_load = self._pythons

    def _find(self, *args: Any) -> Any:
        on, off = _HOOKS.on, _HOOKS.off
        if on is None and off is None:
            return self._pythons(*args)
        is_set = on is not None and sys.getprofile() is on  # a walk may have taken it off
        if is_set:
            _set(None)
        _HOOKS.on = _HOOKS.off = None
        try:
            return self._pythons(*args)
        finally:
            _HOOKS.on, _HOOKS.off = on, off
            if is_set:
                _set(on)


_IMPORTS = _Imports()


class Listening:
    """A profile hook of the thread, from `start` to `stop`; see the module docstring."""

    def __init__(self, hook: Any) -> None:
        self.hook = hook
        self._outer: Any = None
        self._collections = _Collections()

    def start(self) -> None:
        """Set the hook."""
        self._outer = take_off(), _HOOKS.on
        gc.callbacks.insert(0, self._collections.first)
        gc.callbacks.append(self._collections.last)
        _IMPORTS.start()
        _HOOKS.on = self.hook
        _set(self.hook)

    def stop(self) -> None:
        """Put back the hook that was there before."""
        outer, _HOOKS.on = self._outer
        put_back(outer)
        _IMPORTS.stop()
        gc.callbacks.remove(self._collections.first)
        gc.callbacks.remove(self._collections.last)
