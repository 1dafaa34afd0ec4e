"""Which gradient each tensor has where several share their memory and not their history.

    s = h.detach(); s[0] = w[1]      # of s the gradient flows to w, of h to what made it
    with torch.no_grad(): w.sub_(g)  # w has other elements, and its gradient is still its own

Tensors over one memory form *families*: a tensor and torch's views of it share a history. `detach`,
`.data` and `torch.nn.Parameter` begin another family over the same memory. A write in grad mode
gives its family a new history; to all others, and where gradients are off to its own, it is a
*foreign* write: other elements, the gradient of before.

Note [Values and histories]
The graph knows of values alone, and memory that is written has one value for all who share it. So
a tensor is put right when it enters a call of torch: one that requires no grad stands for the
detached value, and one whose memory had a foreign write for the value that is there now with the
gradient of the one that it had (a `CustomRule` that passes the cotangent on). Before a family
writes, the memory as a whole is given its view of things, as what the write leaves out goes on
from there. Where that cannot be told, a tensor that requires grad is refused (TraceError).

What does not require grad while a trace runs may be differentiated later (`gradof.grad`): what was
decided here by `requires_grad` would be decided otherwise then, and `decided` says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

import torch

from gradof.errors import TraceError
from gradof.ir.core import Node, Value
from gradof.tracer.aten.types import type_of
from gradof.tracer.core.custom_rule import RuleRecording
from gradof.tracer.state.source import user_loc
from gradof.tracer.torch.composites import TAKE_VIEWS
from gradof.tracer.torch.functional import inner, is_base, is_wrapper, is_written, wrap
from gradof.tracer.torch.made_leaves import MadeLeaves
from gradof.tracer.torch.memory import address, base_of, reshaped, same_elements
from gradof.tracer.torch.parted import Parted
from gradof.tracer.torch.recorder import Recorder
from gradof.tracer.torch.saved import SavedMemory

Tensor = torch.Tensor


@dataclass
class _Family:
    """A tensor that is no view, and torch's views of it."""

    base: Tensor
    grad_fn: Any
    version: int
    own: int = 0  # writes that gave it a new history
    is_data: bool = False
    lost: bool = False  # a write went out from a gradient that is not its own


@dataclass
class _Note:
    """A tensor when it was seen last: its value, with its own gradient, and its family's writes."""

    tensor: Tensor
    value: Value
    own: int


@dataclass
class _Memory:
    """One memory that tensors of several histories share."""

    root: Tensor | None  # the tensor that is all of it
    keeps: Tensor  # so that its address stays its own
    families: dict[int, _Family] = field(default_factory=dict)
    notes: dict[int, _Note] = field(default_factory=dict)
    writes: int = 0
    holder: _Family | None = None  # whose gradient the memory's value as a whole has


@dataclass
class _Before:
    """A family before a call that may write to it."""

    memory: _Memory
    family: _Family
    handed: bool = False  # the memory as a whole has its gradient
    value: Value | None = None  # what it had before that
    after: Node | None = None  # its nodes are those after this one, where it is the only operand


