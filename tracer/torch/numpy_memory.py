"""Tensors over the memory of numpy arrays that the traced function made of them.

    scale = torch.from_numpy(self.table)      # a constant: the arrays that are read are guarded

The trace holds while the arrays have the elements that they had: those that the function leads to
are guarded by them. One that is made inside (`np.triu(np.ones((n, n)))`) is the same at every call,
unless it may come from code in C that is not known (`array_sources`), or from an array of a cache,
which is not guarded. What is shared is not only read where the tensor is changed in place, or is a
result (with its array, if that is made inside), and where the array is changed after the tensor was
made: then the function is not traced. Nor is it where the arrays that it leads to are large.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch

from gradof import tuning
from gradof.errors import FreeTensorError
from gradof.ir.core import Loc, Value
from gradof.ir.opinfo import has_trait
from gradof.tracer.torch.functional import inner, is_written
from gradof.tracer.torch.memory import address
from gradof.tracer.torch.recorder import Recorder


class NumpyMemory:
    """See the module docstring."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.made: set[Value] = set()  # of the recorder's, those of arrays that are made inside
        self._made: list[_Made] = []
        self._tensors: dict[int, tuple[torch.Tensor, Value, Loc | None]] = {}

    def follow(
        self, arrays: Callable[[], list[tuple[Any, bool]]], sources: Callable[[], str | None]
    ) -> None:  # fmt: skip
        """Ask these for arrays that the function leads to, and for what may give any array."""
        self.arrays, self.sources = arrays, sources

    def admit_arrays(self, args: Iterable[Any], loc: Loc | None) -> None:
        """Raise FreeTensorError for arrays in the arguments that are not guarded."""
        for arg in args:
            if isinstance(arg, np.ndarray):
                self.admit(arg, *np.lib.array_utils.byte_bounds(arg), loc)
            elif type(arg) in (list, tuple):
                self.admit_arrays(arg, loc)

    def admit(self, owner: Any, start: int, end: int, loc: Loc | None) -> bool:
        """Whether memory is of an array that is made inside, and not of one that is guarded.

        The memory is there while its owner is. Raises FreeTensorError where it may be of others,
        and where those that are guarded are large.
        """
        found = self.arrays()
        arrays = [array for array, is_guarded in found if is_guarded]
        size = sum(array.nbytes for array in arrays)
        if size > tuning.CHECKED_BYTES:
            raise FreeTensorError(
                f"a tensor is made from a numpy array inside the traced function, which leads to "
                f"{size:,} bytes of arrays: to check them would slow down each call", loc=loc,
                hint="make the tensor outside, and pass it or keep it in place of the array",
            )  # fmt: skip
        for array in arrays:
            low, high = np.lib.array_utils.byte_bounds(array)
            if low <= start and end <= high:
                return False
        made = _Made(owner, start, end, loc, self.sources)
        if len(arrays) < len(found):
            raise made.error("and may come from an array that a cache keeps")
        self._made.append(made)
        return True

    def note(self, tensor: torch.Tensor) -> None:
        """A tensor enters a call: is it one over an array, before it is changed?"""
        value = self.recorder.find(inner(tensor))
        if value in self.recorder.numpys:
            found = tensor, value, self.recorder.numpys[value]
            self._tensors.setdefault(id(tensor), found)

    def check(
        self, memories: Iterable[int], outputs: Iterable[Value], arrays: Sequence[Any]
    ) -> None:  # fmt: skip
        """Raise FreeTensorError where an array is changed, or the caller is given its memory.

        `memories` are those of the tensors that the caller is given, who may have that of an array
        made inside, if not with one of the `arrays`.
        """
        for made in self._made:
            made.check(arrays)
        given = frozenset(memories)
        for tensor, value, loc in self._tensors.values():
            if is_written(tensor):
                raise _error("is changed in place", loc)
            if address(tensor) in given and value not in self.made:
                raise _error("is a result of it", loc)
        for value in outputs if self.recorder.numpys else ():
            of = self._array_of(value)
            if of is not None and of not in self.made:
                raise _error("is a result of it", self.recorder.numpys[of])

    def _array_of(self, value: Value) -> Value | None:
        while value not in self.recorder.numpys:
            node = value.node
            if node is None or not has_trait(node.kind, "view"):
                return None
            value = node.inputs[0]
        return value


class _Made:
    """The memory of an array that was made inside, which is what it was to the end of the run."""

    def __init__(
        self, owner: Any, start: int, end: int, loc: Loc | None, sources: Callable[[], str | None]
    ) -> None:  # fmt: skip
        self.owner, self.start, self.loc, self.sources = owner, start, loc, sources
        self.then = ctypes.string_at(start, end - start)
        self.check()

    def check(self, arrays: Sequence[Any] = ()) -> None:
        """Raise FreeTensorError where it may be another one at each call, or is one of these."""
        for low, high in map(np.lib.array_utils.byte_bounds, arrays):
            if low < self.start + len(self.then) and self.start < high:
                raise self.error("which is a result of it, too")
        if (source := self.sources()) is not None:
            raise self.error(f"and may come from {source}")
        if ctypes.string_at(self.start, len(self.then)) != self.then:
            raise self.error("and changed afterwards")

    def error(self, how: str) -> FreeTensorError:
        """That the array is not the same at every call."""
        return FreeTensorError(
            f"a tensor is made from a numpy array that is made inside the traced function, {how}: "
            "a compiled call would not read it again", loc=self.loc,
            hint="make the tensor outside and pass it, or keep the array in a closure",
        )  # fmt: skip


def _error(what: str, loc: Loc | None) -> FreeTensorError:
    return FreeTensorError(
        "a tensor that shares its memory with a numpy array is made inside the traced function, "
        f"and {what}", loc=loc, hint="use torch.tensor(array), which copies it",
    )  # fmt: skip
