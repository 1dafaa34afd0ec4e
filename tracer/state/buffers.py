"""Arrays, memoryviews, data of ctypes and locks: their elements before a run, and after it.

    buffers = Buffers()
    buffers.see(array)          # before code runs that may write to it
    buffers.changed()           # those that were written to, as they were again
"""

from __future__ import annotations

import ctypes
import threading
from array import array
from collections.abc import Iterable
from typing import Any

import numpy as np

LOCK = type(threading.Lock())
_LARGEST = 1 << 28  # bytes of an array that are copied
_BUFFERS = frozenset({array, memoryview, LOCK})
_C_DATA: type = ctypes.c_int.__mro__[-2]  # what all classes of ctypes' data have in common


def is_buffer(kind: Any) -> bool:
    """Whether instances have a state that is not seen in attributes, and `elements` tells."""
    return kind in _BUFFERS or issubclass(kind, _C_DATA)


def elements(obj: Any) -> Any:
    """What an array, a memoryview, data of ctypes or a lock holds, so that it can be compared."""
    if isinstance(obj, _C_DATA):
        return bytes(obj)  # type: ignore[call-overload]
    if isinstance(obj, np.ndarray):
        obj = obj.view(np.ndarray)  # a subclass may refuse, as astropy's Quantity does
    return obj.locked() if type(obj) is LOCK else obj.tobytes()


def put_elements(obj: Any, before: Any) -> None:
    """Make an array, a memoryview, data of ctypes or a lock as `elements` has told it."""
    if type(obj) is LOCK:
        obj.acquire() if before else obj.release()
    elif isinstance(obj, _C_DATA):
        ctypes.memmove(ctypes.byref(obj), before, len(before))  # type: ignore[arg-type]
    elif isinstance(obj, np.ndarray):
        obj.view(np.ndarray)[...] = np.frombuffer(before, obj.dtype).reshape(obj.shape)
    elif type(obj) is memoryview:
        obj.cast("B")[:] = before
    else:
        del obj[:]
        obj.frombytes(before)


class Buffers:
    """See the module docstring; `kept` has them by id, with their elements."""

    def __init__(self) -> None:
        self.kept: dict[int, tuple[Any, Any]] = {}

    def see(self, obj: Any) -> None:
        """Keep the elements, if this is the first time it is seen and it is not too large."""
        if id(obj) not in self.kept and getattr(obj, "nbytes", 0) <= _LARGEST:
            self.kept[id(obj)] = obj, elements(obj)

    def entry(self, obj: Any) -> Any:
        """The elements at first sight; of what was not seen, as they are."""
        found = self.kept.get(id(obj))
        return elements(obj) if found is None else found[1]

    def written(self) -> list[Any]:
        """Those that were written to."""
        return [obj for obj, before in self.kept.values() if elements(obj) != before]

    def forget(self, found: Iterable[Any]) -> None:
        """Leave these as they are: they are the run's own."""
        for obj in found:
            del self.kept[id(obj)]

    def changed(self) -> list[Any]:
        """Those that were written to, as they were again."""
        found = self.written()
        for obj in found:
            put_elements(obj, self.kept[id(obj)][1])
        return found
