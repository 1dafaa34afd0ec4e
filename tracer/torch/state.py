"""Python's state around a traced torch function: where free tensors are, and what was written.

    def forward(self, x):
        self.running = 0.9 * self.running + x.mean()     # a store: each call writes it again
        self.buffer.add_(1)                              # a write-back
        return x * self.weight                           # an input, read again at each call

While the function runs, `Reads` notes what its code can reach; a tensor that turns up is looked for
there. Afterwards everything is put back, whether the trace succeeded or not.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from gradof.errors import TraceError
from gradof.tracer.state.changes import Change
from gradof.tracer.state.code_facts import facts_of
from gradof.tracer.state.kinds import leaf_type
from gradof.tracer.state.origins import Origin
from gradof.tracer.state.places import GUARDED
from gradof.tracer.state.reach import Reach
from gradof.tracer.state.reads import Reads
from gradof.tracer.state.scripted import Constant
from gradof.tracer.state.source import function_loc
from gradof.tracer.state.unheard import unprofiled

for _type in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
    leaf_type(_type, has_attributes=True)
for _plain in (torch.Size, torch.dtype, torch.device, torch.profiler.record_function):
    leaf_type(_plain)

_deepcopy = torch.nn.Parameter.__deepcopy__.__code__


def is_tensor(obj: Any) -> bool:
    """Whether the object is a torch tensor."""
    return isinstance(obj, torch.Tensor)


def _is_array(obj: Any) -> bool:
    return isinstance(obj, np.ndarray)


def _is_guarded(origin: Origin) -> bool:
    if any(step.kind == "cached" for step in origin.steps):  # `cache_clear` would not be seen
        return False
    return origin.place is not None and origin.place.kind in GUARDED | {"block"}


class OuterState:
    """What is reachable from a function while it is traced."""

    def __init__(self, fn: Callable[..., Any], reads: Reads) -> None:
        self.fn = fn
        self.given: list[Any] = []  # objects among the arguments, with state of their own
        self.reads = reads
        self._known = -1  # what had been read when the index was made
        self._reach = Reach(reads)
        self._found: dict[int, tuple[Any, Origin]] = {}
        self._kept: dict[int, Origin] = {}  # tensors that graphs of torch's keep
        self._arrays_known = -1
        self._arrays: list[tuple[Any, bool]] = []
        reads.misses.reached = self.reached
        reads.lends["id"] = self._id
        inner = getattr(fn, "__func__", fn)
        if hasattr(inner, "__code__"):
            reads.held.see(fn, facts_of(inner.__code__))

    def keep(self, tensor: torch.Tensor) -> None:
        """Note a tensor that a graph of torch's keeps, which no code of Python's leads to."""
        self._kept.setdefault(id(tensor), Constant(tensor).origin())

    def read(self, names: set[str]) -> None:
        """Note what code of torch's reads off objects."""
        if not names <= self.reads.names:
            self.reads.names |= names
            self._known = -1

    def origin(self, tensor: torch.Tensor) -> Origin | None:
        """Where a free tensor is read again; None where no code that ran could have got it."""
        if id(tensor) in self._kept:
            return self._kept[id(tensor)]
        found = self._found.get(id(tensor))
        if found is None and self._known != self.reads.progress():
            self.index()
            found = self._found.get(id(tensor))
        return None if found is None else found[1]

    def index(self) -> None:
        """Look through everything that the code which has run so far can reach."""
        self._known = self.reads.progress()
        self._reach = Reach(self.reads)
        with unprofiled():  # what the walk reads is not the user's
            self._found = self._reach.find(self.fn, is_tensor, self.given)

    def arrays(self) -> list[tuple[Any, bool]]:
        """The numpy arrays that the code which has run so far can reach; whether they are guarded.

        Those of a cached function's results are not.
        """
        if self._arrays_known != self.reads.progress():
            self._arrays_known = self.reads.progress()
            found = self._reached(_is_array)
            self._arrays = [(array, _is_guarded(origin)) for array, origin in found.values()]
        return self._arrays

    def find(self, is_one: Callable[[Any], Any]) -> list[Any]:
        """Objects of a kind that the code which has run so far can reach."""
        return [obj for obj, _ in self._reached(is_one).values()]

    def _reached(self, is_one: Callable[[Any], Any]) -> dict[int, tuple[Any, Origin]]:
        with unprofiled():
            return Reach(self.reads).find(self.fn, is_one, self.given)

    def changes(self) -> list[Change]:
        """What the run has written to what was there before it."""
        self.index()
        there = self._reach.reached
        return [c for c in self.reads.held.changes() if id(c.container) in there]

    def was_there(self, obj: Any) -> bool:
        """Whether an object was reachable at entry."""
        return id(obj) in self._reach.reached

    def reached(self) -> set[int]:
        """The ids of all that the code which has run so far can reach."""
        self.index()
        return self._reach.reached

    def refuse_array_of(self, tensor: torch.Tensor) -> None:
        """Raise where code could see a change of the tensor in an array that shares its memory."""
        storage = tensor.untyped_storage()
        start = storage.data_ptr() if storage.device.type == "cpu" else 0
        for array, _ in self.reads.held.buffers.kept.values():
            if start and isinstance(array, np.ndarray):
                first, last = np.lib.array_utils.byte_bounds(array)
                if first < start + storage.nbytes() and start < last:
                    raise TraceError(
                        "a tensor is changed in place that shares its memory with a numpy array",
                        loc=function_loc(self.fn), hint="keep a copy of one of them",
                    )

    def _id(self, obj: Any, /) -> int:
        """`id`, for the user's code: no later call shares that of a tensor."""
        if isinstance(obj, torch.Tensor):
            caller = sys._getframe(1)
            if caller.f_code is not _deepcopy:  # which asks what has been copied already
                self.reads.effect("id() of a tensor", caller)
            self.reads.asks = True
        return id(obj)

    def restore(self) -> None:
        """Put everything back that the run has written."""
        for change in self.changes():
            change.undo()
