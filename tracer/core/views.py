"""Results that are views of an argument: the same memory, as without gradof.

    def f(x): return x[1:], x.sum()        the first result is ViewOf(0, (("slice", ...),)) of x

The graph computes such a result too, for its gradient; what the caller gets is the view, made anew
at each call by the steps that lead to it. Steps the library itself would copy at (a reshape of
memory that is not in order) are copies here too.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gradof.ir.attrs import Attr
from gradof.ir.core import Value


def _slice(x: Any, *, dim: int, start: int, stop: int, step: int) -> Any:
    return x[(slice(None),) * dim + (slice(start, stop, step),)]


def _is_numpy(x: Any) -> bool:
    return type(x).__module__ == "numpy"


def _permute(x: Any, *, dims: tuple[int, ...]) -> Any:
    return x.transpose(dims) if _is_numpy(x) else x.permute(dims)


def _expand(x: Any, *, shape: tuple[int, ...]) -> Any:
    if not _is_numpy(x):
        return x.expand(shape)
    import numpy as np

    return np.broadcast_to(x, shape)


def _flip(x: Any, *, dims: tuple[int, ...]) -> Any:
    import numpy as np

    return np.flip(x, dims)  # a view in numpy alone


def _unfold(x: Any, *, dim: int, size: int, step: int) -> Any:
    if not _is_numpy(x):
        return x.unfold(dim, size, step)
    import numpy as np

    windows = np.lib.stride_tricks.sliding_window_view(x, size, dim)
    return windows[(slice(None),) * dim + (slice(None, None, step),)]


_STEPS: Mapping[str, Callable[..., Any]] = {
    "reshape": lambda x, *, shape: x.reshape(shape), "permute": _permute, "expand": _expand,
    "slice": _slice, "flip": _flip, "detach": lambda x: x if _is_numpy(x) else x.detach(),
    "select": lambda x, *, dim, index: x[(slice(None),) * dim + (index,)],
    "diagonal": lambda x, *, offset, dim1, dim2: x.diagonal(offset, dim1, dim2),
    "alias": lambda x: x.view() if _is_numpy(x) else x.view_as(x),
    "real": lambda x: x.real, "imag": lambda x: x.imag,
    "unfold": _unfold,
}  # fmt: skip


@dataclass(frozen=True)
class ViewOf:
    """A view of graph input `input`, or of its new value where it is written back."""

    input: int
    steps: tuple[tuple[str, tuple[tuple[str, Attr], ...]], ...]

    def of(self, array: Any) -> Any:
        """The view of an array or tensor."""
        for kind, attrs in self.steps:
            array = _STEPS[kind](array, **dict(attrs))
        return array


    def result(self, inputs: Sequence[Any], made: Any) -> Any:
        """The result, of what the inputs are and of what was computed."""
        return self.of(inputs[self.input])


@dataclass(frozen=True)
class SharedView:
    """A view of graph output `output`, which need not be a result itself."""

    output: int
    steps: tuple[tuple[str, tuple[tuple[str, Attr], ...]], ...]
    requires_grad: bool
    dense: bool = False  # the output has memory for each of its elements, though it was expanded

    def of(self, results: Sequence[Any]) -> Any:
        """The view of what was computed."""
        made = results[self.output]
        return ViewOf(self.output, self.steps).of(made if self.requires_grad else made.detach())


@dataclass(frozen=True)
class LaidOut:
    """A result of its own memory with these strides."""

    strides: tuple[int, ...]
    rows: bool = False  # then they are those of rows, and any that mean the same will do

    def result(self, inputs: Sequence[Any], made: Any) -> Any:
        """As of a view."""
        if self.rows:
            return made.contiguous()
        if made.stride() == self.strides:
            return made
        once = made[tuple([slice(None, None if step else 1) for step in self.strides])]
        laid = made.new_empty(0).set_(
            made.new_empty(once.numel()).untyped_storage(), 0, once.shape, self.strides
        ).copy_(once)
        return laid.expand(made.shape)


def root_of(value: Value, copies: Container[str] = ()) -> Value:
    """What a value is a view of, by way of other views; itself if it is none.

    `copies` are views that the library at hand has to copy for.
    """
    while value.node is not None and value.node.kind in _STEPS and value.node.kind not in copies:
        value = value.node.inputs[0]
    return value


def view_of(value: Value, base: Value, input_: int) -> ViewOf | None:
    """How `value` is a view of `base`; None where another op lies between."""
    steps: list[tuple[str, tuple[tuple[str, Attr], ...]]] = []
    while value is not base:
        node = value.node
        if node is None or node.kind not in _STEPS:
            return None
        steps.append((node.kind, tuple(node.attrs.items())))
        value = node.inputs[0]
    return ViewOf(input_, tuple(reversed(steps)))
