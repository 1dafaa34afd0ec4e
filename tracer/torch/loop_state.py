"""Where a trace of torch code stands in a loop that a value ends: `loops` is who asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from gradof import tuning
from gradof.ir.core import Loc, Value
from gradof.tracer.core.loop_notes import LoopNotes
from gradof.tracer.core.number import Numbers, TracedNumber
from gradof.tracer.core.standing import Standing, Unknown
from gradof.tracer.state.source import user_loc
from gradof.tracer.torch.functional import inner, is_wrapper
from gradof.tracer.torch.transforms import transformed

if TYPE_CHECKING:
    from gradof.tracer.torch.tracer import Trace

Tensor = torch.Tensor
_torch: Any = torch
HELD = frozenset({torch.float32, torch.float64, torch.int64, torch.int32, torch.bool})
_OPS = (
    _torch._C._VariableFunctions, _torch._C._nn, _torch._C._linalg, _torch._C._special,
    _torch._C._fft,
)  # fmt: skip
_SILENT = frozenset({
    "torch.functional", "torch._tensor", "torch.nn.functional", "torch._VF", "torch.overrides",
    "torch._jit_internal", "torch.autograd", "torch.autograd.grad_mode",
    "torch.utils._contextlib", "typing",
})  # fmt: skip
_SWITCHES = frozenset({"_set_grad_enabled", "is_grad_enabled"})  # which `marks` tells
TESTS = frozenset({  # what gives a truth value of tensors
    Tensor.__bool__, Tensor.is_nonzero, torch.is_nonzero, torch.allclose, torch.equal,
    Tensor.allclose, Tensor.equal,
})  # fmt: skip


class LoopRecorder:
    """A recorder as loops know it."""

    def __init__(self, trace: Trace, loops: LoopNotes) -> None:
        self.trace, self.loops = trace, loops
        self.recorder = trace.recorder
        self.graph, self.emitter = trace.recorder.graph, trace.recorder.emitter
        self.closed = False

    @property
    def numbers(self) -> Numbers:
        """The numbers of the trace."""
        return self.trace.api.numbers.numbers

    @property
    def guards(self) -> int:
        """How many Guards there are."""
        return self.recorder.guards

    @guards.setter
    def guards(self, count: int) -> None:
        self.recorder.guards = count

    @property
    def loc(self) -> Loc | None:
        """The user's line now running."""
        return self.recorder.builder.loc

    def enter(self) -> None:
        """Stamp the user's line on what is emitted next."""
        self.recorder.builder.loc = user_loc()

    def note_varying(self, value: Value) -> None:
        """A value is no constant."""
        self.recorder.varying.add(value)

    def guard(self, value: Value, seen: bool) -> None:
        """The trace holds where a value is this again."""
        self.recorder.builder.emit_node("Guard", value, value=seen, number=self.recorder.guards)
        self.recorder.guards += 1


class TensorStanding(Standing):
    """Where the run stands among wrappers; `concretes` are what they held."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(lambda value: value not in trace.recorder.varying)
        self.recorder = trace.recorder
        self.concretes: list[Any] = []
        if any(w.is_leaf and w.grad is not None for w in trace.wrappers):
            raise Unknown("a gradient is kept")
        if any(not _is_as_given(w, p, self.recorder.find)
               for w, p in zip(trace.wrappers, trace.params, strict=True)):  # fmt: skip
            raise Unknown("an input is written to")

    def add(self, leaf: Any, value: Value) -> None:
        """With what it is now."""
        super().add(leaf, value)
        if isinstance(leaf, Tensor):
            self.concretes.append(inner(leaf))
        else:
            self.concretes.append(leaf.value if type(leaf) is TracedNumber else leaf.given)

    def _own(self, obj: Any, kind: Any) -> list[Any] | None:
        note = self._key.append
        if isinstance(obj, Tensor):
            if is_wrapper(obj) and not transformed(obj):
                return self._traced(obj, kind)
            if transformed(obj) or not _is_held(obj):
                raise Unknown("a tensor of a kind that is not followed")
            note((id(obj), obj._version))
            return []
        if isinstance(obj, np.generic):
            note((kind, obj.tobytes()))
            return []
        if isinstance(obj, (torch.dtype, torch.device, torch.Size, torch.memory_format)):
            note((kind, repr(obj)))
            return []
        if isinstance(obj, np.ndarray):
            raise Unknown("an array of numpy's")
        return None

    def _traced(self, tensor: Tensor, kind: Any) -> list[Any]:
        if not _is_held(tensor) or tensor._backward_hooks or vars(tensor):
            raise Unknown("a tensor with more to it")
        if tensor.is_leaf and tensor.requires_grad and tensor.grad is not None:
            raise Unknown("a tensor with a gradient")
        value = self.recorder.find(inner(tensor))
        if value is None:
            raise Unknown("a tensor without a value")
        self._key.append((kind, tensor.dtype, tuple(tensor.shape), tensor.stride()))
        self.firm.append((
            tensor.requires_grad, tensor.is_leaf, value in self.recorder.attached,
            value in self.recorder.cut,
        ))  # fmt: skip
        self.add(tensor, value)
        return []


def _is_as_given(wrapper: Tensor, param: Value, find: Callable[[Tensor], Value | None]) -> bool:
    return wrapper._version == 0 or find(inner(wrapper)) is param


def _is_held(tensor: Tensor) -> bool:
    return tensor.is_cpu and tensor.dtype in HELD and tensor.numel() <= tuning.WHOLE_CELLS


def is_op(called: Any) -> bool:
    """Whether a function that was called is an op of torch's, or a module that keeps no state."""
    if isinstance(called, str):
        return called in _SILENT
    owner, name = getattr(called, "__self__", None), getattr(called, "__name__", "")
    if isinstance(owner, Tensor) or (owner is torch._C and name in _SWITCHES):
        return True
    return any(getattr(ops, name, None) is called for ops in _OPS)
