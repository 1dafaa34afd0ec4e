"""Loops that a value ends, over tensors of a trace: `gradof.tracer.core.whiles`.

    while (x * x - a).abs() > tol:      # `ApiMode` asks `tested` as Python branches
        x = 0.5 * (x + a / x)

What stands after the loops for a tensor that steps have made is another one, of the same type and
with a history that only says whether it has one: where torch's autograd would go back through it
while the function runs, the trace is taken again without such loops (`Unrolled`). So it is where
memory is changed that a view in the loop had a part in.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils._python_dispatch import _disable_current_modes

from gradof import tuning
from gradof.ir.attrs import to_numpy_dtype
from gradof.ir.clone import clone_node
from gradof.ir.core import Graph, Node, Value
from gradof.ir.types import TensorType
from gradof.ops.expr import Expr, F
from gradof.passes.roll.ways import LARGEST_COUNT
from gradof.tracer.aten.types import dense_of
from gradof.tracer.core.counted import Counted, Lent
from gradof.tracer.core.heads import Arrays, Head, is_number, number_varies
from gradof.tracer.core.loop_notes import LoopNotes
from gradof.tracer.core.number import as_it_is
from gradof.tracer.core.standing import Standing, are_known
from gradof.tracer.core.whiles import Whiles, between
from gradof.tracer.state.branch_code import after_call
from gradof.tracer.state.source import user_frame
from gradof.tracer.torch.functional import inner, is_wrapper, plainly, within_transform, wrap
from gradof.tracer.torch.loop_state import HELD, LoopRecorder, TensorStanding, is_op

if TYPE_CHECKING:
    from gradof.tracer.torch.tracer import Trace

Tensor = torch.Tensor
EvaluateGraph = Callable[[Graph, Sequence[Any]], Sequence[Any]]
_DTYPES: Mapping[Any, torch.dtype] = {int: torch.int64, float: torch.float64}
_LIBRARY = frozenset({"Opaque", "library_call", "library_gradient"})


class Unrolled(Exception):  # a signal to `trace_torch`
    """What a loop has left is used as only its steps could be."""


class _History(torch.autograd.Function):
    """A tensor that requires grad, as one does whose history is a Loop's."""

    @staticmethod
    def forward(ctx: Any, like: Tensor, made: Tensor, notes: LoopNotes) -> Tensor:
        """The tensor, in the place of one like it."""
        ctx.notes = notes
        return made

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        """There is none."""
        ctx.notes.unrolled = True
        raise Unrolled


_apply: Callable[..., Any] = _History.apply


