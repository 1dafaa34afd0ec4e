"""Scratch of native functions: each small one has its own, large ones have theirs in common.

    arena = arena_of(1 << 22)
    arena.start, arena.flag        # addresses: of the memory, and of a word that is 1 while in use

Functions that call one another do not meet in it, and most run one after the other: a network of
which each layer is a function wants the scratch of one layer. Whoever finds the word at 1 takes
memory of its own for the call (`python_entry`).
"""

from __future__ import annotations

import ctypes
import functools
import mmap
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradof.codegen.machine.engine import address_of
from gradof.ir import forks

SHARED = 1 << 18  # bytes: of fewer, each function keeps its own
_LOCK = forks.lock()
_LINE, _FIRST = 64, mmap.PAGESIZE  # the word of what is in common is on a page of its own


@dataclass(frozen=True)
class Arena:
    """Addresses of the memory, at a line of the cache, and of the word in the line before."""

    memory: Any
    flag: int
    start: int
    size: int


_COMMON: Arena | None = None  # the largest so far; functions hold those that came before


def arena_of(size: int) -> Arena:
    """Memory of at least so many bytes."""
    global _COMMON
    if size < SHARED:
        return _behind_a_word(np.empty(size + 2 * _LINE, np.uint8), size)
    with _LOCK:
        if _COMMON is None or _COMMON.size < size:
            room = 1 << (size - 1).bit_length()  # so that what came before is no more than it
            # a child's is its own, and pages that are let go are the system's at once
            pages = mmap.mmap(-1, room + _FIRST, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            _COMMON = _behind_a_word(pages, room)
        return _COMMON


def _behind_a_word(memory: Any, size: int) -> Arena:
    view = np.frombuffer(memory, np.uint8)
    first: int = view.__array_interface__["data"][0]
    start = _FIRST if isinstance(memory, mmap.mmap) else _LINE + -first % _LINE
    view[start - _LINE : start] = 0
    return Arena(memory, first + start - _LINE, first + start, size)


def let_go() -> None:
    """Give the pages of the common memory back to the system, if nobody is in it."""
    with _LOCK:
        if _COMMON is None or take(_COMMON.flag):
            return
        _COMMON.memory.madvise(mmap.MADV_DONTNEED, _FIRST)
        leave(_COMMON.flag)


def take(flag: int) -> bool:
    """Whether somebody was in the memory of this word; nobody else is from now on."""
    return bool(_taker()(flag))


def leave(flag: int) -> None:
    """Nobody is in the memory of this word."""
    ctypes.c_int64.from_address(flag).value = 0


@functools.cache
def _taker() -> Any:
    text = """define i64 @take(ptr %flag) {
entry:
  %before = atomicrmw xchg ptr %flag, i64 1 acquire
  ret i64 %before
}
"""
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
    return kind(address_of(text, "take", "quick"))
