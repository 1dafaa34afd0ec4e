"""Compiled graphs under torch's autograd. Imported only once torch is in use.

`call(plan, tensors)` runs a graph on torch tensors. If a gradient may be asked for, it runs f of
the plan's Gradient inside a `torch.autograd.Function`, which saves exactly the captures and whose
backward is `call` again, on df: with `create_graph=True` that call is differentiable in turn, to
any order.

Note [Ended by a hook]
torch runs hooks of saved tensors after f, and a hook may raise: torch.utils.checkpoint computes a
stretch again and ends it so at the last tensor that it needs. What the function has written by
then stays written in eager (the statistics of a batch norm move twice), so the caller of `call`
writes what f has computed, which `unsaved` keeps for it, before the error goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import torch

from gradof.codegen import Executable
from gradof.errors import DeviceError, LeafTypeError
from gradof.ir.types import DType
from gradof.runtime.dynamo import left_alone_in_autograd
from gradof.runtime.plan import GradientPlan, GraphPlan
from gradof.runtime.torch_again import Unrecorded, alias
from gradof.runtime.torch_arrays import (
    PLAIN,
    from_numpy,
    resizable,
    resolved,
    to_raw,
)
from gradof.runtime.torch_backward import Edges, backward, edges_of
from gradof.runtime.torch_inner import Kept, apart
from gradof.runtime.torch_joint import Joined
from gradof.runtime.torch_run import as_tensors, computed, results, run
from gradof.tracer.aten.types import from_torch_dtype
from gradof.tracer.torch.functional import refuse_transformed, transforms_active

Tensor = torch.Tensor
# torch.utils.checkpoint runs f again and wants as many tensors saved as the first time, though the
# habits of `joint` may have changed in between
_top_hooks = torch._C._autograd._top_saved_tensors_default_hooks
_alive = torch._C._functorch.unwrap_if_dead  # what a transform that is over has left


class _Unsaved(threading.local):
    """What the last f of this thread has computed, while hooks see what is saved."""

    outputs: Sequence[Tensor] | None = None

    def take(self) -> Sequence[Tensor] | None:
        outputs, self.outputs = self.outputs, None
        return outputs


unsaved = _Unsaved()


def call(plan: GraphPlan, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Run `plan` on torch tensors, recorded by autograd where an input requires grad."""
    if transforms_active():  # as where a cotangent carries a tangent
        for tensor in tensors:
            refuse_transformed(tensor, "a tensor that compiled code is to read")
    if torch.is_grad_enabled():
        flags = tuple([t.requires_grad for t in tensors])
        if True in flags and torch.is_inference_mode_enabled():  # nothing is recorded
            return run(plan, tensors)
        # where hooks may end f, what it has computed is to be there as a whole
        if True in flags and plan.apart is not None and _top_hooks(False) is None:
            return plan.apart.run(call, tensors)
        if True in flags:
            gradient, given = plan.gradient(flags), tensors
            tensors = [_alive(t) for t in tensors]
            for i in gradient.changed:
                tensors[i] = _as_it_is(tensors[i])
            if gradient.without_gradient and not plan.shows_inputs:
                for i in gradient.without_gradient:  # or its history would hang on f's node
                    tensors[i] = tensors[i].detach()
            edges = edges_of(gradient, tensors)
            if gradient.asked_of_leaves and not plan.shows_inputs:
                tensors = [alias(t) if flags[i] and t.is_leaf else t
                           for i, t in enumerate(tensors)]  # fmt: skip
            if gradient.inner is None:
                return _recorded(gradient, edges, tensors)
            kept = Kept(tensors, plan.overwritten, gradient.inner)
            return apart(gradient.inner, _recorded(gradient, edges, tensors), given, kept, call)
    return run(plan, tensors)


def _as_it_is(tensor: Tensor) -> Tensor:
    """A copy with the history and strides of a tensor that the call changes, for df to read."""
    copy = tensor.clone()
    if copy.stride() != tensor.stride():
        copy = torch.empty_strided(
            tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
        ).copy_(tensor)
    return copy


