"""Views through which nothing may be changed: of `expand`, and of `Tensor.unfold`.

    x.expand(2, 3).add_(1)                 # refused, as in eager: one element of memory is two
    v = x.unfold(1, 1, 5); v.add_(1)       # refused

torch's functionalization does not look whether elements overlap. It puts a changed window view back
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


class WindowViews:
    """The views of one trace that lead through an `unfold` with gaps or overlaps."""

    def __init__(self) -> None:
        self._views: dict[int, torch.Tensor] = {}  # by id, kept alive

    def watch(self, func: Any, args: Any, kwargs: Any, loc: Loc | None) -> Any:
        """Run a function of torch; UnsupportedOpError if it changes such a view."""
        views = [t for t in (*args[:1], kwargs.get("out")) if id(t) in self._views]
        versions = [t._version for t in views]
        expanded = [(t, t._version) for t in args[:1] if _overlaps(t)]
        result = func(*args, **kwargs) if type(func) in _OF_C else heard(func, args, kwargs)
        if any(t._version != before for t, before in expanded):
            raise UnsupportedOpError(
                "an expanded tensor, whose elements overlap in memory, is changed in place",
                loc=loc, hint="change the tensor before it is expanded, or a copy (x.clone())",
            )  # fmt: skip
        if any(t._version != before for t, before in zip(views, versions, strict=True)):
            raise UnsupportedOpError(
                "a view made by unfold, whose windows leave gaps or overlap, is changed in place",
                loc=loc, hint="change the tensor itself, by slices such as x[:, ::step]",
            )  # fmt: skip
        if func is torch.Tensor.unfold and not _covers(*args, **kwargs):
            self._views[id(result)] = result
        for t in views:
            self._note(result, t)
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


def _memory(tensor: torch.Tensor) -> int:
    with torch._C.DisableTorchFunction():
        return int(tensor.untyped_storage()._cdata)


def _covers(x: torch.Tensor, dimension: int, size: int, step: int) -> bool:
    """Whether each element of `x` lies in one window."""
    return x.dim() > 0 and step == size and x.shape[dimension] % size == 0
