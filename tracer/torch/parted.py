"""Parameters made of memory that was written to before, which become tensors of other memory.

    t = torch.empty(3).uniform_()
    w = nn.Parameter(t)              # a copy in the graph: torch would take a view of t at each use
    with torch.no_grad():
        w.mul_(0.1)                  # fine, unless t, or what shares its memory, is read again

In eager they share their memory. So where one of them is changed, the others are refused.
"""

from __future__ import annotations

from collections.abc import Container

import torch

from gradof.errors import TraceError
from gradof.ir.core import Value
from gradof.tracer.state.source import user_loc
from gradof.tracer.torch.functional import inner, is_base
from gradof.tracer.torch.memory import address, base_of
from gradof.tracer.torch.recorder import Recorder

Tensor = torch.Tensor


class Parted:
    """The memories of one trace that are one in eager."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        # by address, a tensor of each of those that are one, and what its elements were
        self._groups: dict[int, list[tuple[Tensor, Value | None]]] = {}

    def part(self, tensor: Tensor, made: Tensor) -> None:
        """Note that a tensor shares its memory with one that was made of it."""
        group = self._groups.setdefault(address(tensor), [self._note(tensor)])
        group.append(self._note(made))
        self._groups[address(made)] = group

    def _note(self, tensor: Tensor) -> tuple[Tensor, Value | None]:
        base = base_of(tensor)
        root = base if is_base(base) else tensor
        return root, self.recorder.find(inner(root))

    def check(self, tensor: Tensor) -> None:
        """Raise where memory that a tensor shares in eager was changed since it was parted."""
        for other, value in self._groups.get(address(tensor), ()) if self._groups else ():
            if address(other) != address(tensor) and self.recorder.find(inner(other)) is not value:
                raise TraceError(
                    "a Parameter is made of memory that was written to before, and again since",
                    loc=user_loc(), hint="make it of a copy: nn.Parameter(x.clone())",
                )  # fmt: skip

    def check_results(self, addresses: Container[int]) -> None:
        """Raise where results are to share memory that was parted."""
        for group in self._groups.values():
            if sum(address(tensor) in addresses for tensor, _ in group) > 1:
                raise TraceError(
                    "a Parameter and what it was made of are returned, which share their memory",
                    loc=user_loc(), hint="return a copy of one of them",
                )  # fmt: skip
