"""Cached functions that run while a trace is made.

>>> misses = Misses(reads.held)
>>> misses.note(frame)            # does the body of a cached function begin here?
>>> misses.running(frame)         # is it the innermost of those that run?
True
>>> misses.end(frame, result)     # ColdCache where a trace must not keep its result

Note [A cold cache]
A cached function that runs while a trace is made runs once for many calls. Its result stays in the
cache where it is a value like any other, and what it logs is logged, once, as in eager. Where it
holds a tensor of the trace, or the function wrote to what was there before or did more than compute
(`print`, `uuid.uuid4`), the trace ends with a ColdCache before anything is kept: this call runs
eagerly, and the next one finds the result. So does a torch trace that is refused within it. A
numpy function, which has no eager gradient, is traced again after the cached function alone has run
plainly, with the arguments that it had (`Warming`).
"""

from __future__ import annotations

import functools
import gc
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice, permutations
from types import FrameType
from typing import Any, NoReturn

from gradof.errors import GradofError, TraceError
from gradof.tracer.state.caches import used_since, wrapped_by
from gradof.tracer.state.held import Held
from gradof.tracer.state.items import SEQUENCES, items_of
from gradof.tracer.state.kinds import is_of_trace
from gradof.tracer.state.source import user_loc

_MANY = 10_000  # objects of a result that are looked through
_MANY_ORDERS = 6  # of keyword arguments that are tried


class ColdCache(TraceError):
    """A cached function is computed for the first time; see Note [A cold cache]."""

    call: ColdCall | None = None  # how it was called, where that is known


def cold_cache(name: str, loc: Any, call: ColdCall | None = None) -> ColdCache:
    """The error for a cached function whose result a trace must not keep."""
    error = ColdCache(
        f"{name} is cached, and computed for the first time: its result stays for later calls",
        loc=loc, hint="call it once before, so that the trace finds the result",
    )
    error.call = call
    return error