class TensorLoops(Arrays):
    """See the module docstring."""

    def __init__(self, trace: Trace, loops: LoopNotes, evaluate: EvaluateGraph) -> None:
        self.trace, self.notes, self.evaluate_graph = trace, loops, evaluate
        self.recorder: LoopRecorder = LoopRecorder(trace, loops)
        self.watched: list[tuple[Tensor, int]] = []  # of which nothing is to be written
        self.whiles = Whiles(self)

    def __enter__(self) -> None:  # branches are asked about, and `range` may be counted
        trace, recorder = self.trace, self.recorder

        def decide(frame: FrameType, at: int, value: Value, outcome: bool) -> tuple[Value, bool]:
            with torch._C.DisableTorchFunction():
                return self.whiles.decide(frame, at, value, outcome)

        self.notes.decide = recorder.numbers.decide = decide
        trace.reads.lends["range"] = Lent.of(
            range, lambda args, kwargs: CountedRange(recorder, [range(*args, **kwargs)])
        )

    def __exit__(self, kind: Any, *rest: object) -> None:
        """The run has ended; Unrolled where it had better not have had these loops."""
        self.recorder.closed = True
        self.notes.forget()
        self.recorder.numbers.decide = as_it_is
        with torch._C.DisableTorchFunction():
            written = any(t._version != version for t, version in self.watched)
        if kind is None and (self.notes.unrolled or written):
            raise Unrolled

    def tested(self, func: Any, args: Any, kwargs: Any, frame: FrameType) -> Any:
        """What Python is told by a function that may decide a branch; NotImplemented: by value."""
        users, api = user_frame(frame), self.trace.api
        if users is None:
            return NotImplemented
        name = func.__name__
        if name == "__bool__":
            return self._decided(args[0], users, users.f_lasti)
        at = after_call(users.f_code, users.f_lasti, name)
        if at < 0 or name == "is_nonzero":
            return NotImplemented if at < 0 else self._decided(args[0], users, at)
        if name == "equal" and args[0].shape != args[1].shape:
            return NotImplemented
        with api:
            near = torch.isclose(*args, **kwargs) if name == "allclose" else torch.eq(*args)
            all_ = near.all()
        return self._decided(all_, users, at)

    def _decided(self, tensor: Tensor, frame: FrameType, at: int) -> Any:
        recorder, held = self.trace.recorder, inner(tensor)
        value = recorder.find(held)
        if value not in recorder.varying or held.numel() != 1:
            return NotImplemented
        if held.dtype not in HELD or not held.is_cpu:
            return NotImplemented
        with recorder.pause():
            outcome = bool(held.item())
        self.recorder.enter()
        if held.dtype is not torch.bool:
            value = F.ne(recorder.emitter.wrap(value), 0).value
            recorder.varying.add(value)
        value, outcome = self.notes.decide(frame, at, value, outcome)
        self.recorder.enter()
        if value.node is None or value.node.kind != "Constant":
            self.recorder.guard(value, outcome)
        return outcome

    # --- where the run stands -------------------------------------------------------------------

    def records(self) -> bool:
        """Not within what torch or a rule of the user's runs."""
        recorder = self.trace.recorder
        return (
            recorder.builder.block is recorder.graph.block and not recorder.paused
            and not recorder.parts and not recorder.applying
            and not self.trace.reads.of_backwards.running and not within_transform()
            and len(recorder.graph.block) <= tuning.WHILE_NODES
        )  # fmt: skip

    def standing(self) -> Standing:
        """See TensorStanding."""
        return TensorStanding(self.trace)

    def marks(self) -> tuple[Any, ...]:
        """What a step may do beside recording nodes."""
        trace, reads = self.trace, self.trace.reads
        layouts = trace.api.layouts.marks()
        switches = (
            torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype(),
            torch.is_autocast_enabled("cpu"), trace.api.histories.writes,
        )  # fmt: skip
        counted = trace.params, reads.effects, reads.variables, reads.switches, reads.environment
        return layouts, switches, reads.progress(), *(len(each) for each in counted)

    def are_known(self, called: Iterable[Any]) -> bool:
        """Ops of torch's, and what is known of Python's."""
        return are_known(each for each in called if not is_op(each))

    def evaluate(self, first: Head, wanted: Sequence[Value]) -> Sequence[Any]:
        """By what the state was at a head, and the inputs of the trace."""
        standing = first.standing
        assert isinstance(standing, TensorStanding)
        known: dict[Value, Any] = dict(zip(self.trace.params, self.trace.real, strict=True))
        known.update(zip(standing.values, standing.concretes, strict=True))
        known.setdefault(first.state[0], first.outcome)
        part, read = _part(wanted, known)
        self.trace.recorder.deferred.settle([known[v] for v in read])
        with _disable_current_modes(), plainly():
            return self.evaluate_graph(part, [_array(known[v], v) for v in read])

    # --- after the loops ------------------------------------------------------------------------

    def may_make(self, array: Any) -> bool:
        """Where it is in rows."""
        return type(array) is Tensor and array.is_contiguous() and not array.is_inference()

    def may_change(self, array: Any, fresh: bool) -> bool:
        """Where all who have its memory have its history."""
        return not self.trace.api.histories.follows(array) and self.may_make(array)

    def made(self, array: Any, final: Expr, value: Any) -> Any:
        """A tensor with a history as the old one has."""
        base = array._base
        held = self._wrapped(array, final, value)
        if base is not None or self.trace.api.histories.follows(array):
            self.watched += [(t, t._version) for t in (array, held, base) if t is not None]
        return held

    def _wrapped(self, array: Tensor, final: Expr, value: Any) -> Tensor:
        recorder = self.trace.recorder
        with recorder.pause():
            with plainly():
                plain = torch.from_numpy(np.array(value)).to(array.dtype).reshape(array.shape)
            made = wrap(plain)
            if array.requires_grad and array.is_leaf:
                made.requires_grad_()
            elif array.requires_grad:
                with torch.enable_grad():
                    made = _apply(array, made, self.notes)
        recorder.bind(inner(made), final.value)
        return made

    def change(self, array: Any, final: Expr, value: Any) -> None:
        """As the user's code would."""
        made = self._wrapped(array, final, value)
        self.trace.api.__torch_function__(Tensor.copy_, (), (array, made))

    def added(
        self, first: Head, last: Head, counts: Sequence[Value], finals: Mapping[int, Value]
    ) -> None:
        """What is known of the values that the last head had is known of these."""
        recorder = self.trace.recorder
        recorder.varying.update(counts, finals.values())
        for i, value in finals.items():
            for known in (recorder.attached, recorder.cut):
                if last.state[i] in known and value.is_inexact:
                    known.add(value)
        if first.standing.firm != last.standing.firm:  # without a step there is no history
            some = F.gt(recorder.emitter.wrap(counts[-1]), 0).value
            recorder.varying.add(some)
            self.recorder.guard(some, True)

    # --- what varies ----------------------------------------------------------------------------

    def varied(self, value: Any, dtype: Any) -> Any:
        """Note [Numbers that vary] in `numpy.whiles`."""
        kind, recorder = type(value), self.trace.recorder
        if kind is int and abs(value) > LARGEST_COUNT:
            return None
        if kind is Tensor and is_wrapper(value) and dtype is not None:
            old = recorder.find(inner(value))
            if old is not None and old not in recorder.varying and value._base is None:
                recorder.bind(inner(value), self._free(recorder.emitter.wrap(old)).value)
        elif kind in _DTYPES:
            with plainly():
                plain = torch.tensor(value, dtype=_DTYPES[kind] if dtype is None else dtype)
            constant = recorder.emitter.body.constant(dense_of(plain))
            expr = self._free(recorder.emitter.wrap(constant))
            if dtype is None:
                return self.recorder.numbers.element(value, expr.value)
            with recorder.pause():
                made = wrap(plain)
            recorder.bind(inner(made), expr.value)
            return made
        return None

    def _free(self, expr: Expr) -> Expr:
        made = F.copy(expr)
        self.recorder.note_varying(made.value)
        return made

    def varies(self, before: Head, now: Head, name: str) -> tuple[Any] | None:
        """By what the variable was at two heads."""
        was: Any = before.standing.variables.get(name)
        value = now.standing.variables[name]
        kind, then = type(value), type(was)
        if is_number(was) and is_number(value):
            return number_varies(was, value)
        if kind is not Tensor or not is_wrapper(value):
            return None
        if then in _DTYPES and value.dim() == 0:
            fits = value.dtype.is_floating_point == (then is float)
            return (value.dtype,) if fits and self._of_one_dtype(before, now, value) else None
        if then is Tensor and was is not value and is_wrapper(was) and was._base is None:
            old = self.trace.recorder.find(inner(was))
            same = (was.dtype, was.shape) == (value.dtype, value.shape)
            fixed = old is not None and old not in self.trace.recorder.varying
            return (value.dtype,) if same and fixed else None
        return None

    def _of_one_dtype(self, before: Head, now: Head, like: Tensor) -> bool:
        """Whether a number in a step gives the same as a tensor of no axes of this dtype."""
        nodes = between(before.last, now.last, self.trace.recorder.graph)
        value = self.trace.recorder.find(inner(like))
        dtypes = {v.type.dtype for node in nodes for v in (*node.inputs, *node.outputs)
                  if isinstance(v.type, TensorType) and v.is_inexact}  # fmt: skip
        assert value is not None and isinstance(value.type, TensorType)
        return not value.is_inexact or dtypes == {value.type.dtype}


