"""How a traced array lies in memory, and what depends on it.

    x.strides, x.flags.c_contiguous     as numpy's; the trace holds for arguments of this layout
    x.shape = 2, 3                      the array itself, with views of it as they were
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from gradof.errors import UnsupportedOpError
from gradof.tracer.core.result import Layout
from gradof.tracer.numpy.lengths import is_users
from gradof.tracer.numpy.view import Elements, View
from gradof.tracer.state.source import user_loc

_WRITES = frozenset({"writeable", "behaved", "carray", "farray"})
_LAYOUT = frozenset({"c_contiguous", "f_contiguous", "contiguous", "fortran", "forc", "fnc"})
_SHORT = {"C": "c_contiguous", "F": "f_contiguous", "CONTIGUOUS": "c_contiguous",
          "FORTRAN": "f_contiguous", "W": "writeable", "B": "behaved", "CA": "carray",
          "FA": "farray"}  # fmt: skip


class LaidOut:
    """The part of TracedArray that knows its layout."""

    __slots__ = ()

    @property
    def strides(self: Any) -> tuple[int, ...]:
        """Bytes from one element to the next, by dim."""
        if is_users(sys._getframe(1)):
            tell_sizes(self)
        ask_layout(self)
        return tuple(self.memory.strides)

    @property
    def flags(self: Any) -> Flags:
        """Whether the elements lie in rows or columns without gaps."""
        return Flags(self)

    @property
    def device(self) -> str:
        """Where the elements are."""
        return "cpu"

    @property
    def flat(self: Any) -> Any:
        """The elements in order (numpy's is an iterator): a view where there is one, or to read."""
        elements: Any = np.ravel(self)[:]
        link = elements.link
        if link is None or elements.root is not self.root:
            elements.memory.flags.writeable = False  # a copy: what is written would be lost
        else:
            elements.link = Elements(link.parent, link.read, link.write)
        return elements

    def astype(
        self: Any, dtype: Any, order: Any = "K", casting: Any = "unsafe", subok: bool = True,
        copy: bool = True,
    ) -> Any:  # fmt: skip
        """Another dtype, a copy (with `copy=False` the array itself if it has it)."""
        dtype = np.dtype(dtype)
        if not np.can_cast(self.dtype, dtype, casting):
            self.memory.astype(dtype, casting=casting)  # numpy's own error
        made = self if not copy and self.dtype == dtype else self.recorder.cast(self, dtype)
        order = order_of(order, "K")
        return made if order == "K" else in_order(made, order)

    def copy(self: Any, order: Any = "C") -> Any:
        """A copy, in rows where the function `np.copy` keeps the order."""
        return np.copy(self, order=order)

    def flatten(self: Any, order: Any = "C") -> Any:
        """One dim, a copy."""
        return np.copy(np.ravel(self, order))

    def view(self: Any, dtype: Any = None) -> Any:
        """Another view of the elements; not their bytes as another dtype."""
        if dtype is not None and np.dtype(dtype) != self.dtype:
            raise UnsupportedOpError(
                "ndarray.view of a traced array as another dtype", loc=user_loc(),
                hint="convert the values instead: x.astype(dtype)",
            )
        return self[...]


class Flags:
    """What `ndarray.flags` says of the order of elements."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __getattr__(self, name: str) -> bool:
        array = self._array
        if name in _WRITES:
            known = array.recorder.places.get(id(array.root))
            given = array.root.memory if known is None else array.recorder.given[known[0]]
            return bool(getattr(array.memory.flags, name) and given.flags.writeable)
        if name not in _LAYOUT:
            raise UnsupportedOpError(
                f"ndarray.flags.{name} of a traced array", loc=user_loc(),
                hint="ask for c_contiguous, f_contiguous or writeable",
            )
        tell_sizes(array)
        ask_layout(array)
        return bool(getattr(array.memory.flags, name))

    def __getitem__(self, name: str) -> bool:
        return bool(getattr(self, _SHORT.get(name, name.lower())))


def ask_layout(array: Any) -> None:
    """What follows depends on how an array lies in memory.

    What is computed lies as its operands do: in the end as the arguments with several dims.
    """
    recorder = array.recorder
    recorder.asks_layout(array)
    if id(array.root) not in recorder.places:
        for i, given in enumerate(recorder.given):
            if np.ndim(given) > 1:
                flat = given.flags.c_contiguous
                recorder.layouts[i] = Layout(i, None if flat else given.strides)


def tell_sizes(array: Any) -> None:
    """What follows depends on the sizes of an array: they are not followed further."""
    for n in array.memory.shape:
        array.recorder.loops.sizes.plain(n)


def order_of(order: Any, default: str = "C") -> str:
    """An order of elements as numpy takes it: in small letters, too, and None."""
    return default if order is None else str(order).upper()


def in_order(array: Any, order: Any) -> Any:
    """The array itself if its elements lie in this order, C, F or A; else a copy that does."""
    array.recorder.asks_layout(array)  # itself for an argument in one layout, a copy in the other
    flags = array.memory.flags
    there = {"C": flags.c_contiguous, "F": flags.f_contiguous, "A": flags.forc}[order]
    return array if there else np.copy(array, order=order)


# --- a shape that is set --------------------------------------------------------------------------


def set_shape(array: Any, shape: Any) -> None:
    """`array.shape = shape`; numpy's own error where the elements do not lie so."""
    recorder = array.recorder
    recorder.enter()
    if id(array) in recorder.places:
        raise recorder.unsupported(
            "the shape of an argument is changed in place", "take another array: "
            "x = x.reshape(shape)"
        )
    ask_layout(array)
    memory = array.concrete.reshape(shape)  # setting it is deprecated from numpy 2.5 on
    if memory.size and not np.may_share_memory(memory, array.memory):
        raise AttributeError(
            "Incompatible shape for in-place modification. Use `.reshape()` to make a copy with "
            "the desired shape."
        )
    old, new = array.memory.shape, memory.shape
    made, link = array.expr.reshape(new), array.link
    if link is not None:
        array.link = View(
            link.parent, lambda x: link.read(x).reshape(new),
            lambda x, s: link.write(x, s.reshape(old)),
        )
    array.lie_in(memory, made)
