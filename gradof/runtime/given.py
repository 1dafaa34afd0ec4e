"""The caller's containers beside Python's state: one of both is changed in one place by a trace.

    cache = {}

    @differentiate
    def step(batch, x):          # step(cache, x): in eager `batch` is `cache`, in a trace a copy
        batch["y"] = x * 2
        return cache["y"]
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gradof.errors import TraceError
from gradof.runtime.cache import Bound, Entry
from gradof.runtime.state import StateGuard
from gradof.tracer.core.pytree import FIXED, take_apart
from gradof.tracer.core.result import Traced


def containers_of_state(guard: StateGuard, traced: Traced) -> frozenset[int]:
    """Ids of what a trace that writes has read of Python's state, or writes there; they live on."""
    if not traced.stores:
        return frozenset()
    rows = (*guard.items, *guard.cells)
    found = [part for container, _, child, *_ in rows for part in (container, child)]
    found += [place.container for place, _, _ in guard.arrays]
    found += [s.place.container for s in traced.stores if s.place.kind != "given"]
    return frozenset(map(id, found))


def is_of_state(entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a container among the arguments is one that the function reaches by itself."""
    known = entry.state_containers
    return bool(known) and any(id(c) in known for c in _changeable([*args, *kwargs.values()]))


def with_given(bound: Bound, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Bound:
    """The call with the caller's arguments; TraceError where one is of Python's state, too."""
    if is_of_state(bound.entry, args, kwargs):
        raise TraceError(
            "a list or dict among the arguments is one that the function also reaches by itself, "
            "and it is changed", hint="pass a copy",
        )  # fmt: skip
    return bound._replace(given=(args, kwargs))


def _changeable(values: list[Any]) -> Iterator[Any]:
    while values:
        value = values.pop()
        parts = take_apart(value)
        if parts is None:
            continue
        if parts[0] not in FIXED:
            yield value
        values += parts[2]
