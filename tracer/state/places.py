"""Places of Python's state: where a value is read again, written and taken away.

>>> place = Place("item", {"k": 1}, "k")
>>> write_place(place, 2)
>>> read_place(place)
2
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from typing import Any, NamedTuple

from gradof.tracer.state.caches import read_cached
from gradof.tracer.state.changes import MISSING, raw_dict
from gradof.tracer.state.frames import arrays_of

# Kinds of places at which a state guard looks at an array's elements; a frame guards its blocks.
GUARDED = frozenset({
    "item", "cell", "index", "attr", "entry", "class", "slot", "script", "step", "fixed", "itself",
})
_WITHIN = frozenset({"index", "attr", "entry", "refer", "content"})  # a place is their container


class Place(NamedTuple):
    """Where a value is read again.

    `kind` is "item" of a dict or list, "index" into a tuple that is at another place, "attr" of an
    object, "entry" of a dict or list, "refer", what a weak reference leads to, and "content", all
    that a dict or list has, of one that is at another place (Note [Renewed objects] in
    `runtime.state_renewed`), "cell",
    "slot" (the key is its descriptor), "class" (an attribute), "cached" (by `functools.lru_cache`,
    under a key), "block" (an array of a data frame), "script" (an attribute that torch has, of a
    module of torch.jit), "step" (taken again), "type" (of an object), "fixed", which cannot change,
    or "itself", the container.
    """

    kind: str
    container: Any
    key: Any


def place_key(place: Place) -> Any:
    """A hashable name of a place, good while its container lives."""
    if place.kind in _WITHIN:
        return place.kind, place_key(place.container), place.key
    plain = place.kind != "cached" and isinstance(place.key, (str, int, tuple, type(None)))
    key = place.key if plain else id(place.key)
    container = place.container.of if isinstance(place.container, Raw) else place.container
    return place.kind, id(container), key


def read_place(place: Place) -> Any:
    """What is there now; LookupError, AttributeError or ValueError if it is gone."""
    kind, container, key = place
    if kind == "cell":
        return container.cell_contents
    if kind == "slot":
        return key.__get__(container)
    if kind == "index":
        found = read_place(container)
        if not isinstance(found, tuple):
            raise LookupError(f"there is no tuple any more, but a {type(found).__name__}")
        return found[key]
    if kind == "attr":
        return getattr(read_place(container), "__dict__", {})[key]
    if kind == "entry":
        return built(read_place(container))[key]
    if kind == "refer":
        return _referent(read_place(container))
    if kind == "content":
        return read_place(container)
    if kind == "cached":
        return read_cached(container, key)
    if kind == "block":
        return arrays_of(container)[key]
    if kind == "itself":
        return container
    if kind == "step":
        return key.read(container)
    if kind == "script":
        found = container.getattr(key)
        return tuple(found) if type(found) is list else found
    return vars(container)[key] if kind == "class" else container[key]


def built(found: Any) -> Any:
    """A list or dict itself; LookupError for anything else."""
    if type(found) in (list, dict, OrderedDict):
        return found
    raise LookupError(f"there is no list or dict any more, but a {type(found).__name__}")


def _referent(found: Any) -> Any:
    there = found() if type(found) is weakref.ref else None
    if there is None:
        raise LookupError("there is no weak reference to an object any more")
    return there


def resolved(place: Place) -> Place:
    """The place in the object that is there now, where the container is a place itself."""
    if place.kind == "attr":
        return Place("item", vars(read_place(place.container)), place.key)
    if place.kind == "entry":
        return Place("item", built(read_place(place.container)), place.key)
    return place


def write_place(place: Place, value: Any) -> None:
    """Put a value there."""
    kind, container, key = place
    if kind == "cell":
        container.cell_contents = value
    elif kind == "slot":
        key.__set__(container, value)
    elif kind == "attr":
        vars(read_place(container))[key] = value
    elif kind == "entry":
        read_place(container)[key] = value
    elif kind == "index":
        write_place(container, with_item(read_place(container), key, value))
    elif kind == "class":
        setattr(container, key, value)
    elif isinstance(container, Raw):
        raw_dict(container.of).__setitem__(container.of, key, value)
    else:
        container[key] = value


def with_item(items: Any, n: int, value: Any) -> Any:
    """A tuple of the same class, named or not, with another item."""
    made = (*items[:n], value, *items[n + 1 :])
    return made if type(items) is tuple else type(items)._make(made)


def written_at(place: Place) -> Place:
    """The place that is written to where a value is put into one: a tuple is made anew."""
    return written_at(place.container) if place.kind == "index" else place


def remove_place(place: Place) -> None:
    """Take away what is there."""
    kind, container, key = place
    if kind == "cell":
        del container.cell_contents
    elif kind == "slot":
        key.__delete__(container)
    elif kind == "attr":
        del vars(read_place(container))[key]
    elif kind == "entry":
        del read_place(container)[key]
    elif kind == "class":
        delattr(container, key)
    elif isinstance(container, (dict, Raw)):
        items = container.of if isinstance(container, Raw) else container
        raw_dict(items).__delitem__(items, key)
    else:
        del container[key]


def fill(container: Any, value: Any, keep: bool) -> None:
    """Give a list, dict, set, deque or bytearray these items, with `keep` besides its own."""
    if not keep:
        container.clear()
    if isinstance(container, (dict, set)):
        container.update(value)
    else:
        container.extend(value)


class Raw:
    """A dict whose class makes its own items, read as it is stored."""

    __slots__ = ("of",)

    def __init__(self, of: dict[Any, Any]) -> None:
        self.of = of

    def __getitem__(self, key: Any) -> Any:
        found = dict.get(self.of, key, MISSING)  # __getitem__ would ask for __missing__
        if found is MISSING:
            raise KeyError(key)
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Raw) and other.of is self.of

    def __hash__(self) -> int:
        return id(self.of)


def makes_items(cls: type[dict[Any, Any]]) -> bool:
    """Whether reading an item may make it."""
    return cls.__getitem__ is not dict.__getitem__ or hasattr(cls, "__missing__")
