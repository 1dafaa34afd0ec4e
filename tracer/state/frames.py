"""Data frames of pandas: data, as arrays are, and no Python objects to be followed.

    is_frame(type(df))          a DataFrame, a Series or an Index, or of a subclass
    arrays_of(df)               the arrays of its blocks, which may be inputs of a graph
    frame = Frame(df)           what it holds now
    frame()                     whether it holds the same: axes, dtypes, names, all elements
    Kept(df).put_back()         make it hold what it held then

What pandas keeps beside that (item caches, managers of blocks, indexing engines) follows from it.
A frame leads to pandas' classes, and these to all of its modules: nothing of them is state of the
user's. Attributes that the user has set on a frame are followed, where code names them.
"""

from __future__ import annotations

import copy
import functools
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

from gradof.ir.contents import checksum

_ATOMS = (str, bytes, int, float, complex, bool, type(None))
# What pandas itself keeps in the `__dict__` of frames.
_BOOKS = frozenset({
    "_mgr", "_item_cache", "_attrs", "_flags", "_is_copy", "_cacher", "_cache", "_name", "_index",
    "_id", "_data", "_references", "_no_setting_name", "_names", "_hash_cache", "_engine",
})  # fmt: skip
_KINDS = frozenset({"NDFrame", "Index"})


def is_frame(cls: Any) -> bool:
    """Whether instances are data frames, series or indices of pandas."""
    return _is_frame(cls)


@functools.lru_cache(maxsize=4096)
def _is_frame(cls: Any) -> bool:
    return any(
        base.__name__ in _KINDS and str(base.__module__).startswith("pandas.core.")
        for base in getattr(cls, "__mro__", ())
    )


def blocks_of(frame: Any) -> tuple[Any, ...]:
    """The blocks of a frame's manager; an index has none."""
    manager = getattr(frame, "_mgr", None)
    return () if manager is None else tuple(manager.blocks)


def arrays_of(frame: Any) -> list[np.ndarray[Any, Any]]:
    """The plain arrays that a frame keeps numbers in, in the order of its blocks."""
    return [
        block.values for block in blocks_of(frame)
        if type(block.values) is np.ndarray and block.values.dtype.kind in "biufc"
    ]  # fmt: skip


def attributes_of(frame: Any) -> dict[str, Any]:
    """What the user has set on a frame."""
    return {k: v for k, v in vars(frame).items() if k not in _BOOKS}


class Frame:
    """What a frame holds; see the module docstring."""

    def __init__(self, of: Any) -> None:
        self.of = of
        self._axes = [(axis, tuple(axis.names)) for axis in _axes_of(of)]
        self._blocks = [_block(block) for block in blocks_of(of)]
        self._name = getattr(of, "name", None)

    def of_other(self, other: Any) -> Frame:
        """The same of another frame."""
        made = copy.copy(self)
        made.of = other
        return made

    def __call__(self) -> bool:
        """Whether the frame is as it was, however often it was taken apart meanwhile."""
        axes, blocks = _axes_of(self.of), blocks_of(self.of)
        if len(axes) != len(self._axes) or len(blocks) != len(self._blocks):
            return False
        if not _is_equal(getattr(self.of, "name", None), self._name):
            return False
        if not all(map(_is_same_axis, axes, self._axes)):
            return False
        if any(axis is not known for axis, (known, _) in zip(axes, self._axes, strict=True)):
            # equal, and known at once from now on: indices are compared by their elements
            self._axes = [(a, names) for a, (_, names) in zip(axes, self._axes, strict=True)]
        return all(known.holds(block) for known, block in zip(self._blocks, blocks, strict=True))


class Kept(Frame):
    """A frame that can be put back; its arrays are looked after by others."""

    def __init__(self, of: Any) -> None:
        super().__init__(of)
        self._manager = of.copy(deep=False)._mgr if blocks_of(of) else None

    def put_back(self) -> None:
        """Make the frame hold what it held."""
        if self._manager is not None:
            for forget in ("_reset_cache", "_clear_item_cache"):  # as pandas' `_update_inplace`
                getattr(self.of, forget, _nothing)()
            object.__setattr__(self.of, "_mgr", self._manager)
            if "_name" in vars(self.of):
                object.__setattr__(self.of, "_name", self._name)
        for axis, names in self._axes:
            if tuple(axis.names) != names:
                axis.names = names


class Frames:
    """The frames that were there before a run."""

    def __init__(self) -> None:
        self._kept: dict[int, Kept] = {}

    def see(self, frame: Any, names: Iterable[str], keep: bool) -> list[Any]:
        """Keep what a frame holds, if this is the first time; what it leads to by these names."""
        if keep and id(frame) not in self._kept:
            self._kept[id(frame)] = Kept(frame)
        named = attributes_of(frame)
        return [*arrays_of(frame), *(named[name] for name in names if name in named)]

    def changed(self) -> list[Any]:
        """Those that were written to, as they were again."""
        found = [frame for frame in self._kept.values() if not frame()]
        for frame in found:
            frame.put_back()
        return [frame.of for frame in found]


def _nothing() -> None:
    """What a version of pandas without such a cache does."""


def _axes_of(frame: Any) -> list[Any]:
    pandas = sys.modules["pandas"]
    return [frame] if isinstance(frame, pandas.Index) else list(frame.axes)


def _is_same_axis(axis: Any, known: tuple[Any, tuple[Any, ...]]) -> bool:
    """Whether indices are equal in all that code may ask of them; their elements never change."""
    before, names = known
    if tuple(axis.names) != names:
        return False
    if axis is before:
        return True
    return (
        type(axis) is type(before) and axis.dtype == before.dtype and bool(axis.equals(before))
    )


def _is_equal(a: Any, b: Any) -> bool:
    if type(a) is tuple and type(b) is tuple and len(a) == len(b):
        return all(map(_is_equal, a, b))
    return a is b or (type(a) is type(b) and isinstance(a, _ATOMS) and bool(a == b))


class _Block:
    """The places of a block in its frame, and its elements."""

    def __init__(self, block: Any) -> None:
        self.places = _places(block)

    def holds(self, block: Any) -> bool:
        """Whether another block, or this one later, is like it."""
        return _places(block) == self.places and self.has(block.values)

    def has(self, values: Any) -> bool:
        """Whether elements are these."""
        raise NotImplementedError


class _Numbers(_Block):
    def __init__(self, block: Any) -> None:
        super().__init__(block)
        self.known = checksum(block.values)

    def has(self, values: Any) -> bool:
        return type(values) is np.ndarray and checksum(values) == self.known


class _Objects(_Block):
    """Of an array of objects: equal text and numbers, and the very same objects else."""

    def __init__(self, block: Any) -> None:
        super().__init__(block)
        self.known = block.values.copy()

    def has(self, values: Any) -> bool:
        if type(values) is not np.ndarray or values.dtype != object:
            return False
        if values.shape != self.known.shape:
            return False
        return all(map(_is_equal, values.flat, self.known.flat))


class _Extension(_Block):
    """Of an array of pandas' own: categories, times with a zone, integers that may be missing."""

    def __init__(self, block: Any) -> None:
        super().__init__(block)
        self.known = block.values.copy()

    def has(self, values: Any) -> bool:
        same = type(values) is type(self.known) and values.dtype == self.known.dtype
        return same and bool(values.equals(self.known))


def _block(block: Any) -> _Block:
    if type(block.values) is not np.ndarray:
        return _Extension(block)
    return _Objects(block) if block.values.dtype.hasobject else _Numbers(block)


def _places(block: Any) -> bytes:
    return bytes(np.ascontiguousarray(block.mgr_locs.as_array).tobytes())
