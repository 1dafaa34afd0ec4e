"""Python functions whose calls go elsewhere for a while, however they are reached.

    swaps = Swaps()
    swaps.add(np.sum._implementation, call)     # call(original, args, kwargs)
    with swaps.at_work(): ...

Note [Swapped code]
The object that `scipy.special.logsumexp` names is one and the same wherever it was imported, stored
or passed. So while a trace runs its `__code__` is another, which hands the arguments on. Calls in
libraries are caught as well, and calls in other threads: `call` asks for the thread. What was there
is put back when the last trace ends; a frame that runs keeps the code it has.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any

from gradof.ir import forks
from gradof.tracer.state import swapped

Call = Callable[..., Any]
_LOCK = forks.lock()


class Swaps:
    """A set of functions and what is called in their place."""

    def __init__(self) -> None:
        self._swaps: dict[int, tuple[FunctionType, CodeType, CodeType]] = {}
        self._active = 0

    def add(self, function: FunctionType, call: Call) -> None:
        """From now on `call(original, args, kwargs)` is called; `original` has the old code."""
        with _LOCK:
            if id(function) in self._swaps:
                return
            ours = _handing_on(function, functools.partial(call, copy_of(function)))
            swapped.note(ours)
            self._swaps[id(function)] = function, function.__code__, ours
            if self._active:
                function.__code__ = ours

    def __contains__(self, function: FunctionType) -> bool:
        return id(function) in self._swaps

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Within it, the functions have the other code."""
        with _LOCK:
            self._active += 1
            if self._active == 1:
                for function, _, ours in self._swaps.values():
                    function.__code__ = ours
        try:
            yield
        finally:
            with _LOCK:
                self._active -= 1
                if not self._active:
                    for function, theirs, _ in self._swaps.values():
                        function.__code__ = theirs


def copy_of(function: FunctionType) -> FunctionType:
    """Another object with the code that a function has now."""
    made = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__,
        function.__closure__,
    )  # fmt: skip
    made.__kwdefaults__ = function.__kwdefaults__
    made.__qualname__ = function.__qualname__
    made.__module__ = function.__module__
    made.__dict__.update(function.__dict__)
    return made


def _handing_on(function: FunctionType, call: Call) -> CodeType:
    """Code with the function's free variables that hands its arguments to `call`."""
    free = function.__code__.co_freevars
    lines = [
        f"def outer({', '.join(free)}):",
        "    def inner(*args, **kwargs):",
        *([f"        if 0: {', '.join(free)}"] if free else []),
        "        call = 'the call'",
        "        return call(args, kwargs)",
        "    return inner",
    ]
    space: dict[str, Any] = {}
    exec("\n".join(lines), space)
    inner: CodeType = space["outer"](*(None,) * len(free)).__code__
    return inner.replace(
        co_consts=tuple(call if c == "the call" else c for c in inner.co_consts),
        co_name=function.__code__.co_name, co_filename=function.__code__.co_filename,
        co_firstlineno=function.__code__.co_firstlineno,
    )  # fmt: skip
