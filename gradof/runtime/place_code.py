"""The code that reads a place of Python's state, for the checks of `check_writer`.

    place_code(bind, place)        # "f0.__dict__['scale']", where bind(obj, "f") gave "f0"
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradof.tracer.state.caches import read_cached
from gradof.tracer.state.places import built, read_place

Bind = Callable[[Any, str], str]  # gives an object a name


class NotSimple(Exception):
    """The call is none that the generated check covers."""


def key_code(bind: Bind, key: Any) -> str:
    """The code for a key."""
    return repr(key) if type(key) in (int, str) else bind(key, "key")


def place_code(bind: Bind, place: Any) -> str:
    """The code that reads a place of Python's state."""
    if place.kind == "index":
        return f"{place_code(bind, place.container)}[{place.key}]"
    if place.kind == "cell":
        return f"{bind(place.container, 'cell')}.cell_contents"
    if place.kind == "cached":
        container, key = bind(place.container, "cached"), bind(place.key, "key")
        return f"{bind(read_cached, 'read')}({container}, {key})"
    if place.kind == "attr":
        return f"{place_code(bind, place.container)}.__dict__[{key_code(bind, place.key)}]"
    if place.kind == "entry":
        code = place_code(bind, place.container)
        return f"{bind(built, 'built')}({code})[{key_code(bind, place.key)}]"
    if place.kind == "script":
        return f"{bind(place.container.getattr, 'of')}({key_code(bind, place.key)})"
    if place.kind in ("block", "slot", "class", "step"):
        return f"{bind(read_place, 'read')}({bind(place, 'place')})"
    if place.kind != "item":
        raise NotSimple
    return f"{bind(place.container, 'in')}[{key_code(bind, place.key)}]"
