"""Tensors over the memory of numpy arrays that the traced function made of them.

    scale = torch.from_numpy(self.table)      # a constant: the arrays that are read are guarded

The trace holds while the arrays have the elements that they had. What is shared is not only read
where the tensor is changed in place, or is a result: then the function is not traced.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from gradof.errors import FreeTensorError
from gradof.ir.core import Loc, Value
from gradof.ir.opinfo import has_trait
from gradof.tracer.torch.functional import inner, is_written
from gradof.tracer.torch.histories import wrappers_in
from gradof.tracer.torch.memory import address
from gradof.tracer.torch.recorder import Recorder


class NumpyMemory:
    """See the module docstring."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._tensors: dict[int, tuple[torch.Tensor, Loc | None]] = {}

    def note(self, tensor: torch.Tensor) -> None:
        """A tensor enters a call: is it one over an array, before it is changed?"""
        value = self.recorder.find(inner(tensor))
        if value in self.recorder.numpys:
            self._tensors.setdefault(id(tensor), (tensor, self.recorder.numpys[value]))

    def check(self, result: Any, outputs: Iterable[Value]) -> None:
        """Raise FreeTensorError where an array is changed, or the caller is given its memory."""
        memories = dict[int, Loc | None]()
        for tensor, loc in self._tensors.values():
            if is_written(tensor):
                raise _error("is changed in place", loc)
            memories[address(tensor)] = loc
        for tensor in wrappers_in(result) if memories else ():
            if address(tensor) in memories:
                raise _error("is a result of it", memories[address(tensor)])
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
