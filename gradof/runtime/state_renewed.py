"""Objects that are made anew for each call, guarded by what is in them and not by who they are.

    run.context = Context(training=True)       # another one for each call
    loss(x)                                    # reads run.context.training

Note [Renewed objects]
An object in Python's state counts as who it is, so such a function would be traced at each call.
Where the trace before found another object of the same class in a place, the place is *renewed*:
what code has read of the object is looked at by way of the place (`Place("attr", ...)`), as is done
with tuples, and what it sets is set in the object that is there at the call, which is handed on as
well where that is in a result. So are places within such an object; and the objects among the
arguments of a torch call are in places (`tracer.state.handed`) from the first call on. Some things
leave a place to be compared as ever: a backward of the user's may read it, or the object is found
in a place as well that is not renewed. Where the run puts another object there, and writes to the
one before or stores it, that is looked up before anything is written. Long lists and dicts are
compared by how they are built (`state_rewritten`).
"""

from __future__ import annotations

import weakref
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gradof.runtime.state_check import GONE
from gradof.runtime.state_values import Checked, is_plain
from gradof.tracer.core.result import ConstantOut, OutputLeaf, PlaceOut, Store, Traced
from gradof.tracer.state.edges import Edge
from gradof.tracer.state.handed import Handed
from gradof.tracer.state.places import Place, Raw, place_key, read_place
from gradof.tracer.state.reads import Reads
from gradof.tracer.state.renewable import BUILT, is_renewable

if TYPE_CHECKING:
    from gradof.runtime.cache import Cache, Entry


class RenewedObjects:
    """The objects of renewed places, as a guard's walk comes by them."""

    def __init__(self, reads: Reads) -> None:
        self._known, self._reads = reads.renewed, reads
        self.seeds: set[int] = set()  # ids of what the walk begins with
        self.first: dict[int, Place] = {}  # by the id of an object, where it was found first
        self.homes: dict[int, Place] = {}  # the same, by the id of what is written to
        self.conflicts: set[Any] = set()  # keys of places whose objects are elsewhere, too
        for obj, place in reads.handed.values():
            self._note(obj, place)

    def place_of(
        self, edge: Edge, seen: Container[int], shared: list[tuple[Place, Place, str]], shown: str
    ) -> Place | None:
        """Where the object that an edge leads to counts by what is in it; None of others.

        `seen` are the ids that edges have led to; of an object in two such places `shared` is told.
        """
        if not self._known or not is_renewable(edge.child):
            return None
        key = place_key(edge.place)
        is_renewed, first = key in self._known, self.first.get(id(edge.child))
        if first is None:
            if not is_renewed:
                return None
            if id(edge.child) in seen or id(edge.child) in self.seeds:
                self.conflicts.add(key)
                return None
            self._note(edge.child, edge.place)
            return edge.place
        if not is_renewed:
            self.conflicts.add(place_key(first))
            return None
        if edge.place != first:
            shared.append((first, edge.place, shown))
        return first

    def built_as(self, obj: Any) -> BuiltAs | None:
        """The guard of a list, dict, set or weak reference of these; None of other objects."""
        place = self.first.get(id(obj)) if type(obj) in BUILT else None
        if place is None:
            return None
        entry = obj if isinstance(obj, weakref.ref) else self._reads.entry(obj)
        return BuiltAs(place, type(obj), _has_now(entry))

    def forget(self) -> None:
        """Let go of what the run has read."""
        del self._reads

    def _note(self, obj: Any, place: Place) -> None:
        self.first[id(obj)] = place
        self.homes[id(obj if type(obj) in BUILT else vars(obj))] = place


class Apart:
    """Whether the objects of renewed places are still as many, and none of the others found.

    Code may ask which of two objects is which.
    """

    def __init__(self, renewed: Mapping[int, Place], seen: Mapping[int, Any]) -> None:
        """`renewed` and `seen` are by the ids of objects."""
        self._places = tuple(renewed.values())
        classes = {type(seen[key]) for key in renewed if key in seen}  # not those that grow alone
        self._others = {
            key: obj for key, obj in seen.items() if type(obj) in classes and key not in renewed
        }

    def __call__(self) -> bool:
        """Whether they are, now; LookupError where a place is gone."""
        ids = {id(read_place(place)) for place in self._places}
        return len(ids) == len(self._places) and ids.isdisjoint(self._others)