class CountedRange(Counted):
    """The numbers of a `range` that a `for` asks for."""

    def __iter__(self) -> CountedRange:
        return self

    def __next__(self) -> Any:
        if self.is_counted or (self.at == 0 and self.is_to_count(sys._getframe(1))):
            return self.counted_items()[0]
        if self.at >= self.count:
            raise StopIteration
        self.at += 1
        return self.sources[0][self.at - 1]


def _array(concrete: Any, value: Value) -> Any:
    assert isinstance(value.type, TensorType)
    if isinstance(concrete, Tensor):
        return concrete.detach().cpu().resolve_conj().numpy()
    return np.full(value.type.shape or (), concrete, to_numpy_dtype(value.type.dtype))


def _part(wanted: Sequence[Value], known: Mapping[Value, Any]) -> tuple[Graph, list[Value]]:
    """A graph of some values by others that are known, and which of these it reads."""
    part, mapping = Graph("part"), dict[Value, Value]()
    read: list[Value] = []
    todo: list[Value | Node] = list(reversed(wanted))
    while todo:
        at = todo.pop()
        if isinstance(at, Node):
            copy = part.block.append(clone_node(at, mapping))
            mapping.update(zip(at.outputs, copy.outputs, strict=True))
        elif at in mapping:
            continue
        elif at in known:
            mapping[at] = part.block.add_param(at.type, at.hint)
            read.append(at)
        else:
            assert at.node is not None
            todo += [at.node, *at.node.inputs]
    part.set_outputs([mapping[v] for v in wanted])
    return part, read
