"""Tensors over the memory of numpy arrays that the traced function made of them.

    scale = torch.from_numpy(self.table)      # a constant: the arrays that are read are guarded

The trace holds while the arrays have the elements that they had: those that the function leads to
are guarded by them. An array that is made inside may come from anywhere (a file, a simulator), and
is refused, as are those of partials, defaults and caches, which are not guarded. What is shared is
not only read where the tensor is changed in place, or is a result: then the function is not traced.
Nor is it where the arrays are large.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
        self.guarded: Callable[[], list[Any]] = list  # arrays that the function leads to, as known
        self._tensors: dict[int, tuple[torch.Tensor, Loc | None]] = {}

    def admit_arrays(self, args: Iterable[Any], loc: Loc | None) -> None:
        """Raise FreeTensorError for arrays in the arguments that are not guarded."""
        for arg in args:
            if isinstance(arg, np.ndarray):
                self.admit(*np.lib.array_utils.byte_bounds(arg), loc)
            elif type(arg) in (list, tuple):
                self.admit_arrays(arg, loc)

    def admit(self, start: int, end: int, loc: Loc | None) -> None:
        """Raise FreeTensorError for memory that no guarded array has, and where they are large."""
        arrays = self.guarded()
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
                return
        raise FreeTensorError(
            "a tensor is made from a numpy array that is made inside the traced function, or kept "
            "by a partial, a default or a cache: a compiled call would not read it again",
            loc=loc, hint="make the tensor outside and pass it, or keep the array in a closure",
        )  # fmt: skip

    def note(self, tensor: torch.Tensor) -> None:
        """A tensor enters a call: is it one over an array, before it is changed?"""
        value = self.recorder.find(inner(tensor))
        if value in self.recorder.numpys:
            self._tensors.setdefault(id(tensor), (tensor, self.recorder.numpys[value]))

    def check(self, memories: Iterable[int], outputs: Iterable[Value]) -> None:
        """Raise FreeTensorError where an array is changed, or the caller is given its memory.

        `memories` are those of the tensors that the caller is given.
        """
        given = frozenset(memories)
        for tensor, loc in self._tensors.values():
            if is_written(tensor):
                raise _error("is changed in place", loc)
            if address(tensor) in given:
                raise _error("is a result of it", loc)
        for value in outputs if self.recorder.numpys else ():
            of = self._array_of(value)
            if of is not None:
                raise _error("is a result of it", self.recorder.numpys[of])

    def _array_of(self, value: Value) -> Value | None:
        while value not in self.recorder.numpys:
            node = value.node
            if node is None or not has_trait(node.kind, "view"):
                return None
            value = node.inputs[0]
        return value


def _error(what: str, loc: Loc | None) -> FreeTensorError:
    return FreeTensorError(
        "a tensor that shares its memory with a numpy array is made inside the traced function, "
        f"and {what}", loc=loc, hint="use torch.tensor(array), which copies it",
    )  # fmt: skip
