"""torch.func inside a traced function: vmap, grad, vjp and what is made of them.

    @differentiate
    def loss(x, w):
        per_row = torch.func.vmap(lambda row: torch.tanh(row @ w).sum())
        return per_row(x).pow(2).sum()

Such a transform wraps its tensors once more, takes the ops on them apart, and runs what is left on
the tensors inside: those are recorded. It gives a tensor that is no argument no chance to be seen
on the way in, so what enters a transform is lifted here.

    user ──▶ ApiMode ──▶ functorch ──▶ autograd ──▶ functionalization ──▶ AtenMode ──▶ Recorder

Forward mode (jvp, jacfwd, hessian) is made of these (`forward_mode`); dual tensors are refused.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._functorch import eager_transforms

from gradof.errors import UnsupportedOpError
from gradof.ir.core import Loc
from gradof.tracer.core.regions import is_recording
from gradof.tracer.torch.forward_mode import jvp_by_reverse, no_linearize, standard_basis
from gradof.tracer.torch.functional import is_wrapper
from gradof.tracer.torch.instead import refuse_duals

_WRAPS: tuple[tuple[str, str], ...] = (
    ("torch._functorch.vmap", "_add_batch_dim"),
    ("torch._functorch.eager_transforms", "_wrap_for_grad"),
)

_OURS: dict[str, Callable[..., Any]] = {
    "_jvp_with_argnums": jvp_by_reverse, "lazy_dynamo_disallow": no_linearize,
    "_chunked_standard_basis_for_": standard_basis,
}  # fmt: skip


def transformed(tensor: torch.Tensor) -> bool:
    """Whether a tensor is one that a transform of torch.func has wrapped."""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(tensor))


def inside(tensor: torch.Tensor, loc: Loc | None) -> torch.Tensor:
    """The tensor of the trace that a transform has wrapped.

    UnsupportedOpError within torch's forward mode, and for what the trace does not know.
    """
    if torch.autograd.forward_ad._current_level >= 0:
        refuse_duals(loc)
    while transformed(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    if not is_wrapper(tensor):
        raise UnsupportedOpError(
            "a tensor that is not of this trace, in a transform of torch.func", loc=loc,
            hint="use the transform as torch.func.vmap, grad, vjp or jacrev",
        )  # fmt: skip
    return tensor


def gradients_are_off() -> bool:
    """Whether gradients are off for the trace: now, or outside the transforms that run."""
    if not torch.is_grad_enabled():
        return True
    stack = torch._C._functorch.get_interpreter_stack() or ()
    grad = torch._C._functorch.TransformType.Grad
    pointers = (torch._C._functorch.CGradInterpreterPtr(s) for s in stack if s.key() == grad)
    return not all(pointer.prevGradMode() for pointer in pointers)


class TransformedWrites:
    """In-place changes within transforms: not where they could be behind autograd's back.

    `torch_histories` follows tensors that share memory and not their gradient, but not within a
    transform.
    """

    def __init__(self) -> None:
        self.cut = False  # whether a tensor within a transform was cut off from its gradient

    def watch(self, func: Any, args: tuple[Any, ...], cuts: bool, loc: Loc | None) -> None:
        """Note a call of torch; UnsupportedOpError for a change that cannot be followed."""
        first = args[0] if args else None
        if not isinstance(first, torch.Tensor) or not transformed(first):
            return
        self.cut |= cuts or not torch.is_grad_enabled()
        if self.cut and _writes(getattr(func, "__name__", "")):
            raise UnsupportedOpError(
                "a tensor is changed in place within a transform of torch.func that also has "
                "detach() or no_grad()",
                loc=loc, hint="change a copy outside, or use an op that is not in place",
            )  # fmt: skip


def _writes(name: str) -> bool:
    if name.startswith("__"):
        return name == "__setitem__" or (
            name.startswith("__i") and name not in ("__invert__", "__index__", "__int__")
        )
    return name.endswith("_") and name != "requires_grad_"


@contextmanager
def outside_transforms() -> Iterator[None]:
    """Within it, ops are not seen by the transforms that run."""
    if torch._C._functorch.peek_interpreter_stack() is None:
        yield
        return
    from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

    with temporarily_clear_interpreter_stack():
        yield


@contextmanager
def func_transforms(lift: Callable[[torch.Tensor], torch.Tensor]) -> Iterator[None]:
    """Within it, what enters a transform is the tensor that the trace knows."""
    before: list[tuple[Any, str, Any]] = []
    for module_name, name in _WRAPS:
        module = importlib.import_module(module_name)
        wrap = getattr(module, name)
        before.append((module, name, wrap))
        setattr(module, name, _lifting(wrap, lift))
    for name, ours in _OURS.items():
        before.append((eager_transforms, name, getattr(eager_transforms, name)))
        setattr(eager_transforms, name, _in_a_trace(ours, before[-1][-1]))
    try:
        yield
    finally:
        for module, name, wrap in before:
            setattr(module, name, wrap)


def _in_a_trace(ours: Callable[..., Any], torchs: Callable[..., Any]) -> Any:
    def run(*args: Any, **kwargs: Any) -> Any:
        return (ours if is_recording() else torchs)(*args, **kwargs)

    return run


def _lifting(wrap: Callable[..., Any], lift: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    def lifted(tensor: Any, *rest: Any) -> Any:
        if isinstance(tensor, torch.Tensor) and is_recording():
            with torch._C.DisableTorchFunction():  # as within a call of the API
                tensor = lift(tensor)
        return wrap(tensor, *rest)

    return lifted
