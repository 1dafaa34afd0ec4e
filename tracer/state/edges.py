"""Steps from an object to what it holds, with the places these are read at again."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

from gradof.tracer.state.held import Held
from gradof.tracer.state.origins import Step
from gradof.tracer.state.places import Place

ATOMS = frozenset({type(None), bool, int, float, complex, str, bytes, range, slice})


class Edge(NamedTuple):
    """One step from an object, the value at entry, and its place."""

    step: Step
    child: Any
    place: Place


def edges_of_built(obj: Any, at: Place, held: Held) -> Iterator[Edge]:
    """What a list, dict or weak reference holds, by way of the place in which there is another.

    A set holds plain values alone, which its guard has.
    """
    if isinstance(obj, set):
        return
    if isinstance(obj, weakref.ref):
        if (child := obj()) is not None:
            yield Edge(Step("refers"), child, Place("refer", at, None))
        return
    entry = held.entry(obj)
    for key, value in entry.items() if isinstance(obj, dict) else enumerate(entry):
        if type(key) not in ATOMS:
            yield Edge(Step("given", key), key, Place("fixed", obj, None))
        yield Edge(Step("item", key), value, Place("entry", at, key))
