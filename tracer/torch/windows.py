"""Views through which nothing may be changed: of `expand`, and of `Tensor.unfold`.

    x.expand(2, 3).add_(1)                 # refused, as in eager: one element of memory is two
    x.expand(2, 3)[0].add_(1)              # refused: it is read in the other row, too
    x.expand(1, 3).add_(1)                 # fine: no element is read twice
    v = x.unfold(1, 1, 5); v.add_(1)       # refused

torch's functionalization does not look whether elements overlap. What is changed through `expand`
it adds to the tensor as a sum of differences, which rounds, and is nan of infinities; where nothing
is read twice, new dims take the place of `expand`. It puts a changed window view back
with `unfold_backward`, which sets what no window covers to zero and adds up what several cover
(pytorch#198102). Windows that cover each element once are put back right.
"""

from __future__ import annotations

from types import (
    BuiltinFunctionType,
    MethodDescriptorType,
    MethodWrapperType,
    WrapperDescriptorType,
)
from typing import Any

import torch

from gradof.errors import UnsupportedOpError
from gradof.ir.core import Loc
from gradof.tracer.state.unheard import heard
from gradof.tracer.torch.functional import is_wrapper

# Functions of torch's that run no code of the user's, as Python functions and custom ops may.
_OF_C = frozenset({
    BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType, MethodWrapperType,
})  # fmt: skip


_ONE_TENSOR = frozenset({
    torch.Tensor.expand, torch.Tensor.expand_as, torch.broadcast_to, torch.Tensor.broadcast_to,
})  # fmt: skip
_EXPANDING = _ONE_TENSOR | {torch.broadcast_tensors, torch.meshgrid}


class WindowViews:
    """The views of one trace that lead through an `unfold` with gaps or overlaps."""

    def __init__(self) -> None:
        self._views: dict[int, torch.Tensor] = {}  # by id, kept alive

    def watch(self, func: Any, args: Any, kwargs: Any, loc: Loc | None) -> Any:
        """Run a function of torch; UnsupportedOpError if it changes such a view."""
        views = [t for t in (*args[:1], kwargs.get("out")) if id(t) in self._views]
        versions = [t._version for t in views]
        if func in _EXPANDING and args and _is_traced(args[0]):
            args, func = _without_expand(func, args, kwargs)
            kwargs = {} if func is torch.Tensor.__getitem__ else kwargs
        expanded = [(t, t._version) for t in args[:1] if _overlaps(t)]
        result = func(*args, **kwargs) if type(func) in _OF_C else heard(func, args, kwargs)
        if any(t._version != before for t, before in expanded):
            raise UnsupportedOpError(
                "an expanded tensor, whose elements overlap in memory, is changed in place",
                loc=loc, hint="change the tensor before it is expanded, or a copy (x.clone())",
            )  # fmt: skip
        if any(t._version != before for t, before in zip(views, versions, strict=True)):
            raise UnsupportedOpError(
                "a view made by unfold, whose windows leave gaps or overlap, or by expand is "
                "changed in place",
                loc=loc, hint="change the tensor itself, by slices such as x[:, ::step]",
            )  # fmt: skip
        if func in _EXPANDING:
            for t in result if isinstance(result, (tuple, list)) else (result,):
                if _overlaps(t):
                    self._views[id(t)] = t
        if func is torch.Tensor.unfold and not _covers(*args, **kwargs):
            self._views[id(result)] = result
        for t in views:
            self._note(result, t)
        return result

    def detached(self, view: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
        """What `view.detach()` gave, which the same holds of: in the trace it has other memory."""
        if id(view) in self._views:
            self._views[id(result)] = result
        return result

    def _note(self, result: Any, view: torch.Tensor) -> None:
        for t in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(t, torch.Tensor) and is_wrapper(t) and _memory(t) == _memory(view):
                self._views[id(t)] = t


def _overlaps(arg: Any) -> bool:
    """Whether a tensor has one element of memory in several places, as `expand` makes it."""
    if not isinstance(arg, torch.Tensor) or not is_wrapper(arg) or not arg.numel():
        return False
    return any(n > 1 and step == 0 for n, step in zip(arg.shape, arg.stride(), strict=True))


def _without_expand(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], Any]:
    """The call, or where it repeats no element one that puts new dims in front."""
    if func not in _ONE_TENSOR or kwargs or len(args) < 2:
        return args, func
    x, sizes = args[0], args[1:]
    if func is torch.Tensor.expand_as:
        sizes = tuple(args[1].shape)
    elif isinstance(args[1], (tuple, list)):
        sizes = tuple(args[1])
    new = len(sizes) - x.dim()
    if new < 0 or not x.numel() or not all(type(n) is int for n in sizes):
        return args, func
    if any(n != 1 for n in sizes[:new]) or any(
        n not in (-1, m) for n, m in zip(sizes[new:], x.shape, strict=True)
    ):
        return args, func
    return (x, (None,) * new + (...,)), torch.Tensor.__getitem__


def _is_traced(arg: Any) -> bool:
    return isinstance(arg, torch.Tensor) and is_wrapper(arg)


def _memory(tensor: torch.Tensor) -> int:
    with torch._C.DisableTorchFunction():
        return int(tensor.untyped_storage()._cdata)


def _covers(x: torch.Tensor, dimension: int, size: int, step: int) -> bool:
    """Whether each element of `x` lies in one window."""
    return x.dim() > 0 and step == size and x.shape[dimension] % size == 0
