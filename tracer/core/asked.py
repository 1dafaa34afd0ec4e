"""What a run asked of the tensors of its call: the trace holds for calls where it is so again.

    def f(x, w):                                             f(3 * y, w):
        (slope,) = torch.autograd.grad((x * w).sum(), w)     Unhooked(1), OfOwnHistory((1,), (0,))
        return slope * getattr(x, "scale", 1)                Attributes(0, {}, frozenset({"scale"}))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Attributes:
    """What was read of the attributes that the user set on graph input `input`.

    `absent` are names that were asked for and not there; None: it has no others than `present`.
    """

    input: int
    present: dict[str, Any]
    absent: frozenset[str] | None

    def holds(self, inputs: Sequence[Any]) -> bool:
        """Whether the tensor of another call has the same."""
        there = inputs[self.input].__dict__
        if self.absent is None and there.keys() != self.present.keys():
            return False
        if self.absent and not self.absent.isdisjoint(there):
            return False
        return all(
            type(there.get(name)) is type(value) and repr(there[name]) == repr(value)
            for name, value in self.present.items()
        )


@dataclass(frozen=True, slots=True)
class NoGradient:
    """Graph input `input` is a leaf whose `.grad` was read, and None."""

    input: int

    def holds(self, inputs: Sequence[Any]) -> bool:
        """Whether it is for the tensor of another call; of one that is no leaf torch warns."""
        tensor = inputs[self.input]
        return tensor.is_leaf and tensor.grad is None


@dataclass(frozen=True, slots=True)
class Unchanged:
    """Graph input `input` was never changed in place: its version counter was read, and 0."""

    input: int

    def holds(self, inputs: Sequence[Any]) -> bool:
        """Whether it is so for the tensor of another call; inference tensors have no counter."""
        tensor = inputs[self.input]
        return not tensor.is_inference() and not tensor._version


@dataclass(frozen=True, slots=True)
class Unhooked:
    """Graph input `input` has no hooks on its gradient, which the function itself asks for."""

    input: int

    def holds(self, inputs: Sequence[Any]) -> bool:
        """Whether it is so for the tensor of another call."""
        return not inputs[self.input]._backward_hooks


@dataclass(frozen=True, slots=True)
class OfOwnHistory:
    """No graph input among `others` comes from one of `inputs`, by what was before the call.

    The function asks for the gradients of these, which would go on through them.
    """

    inputs: tuple[int, ...]
    others: tuple[int, ...]  # those with a history

    def holds(self, inputs: Sequence[Any]) -> bool:
        """Whether it is so for the tensors of another call."""
        sources = [inputs[i] for i in self.inputs]
        return not come_from([inputs[i] for i in self.others], sources)


def come_from(tensors: Sequence[Any], sources: Sequence[Any]) -> bool:
    """Whether autograd would come from one of the tensors to a source that is another one.

    Two results of one op do not come from each other.
    """
    own, leaves = {s.grad_fn for s in sources} - {None}, {id(s) for s in sources}
    stack = [t.grad_fn for t in tensors]
    seen = set[Any]()
    while stack:
        new = {after for after, _ in stack.pop().next_functions if after is not None} - seen
        if any(node in own or id(getattr(node, "variable", None)) in leaves for node in new):
            return True
        seen |= new
        stack += new
    return False


Told = Attributes | NoGradient | Unchanged | Unhooked | OfOwnHistory  # of the tensors of a call
