"""Python's state around a traced torch function: where free tensors are, and what was written.

    def forward(self, x):
        self.running = 0.9 * self.running + x.mean()     # a store: each call writes it again
        self.buffer.add_(1)                              # a write-back
        return x * self.weight                           # an input, read again at each call

While the function runs, `Reads` notes what its code can reach; a tensor that turns up is looked for
there. Afterwards everything is put back, whether the trace succeeded or not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from gradof.tracer.code_facts import facts_of
from gradof.tracer.held import Change, leaf_type
from gradof.tracer.origins import Origin
from gradof.tracer.reach import Reach
from gradof.tracer.reads import Reads

for _type in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer, np.ndarray, torch.Size,
              torch.dtype, torch.device, torch.profiler.record_function):  # fmt: skip
    leaf_type(_type)


def is_tensor(obj: Any) -> bool:
    """Whether the object is a torch tensor."""
    return isinstance(obj, torch.Tensor)


class OuterState:
    """What is reachable from a function while it is traced."""

    def __init__(self, fn: Callable[..., Any], reads: Reads) -> None:
        self.fn = fn
        self.reads = reads
        self._known = -1  # how much code had run when the index was made
        self._reach = Reach(reads)
        self._found: dict[int, tuple[Any, Origin]] = {}
        inner = getattr(fn, "__func__", fn)
        if hasattr(inner, "__code__"):
            reads.held.see(fn, facts_of(inner.__code__))

    def origin(self, tensor: torch.Tensor) -> Origin | None:
        """Where a free tensor is read again; None where no code that ran could have got it."""
        found = self._found.get(id(tensor))
        if found is None and self._known != len(self.reads.codes):
            self.index()
            found = self._found.get(id(tensor))
        return None if found is None else found[1]

    def index(self) -> None:
        """Look through everything that the code which has run so far can reach."""
        self._known = len(self.reads.codes)
        self._reach = Reach(self.reads)
        self._found = self._reach.find(self.fn, is_tensor)

    def changes(self) -> list[Change]:
        """What the run has written to what was there before it."""
        self.index()
        there = self._reach.reached
        return [c for c in self.reads.held.changes() if id(c.container) in there]

    def was_there(self, obj: Any) -> bool:
        """Whether an object was reachable at entry."""
        return id(obj) in self._reach.reached

    def restore(self) -> None:
        """Put everything back that the run has written."""
        for change in self.changes():
            change.undo()
        for cached in self._reach.caches:  # they may hold what was made while tracing
            if cached.__wrapped__.__code__ in self.reads.codes:
                cached.cache_clear()
