"""A container of the caller's: what is in it, the way to it, and filling it again.

>>> reach((({"w": [1, 2]},), {}), (0, 0, 0))
[1, 2]
>>> contents({"a": 1})
({'a': 1}, {})
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from gradof.tracer.core.containers import drop_attribute, put_attribute
from gradof.tracer.core.pytree import take_apart
from gradof.tracer.state.changes import raw_dict

Contents = tuple[Any, dict[str, Any]]  # items (of a dict, or a list of them, or None); attributes


def reach(given: Sequence[Any], path: Sequence[int]) -> Any:
    """The caller's container at the end of a path from `(args, kwargs)`."""
    first, second, *rest = path
    arguments = given[first]
    value = list(arguments.values())[second] if isinstance(arguments, dict) else arguments[second]
    for i in rest:
        parts = take_apart(value)
        assert parts is not None
        value = parts[2][i]
    return value


def refill(container: Any, contents: Contents) -> None:
    """Give a container these items and attributes, and no others."""
    items, attributes = contents
    if isinstance(container, dict):
        raw = raw_dict(container)
        raw.clear(container)
        for key, value in items.items():
            raw.__setitem__(container, key, value)
    elif items is not None:
        container.clear()
        container.extend(items)
    for name in attributes_of(container).keys() - attributes.keys():
        drop_attribute(container, name)
    for name, value in attributes.items():
        put_attribute(container, name, value)


def contents(value: Any) -> Contents | None:
    """Items and attributes; None for what keeps more than these, or elsewhere."""
    if isinstance(value, dict):
        raw = raw_dict(value)
        return {key: raw.__getitem__(value, key) for key in raw.keys(value)}, attributes_of(value)
    if type(value) in (list, deque):
        return list(value), {}
    parts = take_apart(value)
    if parts is None or parts[0] != "dataclass":
        return None
    return None, attributes_of(value)


def attributes_of(value: Any) -> dict[str, Any]:
    """The attributes of an instance, those in slots included where they are all there is of it."""
    parts = take_apart(value)
    if parts is not None and parts[0] == "dataclass":
        return dict(zip(parts[1], parts[2], strict=True)) | getattr(value, "__dict__", {})
    return dict(getattr(value, "__dict__", {}))
