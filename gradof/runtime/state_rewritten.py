"""Containers that each call stores anew, compared by their parts and not by who they are.

    def forward(self, x):
        self.kept = [x * self.w, x * 2]     another list at the next call
        return self.kept[0]

The list of the call before is another object each time, as is one that the caller makes for each
call (Note [Renewed objects] in `state_renewed`). What code could have asked of it is how it
is built, its plain values, and the types of its tensors; a tensor of it that the graph reads is an
input with a place of its own, and then the list counts as who it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gradof.runtime.arrays import is_tensor
from gradof.runtime.state_values import array_type
from gradof.tracer.core.result import Store
from gradof.tracer.state.code_facts import facts_of
from gradof.tracer.state.edges import Edge
from gradof.tracer.state.places import Place, place_key, read_place
from gradof.tracer.state.reads import Reads

_ATOMS = (int, float, complex, bool, str, bytes, type(None))
_DEPTH = 6
_LONG = 16  # items of a renewed container: those of shorter ones are looked at one by one


class Rewritten:
    """The places that a run has set, and what else it has written to."""

    def __init__(self, reads: Reads, stores: Iterable[Store], used: set[int]) -> None:
        stores = list(stores)
        self._used, self._renewed = used, reads.renewed
        self._asks = any(  # who an object is
            facts_of(code).compared for code, space in reads.codes.items()
            if not str(space.get("__name__")).startswith("torch.")
        )
        self._set = {
            (id(s.place.container), s.place.key) for s in stores
            if s.mode == "set" and s.place.kind == "item" and isinstance(s.place.key, str)
        }  # fmt: skip
        self._changed = {id(s.place.container) for s in stores}

    def guard_of(self, edge: Edge) -> Parts | None:
        """What to hold against the next container at a place; None where this one counts itself."""
        place, kind = edge.place, type(edge.child)
        if self._asks or kind not in (list, tuple, dict, set):
            return None
        is_set = place.kind == "item" and (id(place.container), place.key) in self._set
        whole = kind is set or len(edge.child) > _LONG
        if not is_set and not (self._renewed and whole and place_key(place) in self._renewed):
            return None
        parts = self._parts(edge.child, _DEPTH)
        return None if parts is None else Parts(place, parts)

    def _parts(self, value: Any, depth: int) -> Any:
        if id(value) in self._changed or id(value) in self._used or not depth:
            return None
        return parts_of(value, lambda part: self._parts(part, depth - 1))


class Parts:
    """Whether what is at a place is built as this."""

    def __init__(self, place: Place, parts: Any) -> None:
        self._place, self._parts = place, parts

    def __call__(self) -> bool:
        """Whether it is, now."""
        return bool(_parts_now(read_place(self._place), _DEPTH) == self._parts)


def parts_of(value: Any, inner: Any) -> Any:
    """How a container is built; None for what is no nest of tensors and plain values."""
    kind = type(value)
    if is_tensor(value):
        return "tensor", array_type(value)
    if kind in _ATOMS:
        return kind, repr(value)
    if kind is set and all(type(part) in _ATOMS for part in value):
        return kind, tuple((type(part), part) for part in value)  # in order, as it is gone through
    if kind not in (list, tuple, dict):
        return None
    keys = tuple(value) if kind is dict else ()
    if any(type(key) not in _ATOMS for key in keys):
        return None
    parts = [inner(part) for part in (value.values() if kind is dict else value)]
    return None if None in parts else (kind, repr(keys), tuple(parts))


def _parts_now(value: Any, depth: int) -> Any:
    """None for what is deeper than any that is held against it, and for one that is in itself."""
    return parts_of(value, lambda part: _parts_now(part, depth - 1)) if depth else None
