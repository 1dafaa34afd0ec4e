"""What of torch's API a trace refuses before it does anything: what a graph would not do again.

    x.data = y; y.grad_fn; x.grad = y      each is a TraceError
    x.grad                                 where it is not None

Leaves that the function has made have `.data` and `.grad` as in eager.
"""

from __future__ import annotations

from types import FrameType
from typing import Any, Protocol

import torch

from gradof.errors import GradofError, LeafMutationError, TraceError, UnsupportedOpError
from gradof.ir.core import Loc
from gradof.tracer.state.source import user_loc
from gradof.tracer.torch.attributes import ReadAttributes
from gradof.tracer.torch.histories import Histories
from gradof.tracer.torch.inference import has_begun
from gradof.tracer.torch.memory import address, same_elements

_TENSOR: Any = torch.Tensor  # its properties are read as descriptors
SETS_DATA = _TENSOR.data.__set__
MAKES_LEAF = frozenset({torch.Tensor.requires_grad_, _TENSOR.requires_grad.__set__})
_REFUSED: dict[Any, tuple[str, str]] = {
    SETS_DATA: (
        "`.data` is assigned to, which cannot be followed", "use in-place ops under no_grad",
    ),
    torch.Tensor.set_: (
        "a tensor is given other memory (`set_`), which cannot be followed", "use copy_",
    ),
    _TENSOR.grad.__get__: (
        "`.grad` is read inside a traced function", "read it outside and pass it as an argument",
    ),
    _TENSOR.grad.__set__: (
        "`.grad` is assigned to inside a traced function", "assign it outside",
    ),
    _TENSOR.grad.__delete__: (
        "`.grad` is deleted inside a traced function", "delete it outside",
    ),
    torch.Tensor.register_post_accumulate_grad_hook: (
        "a hook that runs after gradients are accumulated is registered inside a traced function",
        "register it outside",
    ),
}  # fmt: skip
_GRAD_FN = _TENSOR.grad_fn.__get__
_saved_tensors_hooks: Any = torch._C._autograd._top_saved_tensors_default_hooks


class Api(Protocol):
    """What a mode knows of the tensors that it is given."""

    @property
    def histories(self) -> Histories:
        """Which of them may be given a gradient by `gradof.grad`."""
        ...

    def traced(self, tensor: Any, /) -> Any:
        """The tensor of the trace that stands for one."""
        ...

    @property
    def attributes(self) -> ReadAttributes:
        """What is asked of those that stand for inputs."""
        ...


def refuse(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType, api: Api
) -> bool:
    """Raise a TraceError for a call that a trace cannot hold.

    Whether it is one of a gradient that is not there, or gives a tensor its own memory, as
    `w.data = w.data.to(x.device)` may, and so does nothing and gives None.
    """
    if func in _OF_NONE and all(arg is None for arg in args[1:2]):
        if api.attributes.lacks_gradient(api.traced(args[0])):
            return True
    if func is torch.autograd.grad:
        if has_begun():
            raise TraceError(
                "a gradient is asked for within inference mode", loc=user_loc(frame),
                hint="call it under no_grad instead, with enable_grad around the gradient",
            )  # fmt: skip
        asked = args[1] if len(args) > 1 else kwargs.get("inputs", ())
        tensors = (asked,) if isinstance(asked, torch.Tensor) else asked
        api.attributes.asks_gradient(map(api.traced, tensors), frame)
    if func == _VERSION:
        api.attributes.versions.read(api.traced(args[0]), frame)
    if func == SETS_DATA and isinstance(args[1], torch.Tensor):
        tensor, other = map(api.traced, args)
        same = address(tensor) == address(other) and tensor.shape == other.shape
        if same and same_elements(tensor, other):
            return True
    if func in _OF_LEAVES and api.attributes.is_own_leaf(api.traced(args[0])):
        return False
    found = _REFUSED.get(func)
    if found is None and func in _BY_HISTORY:
        tensor = args[0]
        if tensor.requires_grad or (func in _OF_GRAPH and api.histories.has_gradient(tensor)):
            if not (func in MAKES_LEAF and api.histories.leaves.is_one(tensor)):
                found = _of_history(func, args, kwargs)
    if found is None and _saved_tensors_hooks(False) is not None:
        found = (
            "saved_tensors_hooks inside a traced function would not see what is saved",
            "set them around the call",
        )
    if found is not None:
        raise TraceError(found[0], loc=user_loc(frame), hint=found[1])
    return False


_VERSION = _TENSOR._version.__get__
_OF_NONE = frozenset({_TENSOR.grad.__get__, _TENSOR.grad.__set__})
_OF_LEAVES = _OF_NONE | {_TENSOR.grad.__delete__, SETS_DATA}
_OF_GRAPH = frozenset({torch.Tensor.retain_grad, _GRAD_FN})
_BY_HISTORY = MAKES_LEAF | _OF_GRAPH | {torch.Tensor.detach_, torch.detach_}


def _of_history(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[str, str] | None:
    """Why a call is refused for what autograd knows of its tensor."""
    if func in MAKES_LEAF:
        if args[1] if len(args) > 1 else kwargs.get("requires_grad", True):
            return None
    elif func in _OF_GRAPH:
        if args[0].is_leaf and args[0].requires_grad:
            return None
        if func == _GRAD_FN:
            return "`.grad_fn`, a node of autograd, is read in a traced function", "leave it out"
        return (
            "`retain_grad` inside a traced function would not keep a gradient",
            "return the tensor, and call retain_grad on it outside",
        )
    return "a tensor is cut off from its gradient in place", "use y = x.detach()"


def as_ours(error: Exception, func: Any, loc: Loc | None) -> GradofError | None:
    """The error for one of torch's about traced tensors; None where it is the user's."""
    text, name = str(error), getattr(func, "__name__", func)
    if text == "generator is not supported in refs":
        return UnsupportedOpError(
            f"{name} with a generator of its own", loc=loc,
            hint="draw with torch.rand and transform that",
        )
    if "mutated that has internal overlap" in text:
        return UnsupportedOpError(
            "a view whose elements overlap in memory is changed in place", loc=loc,
            hint="change the tensor itself, or a copy (x.clone())",
        )
    if "its data is not allocated yet" in text:  # as that of packed sequences
        return UnsupportedOpError(
            f"{name} reads the memory of a traced tensor, which has none", loc=loc,
            hint="call it outside",
        )
    if "leaf Variable that requires grad" not in text:
        return None
    return LeafMutationError(
        f"{text.rstrip('.')}: {name}", loc=loc,
        hint="work on a copy (x.clone()), or change it under torch.no_grad()",
    )