class OfClass:
    """Whether in a place there is an object of a class that lacks these names."""

    def __init__(
        self, place: Place, cls: type, missing: frozenset[str], names: tuple[str, ...] | None
    ) -> None:
        """`names` are all that it has, in order, or None where these do not matter."""
        self._place, self._class, self._missing, self._names = place, cls, missing, names

    def __call__(self) -> bool:
        """Whether there is, now; LookupError where the place is gone."""
        found = read_place(self._place)
        if type(found) is not self._class:
            return False
        attributes = vars(found)
        if self._names is not None and tuple(attributes) != self._names:
            return False
        return attributes.keys().isdisjoint(self._missing)


class BuiltAs:
    """Whether in a place there is a list, dict, set or weak reference with these items."""

    def __init__(self, place: Place, cls: type, has: Any) -> None:
        """`has` is how many a list has, the keys of a dict in order, the items of a set, or whether
        a reference leads.
        """
        self._place, self._class, self._has = place, cls, has

    def __call__(self) -> bool:
        """Whether there is, now; LookupError where the place is gone."""
        found = read_place(self._place)
        return type(found) is self._class and bool(_has_now(found) == self._has)


def _has_now(built: Any) -> Any:
    """What `BuiltAs` compares of a list, a dict, a set or a weak reference."""
    if isinstance(built, set):
        return frozenset(built), frozenset(map(type, built))  # 1 is True
    if isinstance(built, weakref.ref):
        return built() is not None
    return len(built) if isinstance(built, list) else tuple(built)


def note_renewed(cache: Cache, entry: Entry) -> None:
    """Note where another object of the same class is than this trace found."""
    guard = entry.state
    for place, expected in (
        *_places(guard.items, "item"), *_places(guard.cells, "cell"), *_places(guard.others, "")
    ):  # fmt: skip
        found = _there(place)
        if found is expected or is_plain(expected):  # such as a flag
            continue
        root = _root(place)
        if isinstance(root.container, Handed):
            cache.kept.add(place_key(root))  # each call would be traced
        elif place_key(place) not in cache.kept and _are_alike(found, expected):
            cache.renewed[place_key(place)] = place


def _root(place: Place) -> Place:
    while isinstance(place.container, Place):
        place = place.container
    return place


def with_renewed(traced: Traced, renewed: RenewedObjects) -> Traced:
    """The trace, which writes to the objects that are in renewed places at a call.

    Such an object that is handed on is read there at a call.
    """
    if not renewed.first:
        return traced
    stores = [_at_home(store, renewed.homes) for store in traced.stores]
    return replace(
        traced, outputs=_read_anew(traced.outputs, renewed.first),
        stores=tuple(replace(s, outputs=_read_anew(s.outputs, renewed.first)) for s in stores),
    )  # fmt: skip


def _read_anew(outputs: Iterable[OutputLeaf], first: Mapping[int, Place]) -> tuple[Any, ...]:
    return tuple(
        PlaceOut(None, first[id(out.value)])
        if isinstance(out, ConstantOut) and id(out.value) in first else out
        for out in outputs
    )  # fmt: skip


def _at_home(store: Store, homes: Mapping[int, Place]) -> Store:
    kind, container, key = store.place
    home = homes.get(id(container.of if isinstance(container, Raw) else container))
    if home is None or kind == "given":
        return store
    if store.mode in ("fill", "grow"):
        return replace(store, place=Place("content", home, None))
    within = "entry" if type(_there(home)) in BUILT else "attr"
    return replace(store, place=Place(within, home, key))


def _there(place: Place) -> Any:
    """What a place holds; None where it is gone."""
    try:
        return read_place(place)
    except GONE:
        return None


def has_to_keep(cache: Cache, renewed: RenewedObjects, late: Container[int]) -> bool:
    """Whether objects of renewed places have to count as who they are: they do from now on.

    `late` are the ids of those that a backward may read: it would read the object of another call.
    """
    kept = renewed.conflicts | {place_key(p) for obj, p in renewed.first.items() if obj in late}
    cache.kept |= kept
    for key in kept:
        cache.renewed.pop(key, None)
    return bool(kept)


def _places(rows: Iterable[Checked], kind: str) -> Iterator[tuple[Place, Any]]:
    """The places of a guard's rows, of cells or items, with what is expected there."""
    for container, key, expected, _ in rows:
        if isinstance(container, Place):
            if key is None:
                yield container, expected
        elif kind == "cell" or type(container) in (dict, list):
            yield Place(kind, container, key), expected


def _are_alike(found: Any, expected: Any) -> bool:
    """Whether two are other objects of one class that has all its state in attributes or items."""
    return type(found) is type(expected) and is_renewable(expected)

