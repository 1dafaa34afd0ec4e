"""Leaves of autograd's that a traced function makes, of which a gradient may be asked for.

    w = x.detach().requires_grad_()                 # makes one
    twin = copy.deepcopy(model).requires_grad_(False)           # lets some go again
    g, = torch.autograd.grad(loss(w), w)

The graph knows of values alone: a gradient flows to those that are `attached`.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import torch

from gradof.errors import TraceError
from gradof.ir.core import Value
from gradof.tracer.state.source import user_loc
from gradof.tracer.torch.functional import inner
from gradof.tracer.torch.recorder import Recorder


class MadeLeaves:
    """Those of one trace."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._values: set[Value] = set()
        self._tensors: dict[int, torch.Tensor] = {}

    def make(self, tensor: torch.Tensor) -> None:
        """From now on a gradient may be asked for of a tensor, if it requires grad."""
        value = self.recorder.find(inner(tensor))
        if value is not None and value.node is None and value.has_uses:
            raise TraceError(
                "a gradient is asked for of an argument, or of the state, that was used before",
                loc=user_loc(), hint="call x.requires_grad_() first, or outside the function",
            )  # fmt: skip
        if value is not None and tensor.requires_grad:
            self.recorder.attached.add(value)
            self._values.add(value)
            self._tensors[id(tensor)] = tensor

    def is_one(self, given: Any) -> bool:
        """Whether it is a tensor that is one of these."""
        return id(given) in self._tensors

    def let_go(self, tensor: torch.Tensor) -> None:
        """It requires grad no longer; what was computed from it does."""
        value = self.recorder.find(inner(tensor))
        assert value is not None
        if value.has_uses or value not in self._values:
            self.recorder.builder.loc = user_loc()
            cut = self.recorder.builder.emit("detach", value)
            self.recorder.cut.add(cut)
            self.recorder.bind(inner(tensor), cut)
        else:
            self.recorder.attached.discard(value)
            self._values.discard(value)

    def leads_to(self, value: Value, given: Container[Value]) -> set[Value]:
        """What a gradient flows through from a value to leaves that were made, and none of `given`.

        Empty where it flows to no leaf, or to others. Raises TraceError where to no input at all.
        """
        attached, stack, seen = self.recorder.attached, [value], set[Value]()
        while stack and self._values:
            at = stack.pop()
            if at in seen or at not in attached:
                continue
            seen.add(at)
            if at.node is not None and at.node.kind != "detach":
                stack += at.node.inputs  # that of a transform within a transform is an alias
        inputs = [at for at in seen if at.node is None]
        if seen & self._values and not inputs:
            raise TraceError(
                "a result requires grad by a leaf that the function has made, and no argument leads"
                " to it", loc=user_loc(), hint="detach the result",
            )  # fmt: skip
        return seen if seen & self._values and not any(at in given for at in inputs) else set()
