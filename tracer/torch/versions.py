"""Version counters that the user's code reads: how often a tensor was changed in place.

    angle = torch.rand(3)
    self.seen = angle, angle._version       # 0; and later:
    if self.seen[1] == angle._version: ...  # nobody has changed it since

What a run makes is new, and what a call gives in its place is new, too: 0. An argument, or a tensor
of Python's state, that was never changed is one by which the trace holds. Any other number differs
from call to call, and is refused.
"""

from __future__ import annotations

from types import FrameType

import torch

from gradof.errors import TraceError
from gradof.ir.core import Loc
from gradof.tracer.core.asked import Unchanged
from gradof.tracer.state.source import user_loc
from gradof.tracer.torch.functional import is_written
from gradof.tracer.torch.inference import begun_here
from gradof.tracer.torch.memory import address

ASKS_INFERENCE = frozenset({torch.Tensor.is_inference, torch.is_inference})


class Versions:
    """What one run read of version counters."""

    def __init__(self) -> None:
        self._inputs: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._read: list[tuple[torch.Tensor, Loc | None]] = []
        self._unchanged: set[int] = set()  # inputs over whose memory a counter was read

    def give(self, wrapper: torch.Tensor, tensor: torch.Tensor) -> None:
        """A tensor of the trace stands for this graph input, the next one."""
        self._inputs.append((wrapper, tensor))

    def read(self, tensor: torch.Tensor, frame: FrameType) -> None:
        """The counter of a tensor of the trace is read."""
        memory, loc = address(tensor), user_loc(frame)
        if self.is_inference(tensor):
            raise _version_error("a tensor of inference mode, which has none", loc)
        for i, (wrapper, real) in enumerate(self._inputs):
            if address(wrapper) == memory:
                if real._version:
                    raise _version_error("a tensor that was changed in place", loc)
                self._unchanged.add(i)
        self._read.append((tensor, loc))

    def is_inference(self, tensor: torch.Tensor) -> bool:
        """Whether eager would have made the tensor in inference mode."""
        memory = address(tensor)
        found = [real for wrapper, real in self._inputs if address(wrapper) == memory]
        return found[0].is_inference() if found else tensor.is_inference() or begun_here()

    def of_inputs(self) -> tuple[Unchanged, ...]:
        """What the trace holds for; TraceError where the function itself has changed one."""
        for tensor, loc in self._read:
            if is_written(tensor):
                raise _version_error("a tensor that the traced function changes in place", loc)
        return tuple(map(Unchanged, sorted(self._unchanged)))

    def is_read(self, wrapper: torch.Tensor) -> bool:
        """Whether the counter of a result was read, which is to be that of a new tensor."""
        found = [loc for tensor, loc in self._read if tensor is wrapper]
        if found and wrapper.requires_grad:
            raise _version_error("a result that requires grad", found[0])
        return bool(found)


def shared_version_error(loc: Loc | None) -> TraceError:
    """The error for a counter that a result shares with another."""
    return _version_error("a result that shares its memory with another", loc)


def _version_error(what: str, loc: Loc | None) -> TraceError:
    return TraceError(
        f"`._version` is read of {what}; it differs from call to call", loc=loc,
        hint="read it outside",
    )
