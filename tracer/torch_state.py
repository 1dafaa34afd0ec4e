"""Traced tensors must not outlive the trace: what the function stored outside itself is put back.

    def forward(self, x):
        self.running = 0.9 * self.running + x.mean()     # refused: the graph could not redo it
        self.buffer.add_(1)                              # fine: a write-back
        self.buffer = self.buffer.add_(1)                # fine: the same tensor

Everything reachable from the function is looked through before and after; a traced tensor found
afterwards is replaced by what was there before, or taken away.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from gradof.errors import TraceError
from gradof.ir.core import Loc
from gradof.tracer.origins import MISSING, Origin, Origins, put_back
from gradof.tracer.torch_functional import is_wrapper


def is_tensor(obj: Any) -> bool:
    """Whether the object is a torch tensor."""
    return isinstance(obj, torch.Tensor)


class OuterState:
    """What is reachable from a function before it is traced."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn
        self.origins = Origins(fn, is_tensor, remember=True)
        self.origins.find(None)  # builds the index now

    def restore(
        self, wrappers: Sequence[torch.Tensor], real: Sequence[torch.Tensor]
    ) -> Origin | None:
        """Take all traced tensors out of the reachable state; the first that was really new.

        A wrapper of input `i` gives way to the tensor it stands for.
        """
        known = {id(w): r for w, r in zip(wrappers, real, strict=True)}
        new: Origin | None = None
        # Again until nothing is found: the index names only one of the places of each tensor.
        while leaked := self._leaked():
            origin, tensor = leaked[-1]  # the last item of a list first
            holder, step = Origin(origin.steps[:-1]).read(self.fn), origin.steps[-1]
            old = known.get(id(tensor), MISSING)
            if old is MISSING:
                new = origin
                old = self.origins.held(holder, step, MISSING)
            put_back(holder, step, old)
        return new

    def _leaked(self) -> list[tuple[Origin, torch.Tensor]]:
        found = Origins(self.fn, is_tensor).tensors()
        return [(origin, tensor) for origin, tensor in found.items() if is_wrapper(tensor)]


def stored_error(origin: Origin, loc: Loc | None) -> TraceError:
    """The error for a traced tensor that was stored outside the function."""
    return TraceError(
        f"the function stores a tensor in {origin}; the graph could not do that at the next call",
        loc=loc,
        hint="return it, or change the tensor there in place (copy_)",
    )
