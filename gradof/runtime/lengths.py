"""Which sizes of a function's arguments vary from call to call, and what serves any of them.

    loss(p, obs[:20])       traced
    loss(p, obs[:33])       traced once more, and `obs` is of any length now: `n`
    loss(p, obs[:500])      what is there runs (`gradof.runtime.family`)
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from gradof.runtime.arrays import FIRST_LEAF, Call

if TYPE_CHECKING:
    from gradof.runtime.cache import Entry
    from gradof.runtime.family import Family
    from gradof.runtime.quickcall import Quick

MISS = object()  # a call that nothing here serves
_FAILED = 4  # comparisons in vain, after which one is made at every 8th, 16th, 32nd ... trace
_KEPT = 8  # kinds of calls that the last trace is kept of, and families
Places = Mapping[tuple[int, int], str]  # (leaf, dim) → the name of its length
ITSELF = -1  # the dim of a leaf that is a whole number
NOWHERE: Places = MappingProxyType({})


class ByLength:
    """What is known of the lengths of one function's arguments."""

    def __init__(self) -> None:
        self._last: OrderedDict[Any, tuple[Call, Entry]] = OrderedDict()
        self._traces: Counter[Any] = Counter()  # by kind
        self._failed: Counter[Any] = Counter()  # comparisons in a row of which nothing came
        self.families: tuple[Family, ...] = ()

    def places(self, call: Call) -> Places:
        """The sizes of a call that were others in the last trace of its kind."""
        last = self.last(call)
        kind = _without_lengths(call)
        traces = self._traces[kind]
        if self._failed[kind] >= _FAILED and traces & (traces - 1):
            return NOWHERE  # looking costs as much as a trace: it is done ever less often
        return NOWHERE if last is None else _differing(last[0], call)

    def sizes(self, call: Call, make: Callable[..., Any]) -> Callable[[], Any]:
        """What makes the notes of a call's trace: `make` of lengths, and of the trace before."""
        last, places = self.last(call), self.places(call)
        if last is None or not places:
            return make
        now, then = (values_of(each, places) for each in (call, last[0]))
        given = {leaf: name for (leaf, dim), name in places.items() if dim == ITSELF}
        return lambda: make(now, then, last[1].traced.sizes, given)

    def last(self, call: Call) -> tuple[Call, Entry] | None:
        """The last trace of a call of this kind."""
        return self._last.get(_without_lengths(call))

    def keep(self, call: Call, entry: Entry) -> None:
        """This is the last trace of its kind now; the call is without its arrays."""
        kind = _without_lengths(call)
        self._traces[kind] += 1
        self._last[kind] = call, entry
        self._last.move_to_end(kind)
        if len(self._last) > _KEPT:
            self._last.popitem(last=False)

    def note(self, call: Call, made: bool) -> None:
        """Two traces of a kind were compared, or compiled for any length: whether in vain."""
        kind = _without_lengths(call)
        self._failed[kind] = 0 if made else self._failed[kind] + 1

    def add(self, family: Family) -> None:
        """What serves calls of a kind, whatever their lengths."""
        self.families = (family, *self.families)[:_KEPT]

    def run(
        self, form: Any, args: tuple[Any, ...], kwargs: dict[str, Any],
        make: Callable[[Family], Quick | None],
    ) -> Any:  # fmt: skip
        """The result of a call by what is there for any length; MISS where nothing is.

        `form` is what is asked of the function, and `make` what makes the code of it.
        """
        for family in self.families:
            quick = family.quick(form, make)
            result = MISS if quick is None else quick(args, kwargs)
            if result is not MISS:
                return result
        return MISS


def sizes_of(call: Call) -> dict[int, dict[int, int]]:
    """By leaf and dim, the sizes of a call's arrays, and its whole numbers."""
    parts = call.key[FIRST_LEAF : FIRST_LEAF + len(call.leaves)]
    return {
        i: dict(enumerate(part[1])) if isinstance(part[0], np.dtype) else {ITSELF: part[1]}
        for i, part in enumerate(parts) if isinstance(part[0], np.dtype) or _is_number(part)
    }


def values_of(call: Call, places: Places) -> dict[str, int]:
    """The lengths of a call, by name."""
    sizes = sizes_of(call)
    return {name: sizes[leaf][dim] for (leaf, dim), name in places.items()}


def _without_lengths(call: Call) -> tuple[Any, ...]:
    """The key of a call without the sizes of its arrays."""
    end = FIRST_LEAF + len(call.leaves)
    parts = tuple(
        (part[0], len(part[1]), *part[2:]) if isinstance(part[0], np.dtype)
        else part[:1] if _is_number(part) else part
        for part in call.key[FIRST_LEAF:end]
    )  # fmt: skip
    return (*call.key[:FIRST_LEAF], parts, *call.key[end:])


def _is_number(part: tuple[Any, ...]) -> bool:
    """Whether a leaf is a whole number that is a constant of the trace."""
    return part[0] is int and len(part) == 2 and type(part[1]) is int


def _differing(before: Call, now: Call) -> Places:
    """Sizes that differ, by name: those that were the same number in both calls have one."""
    then, found = sizes_of(before), dict[tuple[int, int], str]()
    names: dict[tuple[int, int], str] = {}
    for leaf, sizes in sizes_of(now).items():
        for dim, b in sizes.items():
            a = then[leaf][dim]
            if a != b:
                found[leaf, dim] = names.setdefault((a, b), f"n{len(names)}" if names else "n")
    return found
