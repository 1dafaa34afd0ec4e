"""Autograd functions that save their inputs alone, and run f and df by themselves in the backward.

See Note [Together] in `joint` and Note [Unasked] in `unasked`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from gradof.runtime.dynamo import left_alone_in_autograd
from gradof.runtime.torch_anomaly import has_nan, is_watched, let_pass
from gradof.runtime.torch_batched import batch_of

if TYPE_CHECKING:
    from gradof.runtime.plan import GradientPlan

Tensor = torch.Tensor
alias = torch.ops.aten.alias.default  # a view that no program of the user's makes
Apply = Callable[..., tuple[Tensor, ...]]


@left_alone_in_autograd
class Unrecorded(torch.autograd.Function):
    """The results of a graph, without what df reads."""

    @staticmethod
    def forward(ctx: Any, plan: GradientPlan, apart: Apply, *tensors: Tensor) -> Any:
        """`apart` records f by itself, on the same plan."""
        from gradof.runtime.torch_run import run

        ctx.set_materialize_grads(False)
        ctx.plan, ctx.apart, ctx.kept = plan, apart, None
        ctx.save_for_backward(*tensors)
        outputs = run(plan.unasked.whole, tensors)
        if plan.constant_results:
            ctx.mark_non_differentiable(*[outputs[i] for i in plan.constant_results])
        return outputs

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> tuple[Tensor | None, ...]:
        """The gradients of f and df by themselves; from the next call on f saves."""
        batch = batch_of(cotangents)
        if batch is None:
            gradients = _gradients(ctx, *cotangents)
        else:
            gradients = batch.map(lambda *given: _gradients(ctx, *given), cotangents)
        return (None, None, *(gradients if ctx.kept is None else ctx.kept.add_to(gradients)))


def _gradients(ctx: Any, *cotangents: Tensor | None) -> Sequence[Tensor | None]:
    ctx.plan.unasked.asked()
    gradients = gradients_apart(ctx, ctx.saved_tensors, cotangents, 2)
    if is_watched() and has_nan(gradients):
        let_pass(ctx)  # where there is an error in eager, it has been raised
    return gradients


def gradients_apart(
    ctx: Any, inputs: Sequence[Tensor], cotangents: Sequence[Tensor | None], before: int
) -> list[Tensor | None]:
    """The gradients by f and df, with a history of their own where one is asked for.

    The inputs are behind as many other arguments of the function of `ctx`.
    """
    wanted = [i for i, needed in enumerate(ctx.needs_input_grad[before:]) if needed]
    return vjp_of(lambda given: ctx.apart(ctx.plan, *given), inputs, wanted, cotangents)


def vjp_of(
    fn: Callable[[list[Tensor]], Sequence[Tensor]], inputs: Sequence[Tensor],
    wanted: Sequence[int], cotangents: Sequence[Tensor | None],
) -> list[Tensor | None]:  # fmt: skip
    """The cotangents of the wanted inputs of `fn`, which is run for it; None for the others.

    In a backward that is recorded they have a history. One input may be computed from another: each
    is given as an alias, at which the gradient ends.
    """
    create = torch.is_grad_enabled()
    result: list[Tensor | None] = [None] * len(inputs)
    if all(cotangent is None for cotangent in cotangents):
        return result
    with torch.enable_grad():
        given = list(inputs) if create else [t.detach() for t in inputs]
        for i in wanted:
            given[i] = alias(given[i]) if create else given[i].requires_grad_()
        values = fn(given)
        pairs = [
            (v, c) for v, c in zip(values, cotangents, strict=False)
            if c is not None and v.requires_grad
        ]  # fmt: skip
        if not pairs:
            return result
        found = torch.autograd.grad(
            [v for v, _ in pairs], [given[i] for i in wanted], [c for _, c in pairs],
            create_graph=create, allow_unused=True,
        )  # fmt: skip
    for i, gradient in zip(wanted, found, strict=True):
        result[i] = gradient
    return result
