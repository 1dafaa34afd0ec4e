"""Tensors of Python's state whose values a run has gone by, such as a buffer `initialized`.

    if not self.initialized:             a layer that is set up by its first batch
        self.scale.data = 1 / x.std()    cannot be traced: the call runs eagerly
    return x * self.scale                can, when `initialized` is another one
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from gradof import tuning
from gradof.ir.core import Graph, Value
from gradof.tracer.core.result import Readable


@dataclass(frozen=True)
class Decided:
    """Where a tensor is found, and what it was."""

    origin: Readable
    then: torch.Tensor

    def is_other(self, fn: Any) -> bool:
        """Whether it has other elements now, or there is another in its place, or none."""
        try:
            now = self.origin.read(fn)
        except (LookupError, AttributeError):
            return True
        if not isinstance(now, torch.Tensor) or now.shape != self.then.shape:
            return True
        return not torch.equal(now.detach(), self.then)


def decided_by(
    graph: Graph, inputs: Sequence[Value], tensors: Sequence[Any], origins: Sequence[Readable]
) -> list[Decided]:
    """Those among the tensors behind these inputs that Guards of an unfinished trace lead to."""
    needed = set[Value]()
    for node in graph.block.reversed_nodes():
        if node.kind == "Guard" or any([out in needed for out in node.outputs]):
            needed.update(node.inputs)
            for block in node.blocks:
                needed.update(v for inner in block.walk() for v in inner.inputs)
    return [
        Decided(origin, tensor.detach().clone())
        for value, tensor, origin in zip(inputs, tensors, origins, strict=True)
        if value in needed and tensor.numel() <= tuning.DECIDING_ELEMENTS
    ]