class Histories:
    """The histories of one trace; see the module docstring."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.decided = False
        self.saved = SavedMemory(recorder)
        self.leaves = MadeLeaves(recorder)
        self.parted = Parted(recorder)
        self._memories: dict[int, _Memory] = {}

    def cut(self, tensor: Tensor, is_data: bool) -> Tensor:
        """`tensor.detach()`: the same memory, without a history; or `tensor.data`.

        Writes to that are not noticed by torch: what autograd has saved is other elements then.
        """
        memory = self._track(tensor)
        with self.recorder.cutting(), torch._C._AutoDispatchBelowADInplaceOrView():
            found: Tensor = torch.ops.aten.alias.default(tensor)
            inner(found)  # made again, of memory that was written to before
        self.read(found)
        self._family(memory, found).is_data = is_data
        return found

    def given(self, tensor: Tensor) -> None:
        """A tensor has the memory of another now: `x.data = y`."""
        self._family(self._memories[address(tensor)], tensor).is_data = True
        self.read(tensor, made=True)

    def rebased(self, tensor: Tensor) -> bool:
        """Whether a tensor that was changed has another history since."""
        memory = self._memories.get(address(tensor))
        if memory is not None:
            return self._family(memory, tensor).own > 0
        # a Function's forward writes behind autograd's back: it is what `Trace.wrap` has made
        made_by = tensor.grad_fn
        return made_by is not None and made_by.name() != "CloneBackward0"

    @property
    def writes(self) -> int:
        """How many writes to memory of several histories there were."""
        return sum(memory.writes for memory in self._memories.values())

    def follows(self, tensor: Tensor) -> bool:
        """Whether the memory of a tensor may be shared by several histories."""
        return address(tensor) in self._memories

    def has_gradient(self, tensor: Tensor) -> bool:
        """Whether a tensor has a gradient, or has one where the arguments are given one."""
        if tensor.requires_grad or not is_wrapper(tensor):
            return tensor.requires_grad
        return self.recorder.find(inner(tensor)) in self.recorder.attached

    def see_leaves(self, given: Any, results: Any) -> None:
        """Views that were just taken under no_grad: of what requires grad they do, too, as leaves.

            with torch.no_grad(): v = x.reshape(2, 2)      # v.requires_grad, and x gets nothing
        """
        known = {id(tensor) for tensor in wrappers_in(given)}
        for tensor in wrappers_in(results):
            if tensor.requires_grad and id(tensor) not in known:  # is_leaf may be eager's error
                inner(tensor)  # taken here, and cut off: a use with gradients is refused, as
                if is_base(tensor) or not is_written(tensor):  # views of it are not taken of it
                    self.make_leaf(tensor)

    def apart(self, func: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The operands of a call, with others for tensors detached from memory that was written:
        a view that torch takes of one would be taken of the memory again, with its history.
        """
        if func not in TAKE_VIEWS or not self._memories:
            return args
        return tuple(map(self._apart, args))

    def _apart(self, given: Any) -> Any:
        if type(given) in (list, tuple):
            return type(given)([self._apart(part) for part in given])
        if isinstance(given, Tensor) and is_wrapper(given) and not given.requires_grad:
            if self.follows(given) and is_written(given):
                return wrap(inner(given))
        return given

    def make_leaf(self, tensor: Tensor) -> None:
        """From now on a gradient may be asked for of a tensor: x.detach().requires_grad_()."""
        if tensor.requires_grad and is_written(tensor) and not is_base(tensor):
            raise self._refusal(tensor)  # a view of it would be taken of the memory again
        self.leaves.make(tensor)

    # --- a tensor that enters a call --------------------------------------------------------

    def read(self, tensor: Tensor, made: bool = False) -> None:
        """Let a tensor stand for its elements with its own gradient, or raise a TraceError.

        `made`: a call just made it, of memory that was handed over.
        """
        self.parted.check(tensor)
        memory = self._memories.get(address(tensor)) if self._memories else None
        if memory is None or tensor.is_inference():
            return
        family = self._family(memory, tensor)
        self._notice(memory, family, handed=False)
        with torch.enable_grad():  # a view is taken again of memory that was written to
            value = self.recorder.value(inner(tensor), user_loc())
        note = memory.notes.get(id(tensor))
        if note is not None and note.value is value:
            note.own = family.own
            return
        if not tensor.requires_grad and (memory.writes or is_written(tensor)):
            if value in self.recorder.attached:
                self.decided = True
                value = self._stand_for(memory, tensor, self._without_gradient(value))
        elif not memory.writes:
            pass
        elif family.lost or not (made or note or memory.holder is family):
            if not torch.is_grad_enabled():
                return  # its elements alone are read, or changed
            raise self._refusal(tensor)
        elif note is not None and memory.holder is not family:
            if note.own != family.own:
                raise self._refusal(tensor)
            value = self._stand_for(memory, tensor, self._with_gradient_of(value, note.value))
        memory.notes[id(tensor)] = _Note(tensor, value, family.own)

    def _stand_for(self, memory: _Memory, tensor: Tensor, value: Value) -> Value:
        """Let a tensor stand for a value; what the others have is not to be taken from it."""
        if tensor is memory.root:
            for note in list(memory.notes.values()):
                if note.tensor is not tensor:
                    self.read(note.tensor)
            memory.holder = self._family(memory, tensor)
        self.recorder.bind(inner(tensor), value)
        return value

    def _without_gradient(self, value: Value) -> Value:
        recorder = self.recorder
        recorder.builder.loc = user_loc()
        cut = recorder.builder.emit("detach", value)
        if value in recorder.varying:
            recorder.varying.add(cut)
        recorder.cut.add(cut)
        return cut

    def _with_gradient_of(self, value: Value, old: Value) -> Value:
        recorder = self.recorder
        loc = recorder.builder.loc = user_loc()
        rule = RuleRecording(recorder.builder, [value], [old])
        rule.close(rule.cotangents, loc)
        made = rule.node.outputs[0]
        recorder.varying.add(made)
        if old in recorder.attached:
            recorder.attached.add(made)
        return made

    def _refusal(self, tensor: Tensor) -> TraceError:
        return TraceError(
            f"a {type_of(tensor)} that requires grad was changed behind autograd's back",
            loc=user_loc(),
            hint="under no_grad, or through .data or .detach(), change only copies of it",
        )

    # --- a call -----------------------------------------------------------------------------

    def before(self, func: Any, tensors: Sequence[Tensor], cutting: bool) -> list[_Before]:
        """Note what a call may write to; `cutting` where its writes leave histories alone."""
        if func is torch.autograd.grad:
            self.saved.refuse()
        if self.recorder.applying:
            return []
        found: dict[int, _Before] = {}
        for tensor in tensors:
            if cutting and not tensor.is_inference() and self.has_gradient(tensor):
                self._track(tensor)
            memory = self._memories.get(address(tensor)) if self._memories else None
            if memory is None or tensor.is_inference():
                continue
            family = self._family(memory, tensor)
            if id(family) not in found:
                self.read(family.base)
                found[id(family)] = _Before(memory, family)
        calls = list(found.values())
        is_one_op = not isinstance(func, FunctionType)
        if is_one_op and len(tensors) == len({*map(address, tensors)}):
            for call in calls:
                call.after = self.recorder.graph.block.returns._prev
        for call in calls:
            if not cutting and sum(call.memory is other.memory for other in calls) == 1:
                self._hand_over(call)
        return calls

    def after(self, calls: Sequence[_Before], results: Any) -> None:
        """Take down what the call wrote; its results are seen."""
        if torch.is_grad_enabled():
            for tensor in wrappers_in(results):
                self._cut_off(tensor)
        written = [
            self._notice(call.memory, call.family, call.handed, call.after) for call in calls
        ]
        if self._memories:
            sound = {id(call.memory) for call in calls if call.handed}
            for tensor in wrappers_in(results):
                memory = self._memories.get(address(tensor))
                self.read(tensor, made=id(memory) in sound)
        for call, wrote in zip(calls, written, strict=True):
            if call.value is not None and not wrote:
                assert call.memory.root is not None
                self.recorder.bind(inner(call.memory.root), call.value)

    def _cut_off(self, tensor: Tensor) -> None:
        """An opaque result for which torch has no gradient, and raises nothing, has none."""
        if tensor.requires_grad or not tensor.is_floating_point():
            return
        value = self.recorder.find(inner(tensor))
        if value is not None and value.node is not None and value.node.kind == "Opaque":
            self.recorder.bind(inner(tensor), self.recorder.builder.emit("detach", value))

    def _hand_over(self, call: _Before) -> None:
        """Give the memory as a whole the gradient of the family that may write."""
        memory, family = call.memory, call.family
        call.handed = memory.holder is family
        if call.handed:
            return
        for note in list(memory.notes.values()):
            self.read(note.tensor)
        if memory.root is None or not same_elements(memory.root, family.base):
            return
        place = inner(memory.root)
        call.value = self.recorder.value(place, None)
        call.handed = True
        value = self.recorder.value(inner(family.base), None)
        self.recorder.bind(place, reshaped(self.recorder, value, memory.root))

    def _notice(
        self, memory: _Memory, family: _Family, handed: bool, after: Node | None = None
    ) -> bool:
        """Whether the family was written to since it was looked at last.

        `handed`: the memory as a whole had its gradient before. `after`: the nodes of the op that
        wrote are those after it, if it is known, and read nothing else of the memory.
        """
        base = family.base
        if base._version == family.version:
            return False
        family.version = base._version
        memory.writes += 1
        grad_fn, memory.holder = base.grad_fn, None
        own = self.saved.since(after)
        for note in memory.notes.values():
            other = self._family(memory, note.tensor)
            if other is not family and (family.is_data or other.is_data):  # counted apart
                self.saved.changed(note.value, own, self._refusal(base))
        if not base.requires_grad:
            self.decided = True
        if not base.requires_grad or grad_fn is not family.grad_fn:
            family.own += 1
            family.grad_fn = grad_fn
            memory.holder = family if handed else None
            family.lost |= base.requires_grad and not handed
        return True

    # --- families ---------------------------------------------------------------------------

    def _track(self, tensor: Tensor) -> _Memory:
        """From now on the memory of a tensor is looked at."""
        place = address(tensor)
        memory = self._memories.get(place)
        if memory is None:
            base = base_of(tensor)
            root = next((t for t in (tensor, base) if is_base(t)), None)
            memory = self._memories[place] = _Memory(root, tensor)
            memory.holder = self._family(memory, tensor)
            self.read(base)
        self.read(tensor)
        return memory

    def _family(self, memory: _Memory, tensor: Tensor) -> _Family:
        base = base_of(tensor)
        family = memory.families.get(id(base))
        if family is None:
            family = memory.families[id(base)] = _Family(base, base.grad_fn, base._version)
        return family


def wrappers_in(tree: Any) -> Iterator[Tensor]:
    """The traced tensors among the arguments or the results of a call."""
    if isinstance(tree, Tensor):
        if is_wrapper(tree):
            yield tree
    elif isinstance(tree, (list, tuple)):
        for item in tree:
            yield from wrappers_in(item)
    elif isinstance(tree, dict):
        yield from wrappers_in(list(tree.values()))
