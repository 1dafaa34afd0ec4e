"""Changes in place that leave nothing of what a tensor was: its gradient is zero, and not missing.

    h = x * 2; h.zero_(); return h       x.grad is zeros, and h requires grad: as autograd has it
    x.copy_(y); return x.sin(), y.cos()  of the first alone a gradient flows to x, which is not y

The graph goes by values: what is written instead is no function of x. So it stands as the result of
a rule whose gradient is zeros, and what is written to an input as a copy.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from gradof.errors import TraceError
from gradof.ir.types import TensorType
from gradof.ops.expr import F
from gradof.tracer.aten.registry import scalar_for
from gradof.tracer.core.custom_rule import RuleRecording
from gradof.tracer.state.source import user_loc
from gradof.tracer.torch.functional import inner, is_base, is_wrapper, plainly
from gradof.tracer.torch.histories import Histories
from gradof.tracer.torch.recorder import Recorder

_WRITES = frozenset({
    "zero_", "fill_", "copy_", "normal_", "uniform_", "bernoulli_", "random_", "exponential_",
    "geometric_", "cauchy_", "log_normal_", "__setitem__", "masked_fill_", "index_fill_",
})  # fmt: skip


# Of these torch's functional forms do not look whether the result may be cast.
_CASTS = frozenset({
    "add_", "sub_", "subtract_", "mul_", "multiply_", "addcmul_", "addcdiv_", "ldexp_", "logit_",
    "__iadd__", "__isub__", "__imul__",
})  # fmt: skip


@contextlib.contextmanager
def overwriting(
    recorder: Recorder, histories: Histories, func: Any, args: Sequence[Any]
) -> Iterator[None]:
    """Around a call that may write all of its first argument.

    Raises torch's own RuntimeError where what is written has a dtype that cannot be cast to it.
    """
    name = getattr(func, "__name__", "")
    if name in _CASTS:
        _check_cast(recorder, func, args)
    target: Any = args[0] if args and name in _WRITES else None
    is_copy = name == "copy_" and torch.is_grad_enabled() and not recorder.applying
    copied = _copied(recorder, target) if is_copy else contextlib.nullcontext()
    if not _has_history(target) or recorder.applying or histories.follows(target):
        with copied:
            yield
        return
    old = recorder.value(inner(target), None)
    with copied:
        yield
    new = recorder.value(inner(target), None)
    if new is old or new in recorder.attached or old not in recorder.attached:
        return
    if not is_base(target):
        raise TraceError(
            "a view is written as a whole, with what has no gradient", loc=user_loc(),
            hint="write to the tensor itself, or use what is written instead",
        )
    loc = recorder.builder.loc = user_loc()
    rule = RuleRecording(recorder.builder, [new], [old])
    type_ = old.type
    assert isinstance(type_, TensorType)
    zeros = F.full.with_emitter(recorder.emitter)(
        dtype=type_.dtype, shape=type_.shape, device=type_.device, value=scalar_for(0, type_)
    )
    rule.close([zeros.value], loc)
    made = rule.node.outputs[0]
    recorder.varying.add(made)
    recorder.attached.add(made)
    recorder.bind(inner(target), made)


def _check_cast(recorder: Recorder, func: Any, args: Sequence[Any]) -> None:
    target = args[0]
    tensors = [x for x in args if isinstance(x, torch.Tensor)]
    if target.dtype.is_floating_point and not any(x.dtype.is_complex for x in tensors):
        return
    with recorder.pause(), plainly(), torch.no_grad():
        func(*(_without_elements(x) if isinstance(x, torch.Tensor) else x for x in args))


def _without_elements(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty((0,) * tensor.dim(), dtype=tensor.dtype)


@contextlib.contextmanager
def _copied(recorder: Recorder, target: Any) -> Iterator[None]:
    """Around `x.copy_(y)`: what x is then is a value of its own, with a gradient of its own."""
    is_input = isinstance(target, torch.Tensor) and is_wrapper(target) and is_base(target)
    old = recorder.value(inner(target), None) if is_input else None
    yield
    if old is None or (old.node is not None and old.node.kind != "copy"):
        return
    new = recorder.value(inner(target), None)
    if new is not old and new in recorder.attached:
        recorder.builder.loc = user_loc()
        made = F.copy.with_emitter(recorder.emitter)(recorder.emitter.wrap(new)).value
        for known in (recorder.varying, recorder.attached):
            if new in known:
                known.add(made)
        recorder.bind(inner(target), made)


def _has_history(target: Any) -> bool:
    return (
        isinstance(target, torch.Tensor) and is_wrapper(target) and target.requires_grad
        and torch.is_grad_enabled() and not target.is_leaf
    )  # fmt: skip
