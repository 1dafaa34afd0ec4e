"""Objects that are made anew for each call, guarded by what is in them and not by who they are.

    run.context = Context(training=True)       # another one for each call
    loss(x)                                    # reads run.context.training

Note [Renewed objects]
An object in Python's state counts as who it is, so such a function would be traced at each call.
Where the trace before found another object of the same class in a place, the place is *renewed*:
what code has read of the object is looked at by way of the place (`Place("attr", ...)`), as is done
with tuples, and what it sets is set in the object that is there at the call. Some things leave the
place to be compared as ever: the run puts another object there, or hands the object on, within its
result or what it stores; or the object is found in a place as well that is not renewed. Lists and
dicts are compared by how they are built (`state_rewritten`).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gradof.runtime.state_check import GONE
from gradof.runtime.state_values import Checked
from gradof.tracer.core.result import ConstantOut, Store, Traced
from gradof.tracer.state.places import Place, place_key, read_place
from gradof.tracer.state.reach import Edge
from gradof.tracer.state.renewable import is_renewable

if TYPE_CHECKING:
    from gradof.runtime.cache import Cache, Entry
    from gradof.runtime.state import StateGuard


_BUILT = (list, dict)


class RenewedObjects:
    """The objects of renewed places, as a guard's walk comes by them."""

    def __init__(self, keys: frozenset[Any]) -> None:
        self._keys = keys
        self.seeds: set[int] = set()  # ids of what the walk begins with
        self.first: dict[int, Place] = {}  # by the id of an object, where it was found first
        self.conflicts: set[Any] = set()  # keys of places whose objects are elsewhere, too

    def place_of(
        self, edge: Edge, seen: Container[int], shared: list[tuple[Place, Place, str]], shown: str
    ) -> Place | None:
        """Where the object that an edge leads to counts by what is in it; None of others.

        `seen` are the ids that edges have led to; of an object in two such places `shared` is told.
        """
        if not self._keys or not is_renewable(edge.child):
            return None
        key = place_key(edge.place)
        is_renewed, first = key in self._keys, self.first.get(id(edge.child))
        if first is None:
            if not is_renewed:
                return None
            if id(edge.child) in seen or id(edge.child) in self.seeds:
                self.conflicts.add(key)
                return None
            self.first[id(edge.child)] = edge.place
            return edge.place
        if not is_renewed:
            self.conflicts.add(place_key(first))
            return None
        if edge.place != first:
            shared.append((first, edge.place, shown))
        return first


class Apart:
    """Whether the objects of renewed places are still as many, and none of the others found.

    Code may ask which of two objects is which.
    """

    def __init__(self, renewed: Mapping[int, Place], seen: Mapping[int, Any]) -> None:
        """`renewed` and `seen` are by the ids of objects."""
        self._places = tuple(renewed.values())
        classes = {type(seen[key]) for key in renewed}
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


def note_renewed(cache: Cache, entry: Entry) -> None:
    """Note where another object of the same class is than this trace found."""
    guard = entry.state
    for place, expected in (
        *_places(guard.items, "item"), *_places(guard.cells, "cell"), *_places(guard.others, "")
    ):  # fmt: skip
        if place_key(place) in cache.kept:
            continue
        if _are_alike(_there(place), expected):
            cache.renewed[place_key(place)] = place


def with_renewed(traced: Traced, renewed: Iterable[Place]) -> Traced:
    """The trace, whose stores set attributes of the objects that are in these places at a call."""
    homes: dict[int, Place] = {}
    for place in renewed:
        homes.setdefault(id(getattr(_there(place), "__dict__", None)), place)
    if not any(id(store.place.container) in homes for store in traced.stores):
        return traced
    return replace(traced, stores=tuple(_at_home(store, homes) for store in traced.stores))


def _at_home(store: Store, homes: Mapping[int, Place]) -> Store:
    kind, container, key = store.place
    home = homes.get(id(container)) if kind == "item" else None
    return store if home is None else replace(store, place=Place("attr", home, key))


def _there(place: Place) -> Any:
    """What a place holds; None where it is gone."""
    try:
        return read_place(place)
    except GONE:
        return None


def has_to_keep(cache: Cache, traced: Traced, guard: Callable[[], StateGuard]) -> bool:
    """Whether objects of renewed places have to count as who they are: they do from now on."""
    if not cache.renewed:
        return False
    kept = _handed_on(traced, cache.renewed.values()) or guard().renewed.conflicts
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
    cls = type(expected)
    if found is expected or type(found) is not cls:
        return False
    return cls in _BUILT or is_renewable(expected)


def _handed_on(traced: Traced, places: Iterable[Place]) -> set[Any]:
    """Of renewed places the keys of those whose objects a run has changed, or handed on."""
    written = {id(store.place.container) for store in traced.stores}
    replaced = {place_key(store.place) for store in traced.stores}
    out = [o for store in traced.stores for o in store.outputs] + list(traced.outputs)
    given = {id(o.value) for o in out if isinstance(o, ConstantOut)}
    found = set()
    for place in places:
        obj, key = _there(place), place_key(place)
        ids = {id(obj), id(getattr(obj, "__dict__", obj))}
        if obj is not None and (ids & (written | given) or key in replaced):
            found.add(key)
    return found
