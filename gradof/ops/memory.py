"""Memory of large arrays, used again.

    y = empty((512, 512), np.dtype("f8"))     # as np.empty; where an array of that size is gone,
                                              # in its memory

Note [Memory that is used again]
Memory of megabytes comes from the kernel page by page, each a fault and zeroed, and goes back there
when the array does: for an array of two megabytes about a millisecond, longer than to fill it.
Arrays of `LEAST` bytes and more therefore get memory that is taken back when they and all views of
them are gone, torch's included, and given to the next of about that size. Up to `limit()` bytes are
kept so (GRADOF_KEPT_MB, 128 by default; 0 keeps none), those longest unused go first.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradof.errors import ConfigError

LEAST = 1 << 20  # bytes; malloc keeps smaller ones itself
_PAGE = 1 << 16  # sizes are multiples of it
ALIGNED = 64  # bytes of a cache line, which a vector's store should not cross
_LOCK = threading.Lock()
_KEPT: deque[NDArray[np.uint8]] = deque()  # the longest unused first
# A reference is told of in whatever thread and line the last view goes, perhaps with the lock held.
_RETURNED: deque[NDArray[np.uint8]] = deque()
_IN_USE: dict[int, weakref.ref[Any]] = {}


@functools.cache
def limit() -> int:
    """Bytes that are kept at most; ConfigError where GRADOF_KEPT_MB is no number of megabytes."""
    text = os.environ.get("GRADOF_KEPT_MB", "128")
    if not (text.isascii() and text.isdigit()):
        raise ConfigError(f"GRADOF_KEPT_MB is {text!r}", hint="a number of megabytes is due")
    return int(text) << 20


def empty(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """An array without content, of memory that no other array has."""
    return maker(shape, dtype)()


def is_aligned(size: int) -> bool:
    """Whether arrays of so many bytes begin at a multiple of ALIGNED."""
    return size >= LEAST and limit() > 0


def maker(shape: tuple[int, ...], dtype: Any) -> Callable[[], NDArray[Any]]:
    """What makes such an array at each call."""
    size = math.prod(shape) * dtype.itemsize
    if not is_aligned(size):
        return functools.partial(np.empty, shape, dtype)
    return functools.partial(_large, shape, dtype, -(-size // _PAGE) * _PAGE)


def _large(shape: tuple[int, ...], dtype: Any, size: int) -> NDArray[Any]:
    memory = _taken(size)
    owner = _type_of(memory.nbytes).from_buffer(memory)  # the last view's end is its own
    reference = weakref.ref(owner, functools.partial(_back, memory))
    _IN_USE[id(reference)] = reference
    return np.ndarray(shape, dtype, buffer=owner)


def kept() -> int:
    """Bytes that no array has now, and that are kept for the next."""
    with _LOCK:
        _collect()
        return sum(m.nbytes for m in _KEPT)


def clear() -> None:
    """Give back what is kept."""
    with _LOCK:
        _RETURNED.clear()
        _KEPT.clear()


def _back(memory: NDArray[np.uint8], reference: weakref.ref[Any]) -> None:
    del _IN_USE[id(reference)]
    _RETURNED.append(memory)


def _taken(size: int) -> NDArray[np.uint8]:
    """Memory of at least this size, and of less than a quarter more."""
    with _LOCK:
        _collect()
        best, least = -1, size + size // 4
        for k, memory in enumerate(_KEPT):
            if size <= memory.nbytes <= least:  # of equal ones the last
                best, least = k, memory.nbytes
        if best >= 0:
            memory = _KEPT[best]
            del _KEPT[best]
            return memory
    fresh = np.empty(size + ALIGNED, np.uint8)  # malloc's is 16 bytes behind a page's beginning
    skip = -fresh.__array_interface__["data"][0] % ALIGNED
    return fresh[skip : skip + size]


def _collect() -> None:
    if not _RETURNED:
        return
    while _RETURNED:
        _KEPT.append(_RETURNED.popleft())
    total = 0
    for memory in _KEPT:
        total += memory.nbytes
    while total > limit():
        total -= _KEPT.popleft().nbytes


@functools.lru_cache(maxsize=64)
def _type_of(size: int) -> Any:
    return ctypes.c_char * size


def _after_fork() -> None:
    """Another thread may have held the lock, which nobody gives back in the child."""
    global _LOCK
    _LOCK = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