def _recorded(
    gradient: GradientPlan, edges: Edges | None, tensors: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    begun = gradient.together.begun
    if begun is not None and gradient.together.is_lean and _top_hooks(False) is None:
        return (_joined(gradient, begun, _by_itself, *tensors),)
    if gradient.unasked.has_begun and _top_hooks(False) is None:
        unrecorded: tuple[Tensor, ...] = _unrecorded(gradient, _by_itself, *tensors)
        return unrecorded
    gradient.unasked.ran()
    outputs: tuple[Tensor, ...] = _compiled((gradient, edges), *tensors)
    unsaved.outputs = None
    return outputs[: gradient.real_outputs]


def _by_itself(gradient: GradientPlan, *tensors: Tensor) -> tuple[Tensor, ...]:
    """f alone, recorded, whose backward is df."""
    outputs: tuple[Tensor, ...] = _compiled((gradient, edges_of(gradient, tensors)), *tensors)
    return outputs[: gradient.real_outputs]


def run_check(check: Executable, tensors: Sequence[Tensor], random: bool) -> Sequence[Tensor]:
    """Run the deciding part of a path; random numbers it draws will be drawn again."""
    if check.takes_tensors:
        arrays: list[Any] = [resolved(t) for t in tensors]
    else:
        arrays = [to_raw(t) for t in resizable(tensors)]
    if not random:
        found = check(*arrays)
    else:
        devices = {t.device for t in tensors if t.is_cuda}
        with torch.random.fork_rng(devices=list(devices)):
            found = check(*arrays)
    return found if check.takes_tensors else [from_numpy(array) for array in found]


def check_tensor(tensor: Tensor, path: str) -> None:
    """Refuse what compiled code cannot read, before anything runs."""
    refuse_transformed(tensor, path)
    there = tensor.is_cpu or tensor.is_cuda
    if tensor.dtype in PLAIN and there and tensor.layout is torch.strided:
        return
    if tensor.layout != torch.strided:
        raise LeafTypeError(
            f"{path} is a {tensor.layout} tensor", hint="pass a dense tensor: x.to_dense()"
        )
    if not there:
        raise DeviceError(
            f"{path} is on {tensor.device}; compiled functions run on the CPU and on CUDA devices",
            hint="move the tensor and the module with .cpu()",
        )
    if tensor.is_quantized:
        raise LeafTypeError(f"{path} is quantized", hint="pass x.dequantize()")


def cotangent_dtype_matches(tensor: Any, dtype: DType) -> bool:
    """Whether a cotangent is a tensor of the given dtype."""
    return isinstance(tensor, Tensor) and from_torch_dtype(tensor.dtype) == dtype


@left_alone_in_autograd
class _Compiled(torch.autograd.Function):
    """f forward, df backward; see Note [Temporaries have no history] in `torch_backward`."""

    @staticmethod
    def forward(
        ctx: Any, how: tuple[GradientPlan, Edges | None], *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        plan, ctx.edges = how
        ctx.plan, ctx.seed, begun = plan, None, plan.together.begun
        ctx.late = None if plan.late is None else plan.late.snapshot()
        if begun is None or plan.together.is_lean:
            made = computed(plan.f, tensors)
        else:
            ctx.seed, cotangent = begun
            both = plan.together.plan()
            made = computed(both, (*tensors, cotangent))
            ctx.gradients = as_tensors(made[plan.outputs :], both.held[plan.outputs :])
            plan.together.ran()
        outputs = results(plan.f, tensors, made[: plan.real_outputs])
        ctx.kept = None  # see `torch_inner`
        return _leave(ctx, tensors, outputs, made[plan.real_outputs : plan.outputs])

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> tuple[Tensor | None, ...]:
        gradients = backward(ctx, cotangents)
        return (None, *(gradients if ctx.kept is None else ctx.kept.add_to(gradients)))


class _OfLeaf(torch.autograd.Function):
    """A node that leads to no tensor of the caller's: the leaf before it is nowhere to be had."""

    @staticmethod
    def forward(ctx: Any, leaf: Tensor, made: Sequence[Tensor]) -> Tensor:
        return made[0]

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> tuple[None, None]:
        return None, None


def of_leaf(made: Tensor) -> Tensor:
    """A result that requires grad by a leaf that the function has made, where autograd records."""
    if not torch.is_grad_enabled():
        return made
    leaf = torch.zeros((), requires_grad=True)
    of: Tensor = _OfLeaf.apply(leaf, (made,))  # type: ignore[no-untyped-call]
    return of


def _leave(
    ctx: Any, tensors: Sequence[Tensor], outputs: tuple[Tensor, ...], values: Sequence[Any]
) -> tuple[Tensor, ...]:
    """Leave for the backward what it reads of f; the results of the node."""
    plan: GradientPlan = ctx.plan
    saved = [tensors[i] for i in plan.captured_inputs]
    saved += [outputs[i] for i in plan.captured_results]
    constant = [outputs[i] for i in plan.constant_results]
    has_hooks, have_history = _top_hooks(False) is not None, ctx.edges is None
    if has_hooks:
        unsaved.outputs = outputs  # see Note [Ended by a hook]
    ctx.values = values
    if plan.holds_temporaries or has_hooks or have_history:
        ctx.values = as_tensors(values, plan.f.held[plan.real_outputs :])
    if has_hooks or have_history:
        temporaries, ctx.values = ctx.values, None
        saved += temporaries
    if have_history:
        constant += [temporaries[i - plan.real_outputs] for i in plan.constant_temporaries]
        outputs += tuple(temporaries)
    ctx.save_for_backward(*saved)
    if constant:
        ctx.mark_non_differentiable(*constant)
    return outputs


# The apply of torch's own, without what it does in Python for transforms: none is active here.
_joined: Any = super(torch.autograd.Function, Joined).apply
_compiled: Any = super(torch.autograd.Function, _Compiled).apply
_unrecorded: Any = super(torch.autograd.Function, Unrecorded).apply
