"""Python numbers among the arguments that differ from call to call become inputs of the graph.

    step(x, 0.1)        traced with 0.1 as a constant
    step(x, 0.2)        the number varies: traced once more, with it as an input
    step(x, 0.3)        runs what is there

A number whose value the function needs (as a size, an index, or in `math.sqrt`) stays a constant:
see Note [Pinned numbers] in `gradof.tracer.core.number`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gradof.errors import RetraceWarning
from gradof.ir.core import Loc
from gradof.runtime.arrays import FIRST_LEAF, Call
from gradof.tracer.core.number import LARGEST
from gradof.tracer.state.source import warn_user

_MANY = 8  # values of a pinned number, after which there is a warning


@dataclass
class _Signature:
    """What is known of the numbers of one signature, by leaf."""

    first: dict[int, str]
    varying: set[int] = field(default_factory=set)
    pinned: dict[int, Loc | None] = field(default_factory=dict)
    values: dict[int, set[str]] = field(default_factory=dict)  # of the pinned ones
    warned: bool = False


class VaryingNumbers:
    """Which numbers among the arguments of one function vary."""

    def __init__(self) -> None:
        self._signatures: dict[tuple[Any, ...], _Signature] = {}

    def lifted(self, call: Call) -> Call | None:
        """The call with the numbers that vary as inputs; None where none does."""
        places = _numbers(call)
        if not places or not self._signatures:
            return None
        found = self._signatures.get(_blank(call, places))
        return lift(call, found.varying) if found is not None and found.varying else None

    def learn(self, lifted: Call) -> None:
        """The numbers that are inputs of this call vary: they do for functions of the same code."""
        plain = replace(lifted, key=lifted.plain_key, numbers=frozenset())
        places = _numbers(plain)
        values = {i: repr(plain.leaves[i]) for i in places}
        known = self._signatures.setdefault(_blank(plain, places), _Signature(values))
        known.varying |= lifted.numbers

    def note(self, call: Call, name: str) -> Call | None:
        """As `lifted`, after a call that found no trace: numbers that differ vary from now on."""
        places = _numbers(call)
        if not places:
            return None
        values = {i: repr(call.leaves[i]) for i in places}
        known = self._signatures.setdefault(_blank(call, places), _Signature(values))
        for i in places:
            if i in known.pinned:
                self._count(known, call, i, name)
            elif values[i] != known.first[i]:
                known.varying |= {j for j in _beside(call, i, places) if j not in known.pinned}
        return lift(call, known.varying) if known.varying else None

    def pin(self, call: Call, leaves: Iterable[tuple[int, Loc | None]]) -> Call | None:
        """These are constants from now on; the call with the rest as inputs, if there is a rest."""
        plain = replace(call, key=call.plain_key, numbers=frozenset())
        known = self._signatures[_blank(plain, _numbers(plain))]
        for leaf, loc in leaves:
            known.pinned[leaf] = loc
            known.varying.discard(leaf)
        return lift(plain, known.varying) if known.varying else None

    def _count(self, known: _Signature, call: Call, leaf: int, name: str) -> None:
        seen = known.values.setdefault(leaf, set())
        seen.add(repr(call.leaves[leaf]))
        if len(seen) > _MANY and not known.warned:
            known.warned = True
            where = known.pinned[leaf]
            read = f"its value is read at {where}" if where else "its value is needed"
            warn_user(
                f"{name} was traced for {len(seen)} values of {call.paths[leaf]}, because {read}; "
                "pass an array or a tensor, or keep to arithmetic with it",
                RetraceWarning,
            )  # fmt: skip


def without_numbers(call: Call) -> Call:
    """The call with all of its numbers as inputs."""
    plain = replace(call, key=call.plain_key, numbers=frozenset())
    return lift(plain, _numbers(plain))


def _numbers(call: Call) -> list[int]:
    return [
        i for i, leaf in enumerate(call.leaves)
        if type(leaf) is float or (type(leaf) is int and -LARGEST < leaf < LARGEST)
        or (type(leaf) is np.float64 and call.library == "torch")
    ]  # fmt: skip


def _beside(call: Call, leaf: int, places: Iterable[int]) -> set[int]:
    """The number and, where it is an item of a list, the list's other numbers of its type."""
    holder, _, key = call.paths[leaf].rpartition("[")
    if holder in ("args", "kwargs", "") or not key.rstrip("]").isdigit():
        return {leaf}
    kind = type(call.leaves[leaf])
    return {
        j for j in places
        if call.paths[j].rpartition("[")[0] == holder and type(call.leaves[j]) is kind
    }


def _blank(call: Call, places: Iterable[int]) -> tuple[Any, ...]:
    """The key without the values of these numbers."""
    key = list(call.plain_key)
    for i in places:
        key[FIRST_LEAF + i] = (type(call.leaves[i]), "any")
    return tuple(key)


def lift(call: Call, places: Iterable[int]) -> Call:
    """The call with the numbers at these leaves as inputs."""
    chosen = frozenset(places)
    return replace(call, key=_blank(call, chosen), numbers=chosen, plain_key=call.plain_key)