class ColdCall:
    """A cached function, and the arguments that it was called with."""

    def __init__(self, cached: Any, frame: FrameType) -> None:
        self.cached = cached
        self._given = dict(frame.f_locals)  # as the call begins: its arguments

    def forms(self) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
        """How it may have been called: `f(3)`, `f(3, 2)` and `f(n=3)` have entries of their own."""
        parameters = list(inspect.signature(self.cached).parameters.values())
        must = sum(p.kind is p.POSITIONAL_ONLY for p in parameters)
        may = must + sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)
        found: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        for n in range(may, must - 1, -1):
            for leaves_defaults in (True, False):
                form = self._form(parameters, n, leaves_defaults)
                if form is not None and form not in found:
                    found.append(form)
        return [(args, named) for args, kwargs in found for named in _orders(kwargs)]

    def _form(
        self, parameters: list[inspect.Parameter], n: int, leaves_defaults: bool
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """With the first `n` by position; None where that cannot be written."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        has_gap = False
        for at, p in enumerate(parameters):
            value = self._given[p.name]
            if p.kind is p.VAR_POSITIONAL:
                if value and (has_gap or n < at):
                    return None
                args += value
            elif p.kind is p.VAR_KEYWORD:
                kwargs |= value
            elif leaves_defaults and value is p.default:
                has_gap |= at < n
            elif at < n and not has_gap:
                args.append(value)
            else:
                kwargs[p.name] = value
        return tuple(args), kwargs


def _orders(kwargs: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The orders in which so many may be written; they are other entries, too."""
    for items in islice(permutations(kwargs.items()), _MANY_ORDERS):
        yield dict(items)


@dataclass(frozen=True)
class _Miss:
    """A cached function that runs, and what was so when it began."""

    frame: FrameType
    call: ColdCall
    written: set[tuple[Any, Any]]
    performs: bool


class Misses:
    """The cached functions that run as their result was not there, in one trace."""

    def __init__(self, held: Held, refuse_effects: bool) -> None:
        self.is_traced: Callable[[Any], bool] = is_of_trace
        self.reached: Callable[[], set[int]] = set  # ids of what was there before the run
        self.performs: Callable[[], bool] = bool  # whether the run does more than compute
        self.cold: ColdCache | None = None
        self._held = held
        self._refuse_effects = refuse_effects
        self._running: list[_Miss] = []  # the innermost last

    def begin(self) -> None:
        """A run begins, perhaps after one that ended within a cached function."""
        self.cold = None
        self._running.clear()

    def note(self, frame: FrameType) -> None:
        """Whether this is a cached function that runs, as its result is not there."""
        for cached, before in self._held.caches.values():
            is_its = _code_of(wrapped_by(cached)) is frame.f_code
            if is_its and cached.cache_info().misses > before.misses:
                self._running.append(
                    _Miss(frame, ColdCall(cached, frame), self._written(), self.performs())
                )

    def running(self, frame: FrameType) -> bool:
        """Whether this is the innermost of them."""
        return bool(self._running) and self._running[-1].frame is frame

    @property
    def is_any(self) -> bool:
        """Whether one of them runs."""
        return bool(self._running)

    def _written(self) -> set[tuple[Any, Any]]:
        return {(change.at, change.what) for change in self._held.changes()}

    def end(self, frame: FrameType, result: Any) -> None:
        """Raise ColdCache where the trace must not go on; see Note [A cold cache]."""
        outermost = self._running[0].call
        began = self._running.pop()
        new = {container for (_, container, _), _ in self._written() - began.written}
        there = self.reached() if new else set()
        performs = self.performs() and not began.performs
        if holds(result, self.is_traced) or performs or (self._refuse_effects and new & there):
            self._refuse(frame, outermost)
        self._held.renew(new - there)  # the function made them: they are as it gave them

    def refuse_effect(self, frame: FrameType) -> None:
        """Raise ColdCache where a cached function does what a trace must not, as none does it."""
        if self._running:
            self._refuse(frame, self._running[0].call)

    def refuse_within(self, error: GradofError) -> None:
        """Raise ColdCache where a cached function was running as a trace was refused."""
        at = error.__traceback__
        while at is not None:
            for cached, before in self._held.caches.values():
                code = at.tb_frame.f_code
                if _code_of(wrapped_by(cached)) is code:
                    if cached.cache_info().misses > before.misses:
                        raise cold_cache(code.co_qualname, error.loc) from error
            at = at.tb_next

    def _refuse(self, frame: FrameType, outermost: ColdCall) -> NoReturn:
        name = self._running[0].frame.f_code.co_qualname if self._running else None
        self.cold = cold_cache(name or frame.f_code.co_qualname, user_loc(frame), outermost)
        self._running.clear()
        raise self.cold

    def refuse_caught(self) -> None:
        """Raise the ColdCache that the function has caught."""
        if self.cold is not None:
            raise self.cold

    def refuse(self) -> None:
        """Raise ColdCache where a function of C's is cached and has given what is the trace's."""
        self.refuse_caught()
        for cached, before in self._held.caches.values():
            if cached.cache_info().misses == before.misses:
                continue
            if any(holds(pair, self.is_traced) for pair in used_since(cached, before)):
                cached.cache_clear()
                raise cold_cache(getattr(cached, "__name__", "a function"), None)


def _code_of(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__code__", None)


class Warming:
    """Runs cached functions plainly, for a trace that ended where one was cold.

    Each form of a call is tried once: a trace that ends there again has called it in another.
    """

    def __init__(self) -> None:
        self._tried: list[tuple[Any, tuple[Any, ...], list[tuple[str, Any]]]] = []

    def warm(self, error: ColdCache) -> bool:
        """Whether the function was called now, so that another trace may find its result."""
        if error.call is None:
            return False
        for args, kwargs in error.call.forms():
            if (error.call.cached, args, [*kwargs.items()]) not in self._tried:
                self._tried.append((error.call.cached, args, [*kwargs.items()]))
                error.call.cached(*args, **kwargs)
                return True
        return False


def holds(value: Any, is_traced: Callable[[Any], bool]) -> bool:
    """Whether a value is, or has in it, something that only a trace can use."""
    seen: set[int] = set()
    stack = [value]
    while stack and len(seen) < _MANY:
        obj = stack.pop()
        if id(obj) in seen:
            continue
        if is_traced(obj):
            return True
        seen.add(id(obj))
        stack.extend(_inside(obj))
    return False


def _inside(obj: Any) -> Iterator[Any]:
    if isinstance(obj, dict):
        yield from dict.keys(obj)
        yield from dict.values(obj)
    elif isinstance(obj, SEQUENCES):
        yield from items_of(obj)
    elif callable(obj) and type(closure := getattr(obj, "__closure__", None)) is tuple:
        yield from gc.get_referents(*closure)  # of the class of functions it is a descriptor
    attributes = getattr(obj, "__dict__", None)
    if type(attributes) is dict and not isinstance(obj, type):
        yield from attributes.values()
