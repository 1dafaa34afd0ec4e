"""Strides of the arguments as part of a trace, where the function asks for them.

    y = x.contiguous(); y.add_(1)     # changes x, or a copy, as x is laid out
    if x.is_contiguous(): ...
    return x * 2                      # is laid out as x is

Most functions compute the same whatever the strides are, and a trace serves them all. What is asked
of a tensor is asked of the inputs that its layout comes from: through views and elementwise ops;
products and gathers give rows. `contiguous`, `reshape` and their like only matter where memory that
they may share is written to, or handed to the caller.
"""

from __future__ import annotations

import dis
from collections.abc import Sequence
from types import FrameType
from typing import Any

import torch

from gradof.errors import TraceError
from gradof.ir.core import Value
from gradof.ir.types import TensorType
from gradof.ops.registry import get_op
from gradof.tracer.core.result import InputOut, Layout, OutputLeaf, TensorOut
from gradof.tracer.state.source import user_loc
from gradof.tracer.torch.functional import inner, is_wrapper
from gradof.tracer.torch.recorder import Recorder

Tensor = torch.Tensor
_OFFSET = torch.Tensor.storage_offset
# What reads memory by steps, and the place of its argument that says from where on.
_STRIDED = {
    torch.Tensor.as_strided: 3, torch.as_strided: 3, torch.Tensor.as_strided_: 3,
    torch.as_strided_: 3, torch.as_strided_copy: 3, torch.as_strided_scatter: 4,
    torch.Tensor.as_strided_scatter: 4,
}  # fmt: skip
ASKING = frozenset({
    torch.Tensor.stride, torch.Tensor.is_contiguous, torch.Tensor.view, torch.Tensor.view_as,
    _OFFSET, *_STRIDED,
})  # fmt: skip
_SHARING = frozenset({
    torch.Tensor.contiguous, torch.Tensor.reshape, torch.reshape, torch.Tensor.reshape_as,
    torch.Tensor.ravel, torch.ravel, torch.Tensor.flatten, torch.flatten, torch.Tensor.to,
})  # fmt: skip
_LIKE = frozenset({
    "empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like",
})  # fmt: skip
_DROPOUTS = frozenset({
    "dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout",
    "rrelu", "gumbel_softmax", "rand_like", "randn_like", "randint_like",
})  # fmt: skip
_ROWS = frozenset({
    "mm", "bmm", "Constant", "full", "take", "gather", "index_select", "embedding", "one_hot",
})  # fmt: skip
class Layouts:
    """What one trace asked of the layout of its inputs."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._asked: set[Value] = set()
        self._shared: set[Value] = set()
        self._offsets: set[Value] = set()
        self._drawn: set[Value] = set()
        self._like: dict[Value, Value] = {}
        self._written = False
        self.asks = False  # whether objects are compared by identity
        self._formats = False
        self._known: dict[Value, frozenset[Value]] = {}

    def note(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Take down what a call of torch asks of the tensors that it is given."""
        if func in ASKING or func in _SHARING:
            tensor = args[0]
            if isinstance(tensor, Tensor) and is_wrapper(tensor):
                value = self._value(tensor)
                (self._asked if func in ASKING else self._shared).update(self.sources(value))
                if func == _OFFSET and value.node is None:
                    self._offsets.add(value)
                if _from(func, args, kwargs) is not None:
                    self._offsets.update(self.sources(value))
        like = args[0] if args else kwargs.get("input")
        if getattr(func, "__name__", "") in _DROPOUTS and isinstance(like, Tensor):
            if is_wrapper(like):
                self.drawn(like, self._value(like))
        self._formats |= kwargs.get("memory_format") not in (None, torch.preserve_format)
        name = getattr(func, "__name__", "")
        if not self._written and (
            (name.endswith("_") and not name.endswith("__"))
            or name.startswith("__i") or name == "__setitem__"
            or "out" in kwargs or any(a is True for a in (*args[1:], *kwargs.values()))
        ):  # fmt: skip
            self._written = True

    def made(self, func: Any, args: Sequence[Any], result: Any) -> None:
        """Take down that a result is laid out as an argument whose elements it does not have."""
        if getattr(func, "__name__", "") in _LIKE and isinstance(result, Tensor):
            if is_wrapper(result) and isinstance(args[0], Tensor) and is_wrapper(args[0]):
                self._like[self._value(result)] = self._value(args[0])

    def marks(self) -> object:
        """Equal where nothing has been taken down in between."""
        noted = self._asked, self._shared, self._offsets, self._drawn
        return self._written, self._formats, self.asks, *map(len, noted)

    def compared(self, frame: FrameType) -> None:
        """Tensors are compared, maybe by a container: `x in found`, `found.index(x)`."""
        while str(frame.f_globals.get("__name__")).startswith("gradof.") and frame.f_back:
            frame = frame.f_back
        if dis.opname[frame.f_code.co_code[frame.f_lasti]] != "COMPARE_OP":
            self.asks = True

    def drawn(self, tensor: Tensor, value: Value) -> None:
        """Random numbers are drawn for the elements of a tensor, in the order of its memory."""
        if tensor.dim() > 1:
            self._drawn.update(self.sources(value))

    def _value(self, tensor: Tensor) -> Value:
        return self.recorder.value(inner(tensor), user_loc())

    def sources(self, value: Value) -> frozenset[Value]:
        """The inputs of the graph that a value's layout comes from."""
        stack = [value]
        while stack:
            at = stack[-1]
            if at in self._known:
                stack.pop()
                continue
            before = self._before(at)
            missing = [v for v in before if v not in self._known]
            if missing:
                stack += missing
                continue
            own = frozenset({at}) if at.node is None else frozenset()
            self._known[at] = own.union(*(self._known[v] for v in before))
        return self._known[value]

    def _before(self, value: Value) -> list[Value]:
        node = value.node
        if value in self._like:
            return [self._like[value]]
        if node is None or node.kind in _ROWS:
            return []
        tensors = [v for v in node.inputs if isinstance(v.type, TensorType) and v.type.shape]
        if "elementwise" in get_op(node.kind).traits:  # smaller ones are expanded
            return [v for v in tensors if v.type.shape == value.type.shape]  # type: ignore[union-attr]
        return tensors

    def of_inputs(
        self, params: Sequence[Value], real: Sequence[Tensor], wrappers: Sequence[Tensor],
        outputs: Sequence[OutputLeaf], values: Sequence[Value],
    ) -> tuple[Layout, ...]:  # fmt: skip
        """The layouts that calls of this trace must have; TraceError where one is not known."""
        asked = set(self._asked)
        if self._written or self.asks or any(isinstance(out, InputOut) for out in outputs):
            asked |= self._shared
        for out in outputs:
            if isinstance(out, TensorOut) and _rank(values[out.index]):
                sources = self.sources(values[out.index])
                asked |= sources & self._shared  # it may be the memory of an input
                if out.view is None and _has_rows(values[out.index]):
                    asked.update(filter(_has_rows, sources))
        found: list[Layout] = []
        for i, value in enumerate(params):
            if value not in asked and value in self._drawn and in_rows(real[i]):
                found.append(Layout(i, None, rows=True))
            if value not in asked | self._drawn or (found and found[-1].input == i):
                continue
            known = wrappers[i].stride() == real[i].stride() and not (
                value in self._offsets and wrappers[i].storage_offset() != real[i].storage_offset()
            )
            if not known and value in self._asked | self._shared:
                raise TraceError(
                    "the layout of a tensor with gaps in its memory is asked for", loc=user_loc(),
                    hint="pass it contiguous: x.contiguous()",
                )  # fmt: skip
            strides = None if real[i].is_contiguous() else tuple(real[i].stride())
            offset = int(real[i].storage_offset()) if value in self._offsets else None
            found.append(Layout(i, strides, offset))
        return tuple(found)

    def of_result(
        self, wrapper: Tensor, value: Value, params: Sequence[Value], inputs: Sequence[Tensor]
    ) -> tuple[int, ...] | None:
        """The strides of a result in rows, or laid out as an input is, or as asked; None: any.

        Those of rows are ().
        """
        if wrapper.is_contiguous():  # numpy may well leave them in another order
            return () if wrapper.dim() else None
        if not _has_rows(value):
            return None
        real = dict(zip(params, inputs, strict=True))
        rows = all(real[v].is_contiguous() for v in self.sources(value))
        if rows and not self._formats:
            return None
        dense = sorted(zip(wrapper.stride(), wrapper.shape, strict=True))
        step = 1
        for stride, size in dense:
            if size != 1 and stride != step:
                return None
            step *= size
        return tuple(wrapper.stride())


def _from(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> int | None:
    """Where in a tensor's memory a call says to begin; None where it does not say."""
    place = _STRIDED.get(func, len(args))
    return args[place] if place < len(args) else kwargs.get("storage_offset")


def in_rows(tensor: Tensor) -> bool:
    """Whether elements lie in the order of their indices, with gaps or without."""
    steps = [step for step, n in zip(tensor.stride(), tensor.shape, strict=True) if n != 1]
    return 0 not in steps and steps == sorted(steps, reverse=True)


def _rank(value: Value) -> int:
    return len(value.type.shape or ()) if isinstance(value.type, TensorType) else 0


def _has_rows(value: Value) -> bool:
    shape = value.type.shape if isinstance(value.type, TensorType) else None
    return shape is not None and sum(n != 1 for n in shape) > 1
