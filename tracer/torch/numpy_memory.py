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

_COPYING = frozenset({torch.tensor, torch.Tensor.new_tensor})  # what makes tensors of arrays


class NumpyMemory:
    """See the module docstring."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.called: Any = None  # the function of torch's that runs
        self._values_made: set[Value] = set()  # constants of arrays that are made inside
        self._made: list[_Made] = []
        self._tensors: dict[int, tuple[torch.Tensor, Value, Loc | None]] = {}

    def follow(
        self, arrays: Callable[[], list[tuple[Any, bool]]], sources: Callable[[], str | None]
    ) -> None:  # fmt: skip
        """Ask these for arrays that the function leads to, and for what may give any array."""
        self.arrays, self.sources = arrays, sources

    def admit_arrays(self, args: Iterable[Any], loc: Loc | None) -> None:
        """Raise FreeTensorError for arrays in the arguments that may be other ones at each call.

        What shares their memory is a constant of its own (`admit`); of others, this is a copy.
        """
        for arg in args:
            if isinstance(arg, np.ndarray):
                self._is_made(*np.lib.array_utils.byte_bounds(arg), loc)
            elif type(arg) in (list, tuple):
                self.admit_arrays(arg, loc)

    def admit(self, owner: Any, start: int, end: int, loc: Loc | None) -> bool:
        """Whether a tensor is over memory of an array that is made inside: see `_is_made`.

        The memory is there while its owner is, and is to stay as it is if it is not copied now.
        """
        is_made = self._is_made(start, end, loc)
        if is_made and self.called not in _COPYING:
            self._made.append(_Made(owner, start, end, loc))
        return is_made

    def constant(self, value: Value, is_made: bool, loc: Loc | None) -> None:
        """A value of the trace has the elements of such memory."""
        self.recorder.numpys[value] = loc
        if is_made:
            self._values_made.add(value)

    def _is_made(self, start: int, end: int, loc: Loc | None) -> bool:
        """Whether memory is of an array that is made inside, and not of one that is guarded.

        Raises FreeTensorError where it may be of others, and where those that are guarded are
        large.
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
        source = self.sources() if len(arrays) == len(found) else "an array that a cache keeps"
        if source is not None:
            raise _made_error(f"and may come from {source}", loc)
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
            if address(tensor) in given and value not in self._values_made:
                raise _error("is a result of it", loc)
        for value in outputs if self.recorder.numpys else ():
            of = self._array_of(value)
            if of is not None and of not in self._values_made:
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

    def __init__(self, owner: Any, start: int, end: int, loc: Loc | None) -> None:
        self.owner, self.start, self.loc = owner, start, loc
        self.then = ctypes.string_at(start, end - start)

    def check(self, arrays: Sequence[Any]) -> None:
        """Raise FreeTensorError where it has changed, or is that of one of the arrays."""
        for low, high in map(np.lib.array_utils.byte_bounds, arrays):
            if low < self.start + len(self.then) and self.start < high:
                raise _made_error("which is a result of it, too", self.loc)
        if ctypes.string_at(self.start, len(self.then)) != self.then:
            raise _made_error("and changed afterwards", self.loc)


def _made_error(how: str, loc: Loc | None) -> FreeTensorError:
    return FreeTensorError(
        f"a tensor is made from a numpy array that is made inside the traced function, {how}: "
        "a compiled call would not read it again", loc=loc,
        hint="make the tensor outside and pass it, or keep the array in a closure",
    )  # fmt: skip


def _error(what: str, loc: Loc | None) -> FreeTensorError:
    return FreeTensorError(
        "a tensor that shares its memory with a numpy array is made inside the traced function, "
        f"and {what}", loc=loc, hint="use torch.tensor(array), which copies it",
    )  # fmt: skip
