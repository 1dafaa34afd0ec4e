"""A `custom_vjp` function of torch tensors as a `torch.autograd.Function`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from gradof.errors import CustomRuleError
from gradof.runtime.custom import Call
from gradof.runtime.dynamo import left_alone_in_autograd
from gradof.runtime.thread import is_tracing
from gradof.tracer.core.pytree import flatten
from gradof.tracer.torch.functional import has_tangent, refuse_transformed


def wants_rule(leaves: Sequence[Any]) -> bool:
    """Whether a gradient may be taken: of tensors that require grad, or within a trace."""
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if not is_tracing():
        for tensor in filter(has_tangent, tensors):  # the rule is one of reverse mode
            refuse_transformed(tensor, "an argument of a custom_vjp function")
    return torch.is_grad_enabled() and (
        is_tracing() or any(t.requires_grad for t in tensors)
    )  # fmt: skip


def apply(call: Call) -> Any:
    """The result of the call, with the rule behind it."""
    results = _Rule.apply(call, *call.leaves)  # type: ignore[no-untyped-call]
    assert call.tree is not None
    return call.tree.unflatten(list(results))


@left_alone_in_autograd
class _Rule(torch.autograd.Function):
    """The forward runs with gradients on, so that residuals keep their history: a second
    derivative goes through them, as through `bwd`."""

    @staticmethod
    def forward(ctx: Any, call: Any, *leaves: Any) -> Any:
        with torch.enable_grad():
            result, ctx.residuals = call.forward(leaves)
        outs, call.tree = flatten(result)
        ctx.call = call
        return tuple(o.detach() if isinstance(o, torch.Tensor) else o for o in outs)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        call: Call = ctx.call
        assert call.tree is not None
        grads = call.backward(ctx.residuals, call.tree.unflatten(list(cotangents)))
        return None, *(_tensor(call, i, g) for i, g in enumerate(grads))


def _tensor(call: Call, i: int, grad: Any) -> Any:
    leaf = call.leaves[i]
    if grad is None or isinstance(grad, torch.Tensor):
        return grad
    if isinstance(grad, (int, float)):
        return torch.full_like(leaf, grad)
    raise CustomRuleError(
        f"the bwd of {call.rule.__name__} returns a {type(grad).__name__}", loc=call.line,
        hint="return tensors for tensors",
    )  # fmt: skip
