"""Leaves of a result that are no tensors and that a caller may change: others at every call.

>>> out = constant({"a"}, was_there=lambda obj: False)     # the function has made the set
>>> first, second = out.make(), out.make()
>>> first.add("b")
>>> second
{'a'}
"""

from __future__ import annotations

import array
import copy
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradof.tracer.core.result import ConstantOut

_CHANGEABLE = (
    set, bytearray, array.array, np.ndarray, np.random.Generator, np.random.RandomState,
    random.Random,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class FreshOut(ConstantOut):
    """A leaf of the result, or of what is stored, of which each call makes one."""

    def make(self) -> Any:
        """Another one."""
        value = self.value
        if isinstance(value, tuple):  # a torch.Size
            return type(value)(value)
        if isinstance(value, (np.random.Generator, np.random.RandomState)):
            return copy.deepcopy(value)
        return value.clone() if hasattr(value, "clone") else copy.copy(value)


def is_changeable(leaf: Any) -> bool:
    """Whether it is of a kind that can be changed, and copied."""
    return isinstance(leaf, _CHANGEABLE) or _is_tensor(leaf)


def _is_tensor(leaf: Any) -> bool:
    return type(leaf).__module__ == "torch" and hasattr(leaf, "clone")


def constant(leaf: Any, was_there: Callable[[Any], bool]) -> ConstantOut:
    """A leaf as each call has it: the same, or one of its own where the function made it."""
    return FreshOut(leaf) if is_changeable(leaf) and not was_there(leaf) else ConstantOut(leaf)
