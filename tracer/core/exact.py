"""What of a value that is not traced belongs into a key: equal only where code sees no difference.

    1 == 1.0 == True                        three keys
    Config("a", 2.0) == Config("a", 3.0)    two keys, where `__eq__` compares names alone

An `__eq__` of the user's need not look at all that a class holds, so of objects that have one the
identity counts, as of those that have none.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from datetime import datetime, time
from decimal import Decimal
from functools import lru_cache
from types import FunctionType
from typing import Any

import numpy as np

_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: made by a class statement, or while a module is loaded
_BY_IDENTITY: Any = object.__eq__
_BY_TEXT = (float, complex, Decimal, datetime, time)  # whose equals may be told apart


class Same:
    """An object in a key, equal to itself alone; the key does not keep it alive, where it may."""

    __slots__ = ("_id", "_value")

    def __init__(self, value: Any) -> None:
        self._id = id(value)
        self._value: Callable[[], Any]
        try:
            self._value = weakref.ref(value)
        except TypeError:  # its class has no weak references
            self._value = lambda: value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Same) or self._id != other._id:
            return False
        value = self._value()
        return self is other or (value is not None and value is other._value())

    def __hash__(self) -> int:
        return self._id


def exact(value: Any) -> tuple[Any, ...]:
    """The part of a key that stands for a value; TypeError for one without a hash."""
    cls: type = type(value)
    hash(value)
    if _is_by_text(cls):
        return cls, repr(value)
    if cls in (tuple, frozenset):
        return cls, cls(map(exact, value))
    return cls, value if _compares_all(cls) and not is_made(cls) else Same(value)


def is_value(value: Any) -> bool:
    """Whether equal keys mean equal values, not that it is one object."""
    cls: type = type(value)
    if cls in (tuple, frozenset):
        return all(map(is_value, value))
    return _is_by_text(cls) or (cls.__eq__ is not _BY_IDENTITY and _compares_all(cls))


def _is_by_text(cls: type) -> bool:
    return cls in _BY_TEXT or (issubclass(cls, np.number) and cls.__module__ == "numpy")


def is_made(cls: type) -> bool:
    """Whether each instance of a class is an object of its own, which may go before its key."""
    plain = cls.__eq__ is _BY_IDENTITY and not issubclass(cls, type)
    return plain and (cls is FunctionType or bool(cls.__flags__ & _HEAP_TYPE))


@lru_cache(maxsize=4096)
def _compares_all(cls: type) -> bool:
    """Whether equal instances of a class are alike in all that code may ask of them."""
    if cls.__eq__ is _BY_IDENTITY:
        return True
    if issubclass(cls, weakref.ref):
        return False
    known = cls.__module__.partition(".")[0] in sys.stdlib_module_names - {"__main__"}
    return known or not cls.__flags__ & _HEAP_TYPE
