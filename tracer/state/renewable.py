"""Which objects can count by what is in them: Note [Renewed objects] in `runtime.state_renewed`."""

from __future__ import annotations

import enum
import functools
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from types import MemberDescriptorType
from typing import Any

from gradof.tracer.state.frames import is_frame
from gradof.tracer.state.heard import is_heard
from gradof.tracer.state.kinds import HEAP, module_of

BUILT = frozenset({list, dict, OrderedDict, set, weakref.ref})
_PLAIN = (str, bytes, int, type(None))  # of one type equal ones are one
# Kinds of places whose container is itself a place: read anew on the way to what they hold
NESTED = frozenset({"attr", "entry", "refer", "index"})
_WORD = object.__basicsize__ // 2
# Members of an enumeration are told by who they are
_OTHERS = (type, dict, list, tuple, set, frozenset, Iterator, enum.Enum)


def is_renewable(obj: Any) -> bool:
    """Whether an object is a list, dict, set of plain values or weak reference.

    Or one of `has_attributes_alone`.
    """
    if type(obj) is set:
        return all(type(item) in _PLAIN for item in obj)
    return type(obj) in BUILT or has_attributes_alone(obj)


def has_attributes_alone(obj: Any) -> bool:
    """Whether an object is of a class of the user's, and has all its state in attributes."""
    cls = type(obj)
    if not cls.__flags__ & HEAP or isinstance(obj, _OTHERS) or is_frame(cls):
        return False
    attributes = getattr(obj, "__dict__", None)
    if type(attributes) is not dict or "_modules" in attributes or not is_heard(module_of(cls)):
        return False
    kind: Any = cls
    return bool(_adds_nothing(kind))


@functools.lru_cache(maxsize=1024)
def _adds_nothing(cls: Any) -> bool:
    """Whether instances have no slots and nothing of C's, as a `functools.partial` has."""
    members = (member for base in cls.__mro__[:-1] for member in vars(base).values())
    if any(type(member) is MemberDescriptorType for member in members):
        return False
    tables = (cls.__dictoffset__ > 0) + (cls.__weakrefoffset__ > 0)
    size: int = cls.__basicsize__
    allowed: int = object.__basicsize__ + _WORD * tables
    return size <= allowed


class Renewed:
    """The keys of places that hold another object at each call.

    So do the places within it, but for those that are `kept`.
    """

    def __init__(
        self, keys: frozenset[Any] = frozenset(), kept: frozenset[Any] = frozenset()
    ) -> None:
        self._keys, self._kept = keys, kept

    def __bool__(self) -> bool:
        return bool(self._keys)

    def __contains__(self, key: Any) -> bool:
        while key not in self._kept:
            if key in self._keys:
                return True
            if key[0] not in NESTED:
                return False
            key = key[1]
        return False


NOWHERE = Renewed()
