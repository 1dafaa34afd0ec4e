"""One run for value and gradients under torch's autograd; see Note [Together] in `joint`.

`Together.is_lean` plans save f's inputs alone: what else df would read is computed again where the
backward wants something other than the gradients that are there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from gradof.runtime.dynamo import left_alone_in_autograd
from gradof.runtime.torch_again import Apply, gradients_apart
from gradof.runtime.torch_anomaly import has_nan, is_watched, let_pass
from gradof.runtime.torch_batched import batch_of

if TYPE_CHECKING:
    from gradof.runtime.plan import GradientPlan

Tensor = torch.Tensor


@left_alone_in_autograd
class Joined(torch.autograd.Function):
    """The value of a lean plan; its gradients wait for the backward."""

    @staticmethod
    def forward(
        ctx: Any, plan: GradientPlan, begun: tuple[float, Tensor], apart: Apply, *tensors: Tensor
    ) -> Tensor:
        """`begun` is `Together.begun`; `apart` records f by itself, on the same plan."""
        from gradof.runtime.torch_run import run

        ctx.seed, cotangent = begun
        value, *ctx.gradients = run(plan.together.plan(), (*tensors, cotangent))
        plan.together.ran()
        ctx.plan, ctx.apart = plan, apart
        ctx.late = None if plan.late is None else plan.late.snapshot()
        ctx.save_for_backward(*tensors)
        return value

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients that are there, once; else those of f and df by themselves."""
        batch = batch_of((cotangent,))
        if batch is not None:
            return batch.map(lambda given: Joined.backward(ctx, given), (cotangent,))
        plan: GradientPlan = ctx.plan
        if plan.late is not None:
            plan.late.check(ctx.late)
        gradients, ctx.gradients = ctx.gradients, None
        inputs = ctx.saved_tensors  # refuses tensors changed meanwhile, and a freed graph
        if gradients is not None and is_watched() and has_nan(gradients):
            apart = gradients_apart(ctx, inputs, (cotangent,), 3)
            let_pass(ctx)  # where there is an error in eager, it has been raised
            return (None, None, None, *apart)
        if gradients is None or torch.is_grad_enabled() or cotangent.item() != ctx.seed:
            if gradients is not None:
                plan.together.missed()
            return (None, None, None, *gradients_apart(ctx, inputs, (cotangent,), 3))
        plan.together.taken()
        plan.f.counts.backward += 1
        result: list[Tensor | None] = [None] * (3 + plan.arity)
        for place, gradient in zip(plan.together.places, gradients, strict=True):
            result[3 + place] = gradient
        return tuple(result)
