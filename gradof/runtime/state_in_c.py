"""What objects of classes in C say of themselves: state that no place of Python's holds.

    self.simulation.time        # each read may give another number
    for holds, text in ((OfC(obj, names), path), ...): ...

They are asked again at each call: of the names that the code mentions, each attribute that gives a
plain value, an array, or one and the same object; and the items of one that has some, if they are
as plain, and few. Other values, made anew at each read, are not compared. Code that may call a
method of theirs is not compiled (`gradof.tracer.state.in_c`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import numpy as np

from gradof import tuning
from gradof.ir.contents import checksum
from gradof.tracer.state.in_c import has_items_in_c

_PLAIN = frozenset({int, float, complex, bool, str, bytes, type(None)})
_NOTHING = object()
_ITEMS = "its items"
_MANY = 1000  # items


class OfC:
    """Whether an object in C says what it said."""

    def __init__(self, obj: Any, names: Iterable[str]) -> None:
        self._obj, cls = obj, cast(Any, type(obj))
        asked = [*sorted(names), *([_ITEMS] if has_items_in_c(cls) else ())]
        self._then = {name: self._now(name) for name in asked}
        self._then = {
            name: value for name, value in self._then.items()
            if value is not _NOTHING and _same(value, self._now(name))
        }  # fmt: skip

    def _now(self, name: str) -> Any:
        try:
            found = _items(self._obj) if name is _ITEMS else getattr(self._obj, name)
        except Exception:  # a closed connection's; what raises raised in the trace, too
            return _NOTHING
        if type(found) is dict:  # of a bit generator
            return repr(found)
        if type(found) is np.ndarray and found.nbytes <= tuning.CHECKED_BYTES:
            return found.dtype, found.shape, checksum(found)
        return found

    def __bool__(self) -> bool:
        return bool(self._then)

    def __call__(self) -> bool:
        """Whether it does."""
        return all(_same(value, self._now(name)) for name, value in self._then.items())


def _items(obj: Any) -> Any:
    return tuple(obj[k] for k in range(len(obj))) if len(obj) <= _MANY else _NOTHING


def _same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if type(a) is tuple:
        return len(a) == len(b) and all(map(_same, a, b))
    return (type(a) in _PLAIN or isinstance(a, np.dtype)) and repr(a) == repr(b)
