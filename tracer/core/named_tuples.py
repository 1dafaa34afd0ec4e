"""Named tuples, and those that have attributes beside their fields, as many results of scipy's.

    found = scipy.stats.linregress(x, y)      # five fields, and found.intercept_stderr
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def split_named(fields: tuple[str, ...], tree: Any) -> tuple[tuple[str, ...], Sequence[Any]]:
    """The names of fields and attributes, and what they are."""
    rest = getattr(tree, "__dict__", None)
    return ((*fields, *rest), [*tree, *rest.values()]) if rest else (fields, tree)


def has_room(cls: Any) -> bool:
    """Whether the instances of a class of named tuples may have attributes beside their fields."""
    return issubclass(cls, tuple) and bool(cls.__dictoffset__)


def has_attributes(tree: Any) -> bool:
    """Whether a TreeDef is that of a named tuple with attributes beside its fields."""
    return tree.kind == "namedtuple" and len(tree.keys) > len(tree.type._fields)


def join_named(cls: Any, names: tuple[str, ...], parts: list[Any]) -> Any:
    """The inverse. With attributes not by its constructor, which may ask for others."""
    n = len(cls._fields)
    if len(names) == n:
        return cls(*parts)
    made: Any = tuple.__new__(cls, parts[:n])
    vars(made).update(zip(names[n:], parts[n:], strict=True))
    return made
