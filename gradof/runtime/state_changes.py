"""What has changed of the state that a StateGuard holds, in words.

    for text, number in changes(guard): ...      # "self.beta was 1.0 and is 0.5", where it is read
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import getitem
from typing import TYPE_CHECKING, Any

from gradof.runtime.state_check import GONE
from gradof.runtime.state_values import (
    array_type,
    checksum,
    content_of,
    difference,
    is_same,
    read_at,
)  # fmt: skip
from gradof.tracer.core.number import NUMBERS
from gradof.tracer.state.places import read_place

if TYPE_CHECKING:
    from gradof.runtime.state import StateGuard


def changes(guard: StateGuard) -> Iterator[tuple[str, Any]]:
    """The places that hold another value, with the `place_key` where both are numbers."""
    for read, checked in (
        (content_of, guard.cells), (getitem, guard.items), (read_at, guard.others)
    ):  # fmt: skip
        for container, key, expected, shown in checked:
            try:
                found = read(container, key)
            except GONE:
                yield f"{shown} is gone", None
                continue
            if found is not expected and not is_same(found, expected):
                if isinstance(key, type):
                    now = f"is no {key.__name__}" if found is None else f"has {found}"
                    yield f"{shown} had {expected} items and {now}", None
                    continue
                number = None
                if type(found) is type(expected) and type(found) in NUMBERS:
                    number = _number_at(guard, container, key)
                yield difference(shown, expected, found), number


def _number_at(guard: StateGuard, container: Any, key: Any) -> Any:
    for name, (place, _) in guard.numbers.items():
        if place is container:  # within an object that is renewed
            return name
        holder = vars(place.container) if place.kind == "class" else place.container
        if (holder is container or holder == container) and place.key == key:
            return name
    return None


def other_change(guard: StateGuard) -> tuple[str, Any] | None:
    """The first change of what is no single value in a place."""
    try:
        return _other_change(guard)
    except GONE:
        return "what was in an object is gone", None


def _other_change(guard: StateGuard) -> tuple[str, Any] | None:
    for container, n, shown in guard.lengths:
        if len(container) != n:
            return f"{shown} had {n} items and has {len(container)}", None
    for container, expected, shown in guard.contents:
        if (tuple(container) if isinstance(container, dict) else container) != expected:
            return f"{shown} has other items", None
    for attributes, names, shown in guard.absent:
        if new := names & attributes.keys():
            return f"{shown} has {', '.join(sorted(new))} now", None
    for space, builtin in guard.builtin.values():
        if new := builtin & space.keys():
            return f"{space.get('__name__')} has {', '.join(sorted(new))} now", None
    for first, place, shown in guard.shared:
        if read_place(first) is not read_place(place):
            return f"{shown} is no longer the same as elsewhere", None
    for place, kind, shown in guard.arrays:
        if array_type(read_place(place)) != kind:
            return f"{shown} is of another type", None
    for place, n, shown in guard.data:
        if checksum(read_place(place)) != n:
            return f"{shown} has other elements", None
    if any(guard.empty):
        return "a hook was registered", None
    if any(fn.__code__ is not code for fn, code in guard.codes):
        return "the code of a function was replaced", None
    if any(type(obj) is not cls for obj, cls in guard.types):
        return "an object is of another class", None
    for holds, shown in guard.more:
        if not holds():
            return f"{shown} is another", None
    if not guard.surroundings_are_same():
        return "an environment or context variable or a switch of torch is another", None
    return None
