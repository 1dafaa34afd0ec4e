"""The sizes of a traced array, as its user sees them: Note [Told sizes] in `lengths`."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from gradof.tracer.numpy.index import Index
from gradof.tracer.numpy.layouts import set_shape
from gradof.tracer.numpy.lengths import Length, is_users, sees_numbers, sized


class Sized:
    """The part of TracedArray that tells how large it is."""

    __slots__ = ()

    def __len__(self: Any) -> int:
        shape = self.memory.shape
        if not shape:
            raise TypeError("len() of unsized object")
        size: int = shape[0]
        return self.recorder.loops.sizes.plain(size) if is_users(sys._getframe(1)) else size

    @property
    def shape(self: Any) -> tuple[int, ...]:
        """The shape, a plain tuple: it is part of the cache key."""
        return tuple(_sizes(self)) if is_users(sys._getframe(1)) else tuple(self.memory.shape)

    @shape.setter
    def shape(self: Any, shape: Any) -> None:
        set_shape(self, sized(shape))

    @property
    def dtype(self: Any) -> np.dtype[Any]:
        """The dtype."""
        found: np.dtype[Any] = self.memory.dtype
        return found

    @property
    def ndim(self: Any) -> int:
        """Number of dimensions."""
        found: int = self.memory.ndim
        return found

    @property
    def size(self: Any) -> int:
        """Number of elements."""
        found: int = math.prod(_sizes(self)) if is_users(sys._getframe(1)) else self.memory.size
        return found

    @property
    def itemsize(self: Any) -> int:
        """Bytes of one element."""
        found: int = self.memory.itemsize
        return found

    @property
    def nbytes(self: Any) -> int:
        """Bytes of the elements."""
        sizes = _sizes(self) if is_users(sys._getframe(1)) else self.memory.shape
        found: int = math.prod(sizes) * self.memory.itemsize
        return found


def _sizes(array: Any) -> list[int]:
    """The sizes, told to the user's code."""
    sizes = array.recorder.loops.sizes
    tell = sizes.plain if sees_numbers(sys._getframe(2)) else sizes.length
    return [tell(n) for n in array.memory.shape]


def length_of(obj: Any, /) -> Any:
    """`len` as the traced code knows it."""
    if isinstance(obj, Sized) and obj.memory.shape:  # type: ignore[attr-defined]
        return obj.recorder.loops.sizes.length(obj.memory.shape[0])  # type: ignore[attr-defined]
    return len(obj)


_PARTS = frozenset({int, slice, Index, Length, type(None)})  # of an index, one for each dim


def note_bounds(array: Any, index: Any) -> None:
    """What the bounds of slices are to the sizes of an array is a condition: they are clamped."""
    items = index if type(index) is tuple else (index,)
    if not any(map(_has_bounds, items)) or not is_users(sys._getframe(2)):
        return
    sizes, shape = array.recorder.loops.sizes, array.memory.shape
    if not _PARTS.issuperset(map(type, items)):
        for n in shape:
            sizes.plain(n)
        return
    dims = iter(shape)
    for item in items:
        size = None if item is None else next(dims, None)
        if type(item) is slice and size is not None:
            for bound in (item.start, item.stop):
                sizes.clamps(bound.now() if type(bound) is Index else bound, size)


def _has_bounds(item: Any) -> bool:
    return type(item) is slice and (item.start is not None or item.stop is not None)
