"""Compiled graphs under torch's autograd. Imported only once torch is in use.

`call(plan, tensors)` runs a graph on torch tensors. If a gradient may be asked for, it runs f of
the plan's Gradient inside a `torch.autograd.Function`, which saves exactly the captures and whose
backward is `call` again, on df: with `create_graph=True` that call is differentiable in turn, to
any order.

Note [Temporaries are outputs]
The values f saves for df are returned by the Function beside the real outputs and dropped by
`call`. Being outputs they have a grad_fn when they are unpacked in the backward, so a second
derivative flows through them.

Note [Ended by a hook]
torch runs hooks of saved tensors after f, and a hook may raise: torch.utils.checkpoint computes a
stretch again and ends it so at the last tensor that it needs. What the function has written by
then stays written in eager (the statistics of a batch norm move twice), so the caller of `call`
writes what f has computed, which `unsaved` keeps for it, before the error goes on.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.dlpack import from_dlpack

from gradof.codegen import Executable
from gradof.errors import DeviceError, LeafTypeError
from gradof.ir.types import BF16, DType
from gradof.runtime.dynamo import left_alone_in_autograd
from gradof.runtime.plan import GradientPlan, GraphPlan
from gradof.runtime.torch_again import Unrecorded, alias
from gradof.runtime.torch_anomaly import has_nan, is_watched, let_pass, only_adds_up
from gradof.runtime.torch_batched import batch_of
from gradof.runtime.torch_inner import Kept, apart
from gradof.runtime.torch_joint import Joined
from gradof.tracer.aten.types import from_torch_dtype, to_torch_dtype
from gradof.tracer.torch.functional import refuse_transformed, transforms_active

Tensor = torch.Tensor
# torch.utils.checkpoint runs f again and wants as many tensors saved as the first time, though the
# habits of `joint` may have changed in between
_top_hooks = torch._C._autograd._top_saved_tensors_default_hooks
_alive = torch._C._functorch.unwrap_if_dead  # what a transform that is over has left
_PLAIN = frozenset({torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64,
                    torch.bool, torch.complex64, torch.complex128, torch.complex32})
_NUMPYS = frozenset({torch.float32, torch.float64, torch.int64, torch.bool})
_IN_DLPACK = _PLAIN - {torch.complex32}
_FSDP = "torch.distributed.fsdp"
_WIDER = {torch.bfloat16: torch.float32, torch.complex32: torch.complex64}


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
        if True in flags:
            gradient = plan.gradient(flags)
            tensors = [_alive(t) for t in tensors]
            if gradient.asked_of_leaves and not plan.shows_inputs:
                tensors = [alias(t) if flags[i] and t.is_leaf else t
                           for i, t in enumerate(tensors)]  # fmt: skip
            if gradient.inner is None:
                return _recorded(gradient, tensors)
            kept = Kept(tensors, plan.overwritten, gradient.inner)
            return apart(gradient.inner, _recorded(gradient, tensors), kept, call)
    return run(plan, tensors)


def _recorded(gradient: GradientPlan, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    begun = gradient.together.begun
    if begun is not None and gradient.together.is_lean and _top_hooks(False) is None:
        return (_joined(gradient, begun, _compiled, *tensors),)
    if gradient.unasked.has_begun and _top_hooks(False) is None:
        unrecorded: tuple[Tensor, ...] = _unrecorded(gradient, _compiled, *tensors)
        return unrecorded
    gradient.unasked.ran()
    outputs: tuple[Tensor, ...] = _compiled(gradient, *tensors)
    unsaved.outputs = None
    return outputs[: gradient.real_outputs]


def run(plan: GraphPlan, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Run `plan` on the values of tensors; no autograd."""
    if plan.executable.takes_tensors:
        made = list(plan(*map(resolved, tensors)))
    else:
        arrays = plan(*to_arrays(tensors))
        if plan.holds:
            made = [from_raw(a, held) for a, held in zip(arrays, plan.held, strict=True)]
        else:
            made = [from_numpy(array) for array in arrays]
    for i, view in plan.views:
        made[i] = view.result(tensors, made[i])
    return tuple(made)


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


def from_numpy(array: Any) -> Tensor:
    """A tensor over a fresh array; torch has no negative strides, so a flipped one is copied."""
    try:
        return torch.from_numpy(array)
    except ValueError:  # asking for the strides first takes as long as the tensor
        return torch.from_numpy(array.copy())


def from_raw(array: Any, held: DType | None) -> Tensor:
    """A tensor over a fresh array of emitted code, of the dtype numpy has none of, if one is named.

    Raw bfloat16 stays where it is; Note [Half precision] in `gradof.codegen.lowering.half`.
    """
    tensor = from_numpy(array)
    if held is None:
        return tensor
    if held != BF16:
        return tensor.to(to_torch_dtype(held))
    # tensor.view(torch.bfloat16) were a view to autograd, too
    made = torch.empty(0, dtype=torch.bfloat16, device="cpu")
    storage, at = tensor.untyped_storage(), tensor.storage_offset()
    return made.set_(storage, at, tensor.shape, tensor.stride())


def to_arrays(tensors: Sequence[Tensor]) -> list[Any]:
    """`to_raw` of each, in few steps for most: after large arrays nothing is in the caches."""
    made = []
    for tensor in resizable(tensors):
        if tensor.dtype in _NUMPYS and not tensor._is_zerotensor():
            made.append(tensor.numpy(force=True))
        else:
            made.append(to_raw(tensor))
    return made


def resizable(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """The tensors; where FSDP is in use, others over the same memory.

    torch lets no storage be resized that numpy has seen, and FSDP gives memory back by doing so.
    Other libraries import it: it is in use in a process of a group alone.
    """
    if _FSDP not in sys.modules or not torch.distributed.is_initialized():
        return tensors
    plain = [resolved(t.detach()) for t in tensors]
    return [from_dlpack(t) if t.dtype in _IN_DLPACK else t for t in plain]


def to_raw(tensor: Tensor) -> Any:
    """A numpy view of a dense CPU tensor as emitted code takes it: the bits, if of bfloat16."""
    if tensor.dtype is torch.bfloat16:
        return resolved(tensor.detach()).view(torch.uint16).numpy()
    return to_numpy(tensor)


def resolved(tensor: Tensor) -> Tensor:
    """The tensor, with what torch keeps beside its memory (conjugates, signs, zeros) in it."""
    if tensor._is_zerotensor():
        return tensor.detach().clone()
    return tensor.resolve_conj().resolve_neg()


def to_numpy(tensor: Tensor) -> Any:
    """A numpy view of a dense CPU tensor, without a copy; dtypes numpy has not are widened."""
    if tensor._is_zerotensor():  # not in memory
        tensor = tensor.detach().clone()
    wide = _WIDER.get(tensor.dtype)
    if wide is not None:
        tensor = tensor.detach().to(wide)
    return tensor.numpy(force=True)  # without history; pending conjugates and signs are resolved


def check_tensor(tensor: Tensor, path: str) -> None:
    """Refuse what compiled code cannot read, before anything runs."""
    refuse_transformed(tensor, path)
    there = tensor.is_cpu or tensor.is_cuda
    if tensor.dtype in _PLAIN and there and tensor.layout is torch.strided:
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


@left_alone_in_autograd
class _Compiled(torch.autograd.Function):
    """f forward, df backward; see Note [Temporaries are outputs]."""

    @staticmethod
    def forward(ctx: Any, plan: GradientPlan, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.plan, ctx.seed, begun = plan, None, plan.together.begun
        ctx.late = None if plan.late is None else plan.late.snapshot()
        if begun is None or plan.together.is_lean:
            outputs = run(plan.f, tensors)
        else:
            ctx.seed, cotangent = begun
            both = run(plan.together.plan(), (*tensors, cotangent))
            outputs, ctx.gradients = both[: plan.outputs], both[plan.outputs :]
            plan.together.ran()
        ctx.kept = None  # see `torch_inner`
        if _top_hooks(False) is not None:
            unsaved.outputs = outputs  # see Note [Ended by a hook]
        ctx.save_for_backward(
            *[tensors[i] for i in plan.captured_inputs],
            *[outputs[i] for i in plan.captured_outputs],
        )
        if plan.constant_outputs:
            ctx.mark_non_differentiable(*[outputs[i] for i in plan.constant_outputs])
        return outputs

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> tuple[Tensor | None, ...]:
        batch = batch_of(cotangents)
        if batch is None:
            gradients = _gradients(ctx, *cotangents)
        else:
            gradients = batch.map(lambda *slices: _gradients(ctx, *slices), cotangents)
        return (None, *(gradients if ctx.kept is None else ctx.kept.add_to(gradients)))


def _gradients(ctx: Any, *cotangents: Tensor | None) -> Sequence[Tensor | None]:
    plan: GradientPlan = ctx.plan
    plan.unasked.asked()
    if plan.late is not None:
        plan.late.check(ctx.late)
    watched = is_watched()
    if ctx.seed is not None and not watched:
        there = _computed_with_value(ctx, plan, cotangents)
        if there is not None:
            return there
    result: list[Tensor | None] = [None] * plan.arity
    vjps = [cotangents[i] for i in plan.output_vjps]
    defined = tuple([g is not None for g in vjps])
    wanted = _wanted(ctx, plan)
    if plan.together.is_learning:
        _learn(plan, cotangents, wanted)
    if True in defined and True in wanted:
        special = plan.df(defined, wanted)
        arguments = [*vjps, *ctx.saved_tensors]
        given = [t for i in special.inputs if (t := arguments[i]) is not None]
        grads = call(special.plan, given)
        for position, grad in zip(special.outputs, grads, strict=True):
            result[plan.input_vjps[position]] = grad
        if watched and has_nan(result):
            operands = [None if t is None else to_numpy(t) for t in arguments]
            if only_adds_up(plan, operands):
                let_pass(ctx)
    return result


def _computed_with_value(
    ctx: Any, plan: GradientPlan, cotangents: Sequence[Tensor | None]
) -> list[Tensor | None] | None:
    """The gradients that f's run has made, once; None where df is to run. Note [Together]."""
    seed, ctx.seed = ctx.seed, None
    gradients, ctx.gradients = ctx.gradients, None
    if torch.is_grad_enabled() or _only_number(cotangents) != seed:
        plan.together.missed()
        return None
    ctx.saved_tensors  # noqa: B018  # refuses tensors changed meanwhile, and a freed graph
    plan.together.taken()
    plan.f.counts.backward += 1
    result: list[Tensor | None] = [None] * plan.arity
    for place, gradient in zip(plan.together.places, gradients, strict=True):
        result[place] = gradient
    return result


def _learn(plan: GradientPlan, cotangents: Sequence[Tensor | None], wanted: Sequence[bool]) -> None:
    number = None if torch.is_grad_enabled() else _only_number(cotangents)
    if number is None or not all(wanted):
        plan.together.note(None)
    elif plan.together.note(number):
        plan.together.begin(number, cotangents[0].detach().clone())  # type: ignore[union-attr]


def _only_number(cotangents: Sequence[Tensor | None]) -> float | None:
    """The cotangent of the value, a number; None where there are others, or it is none."""
    first = cotangents[0]
    if first is None or any(c is not None for c in cotangents[1:]):
        return None
    return float(first.item())


def cotangent_dtype_matches(tensor: Any, dtype: DType) -> bool:
    """Whether a cotangent is a tensor of the given dtype."""
    return isinstance(tensor, Tensor) and from_torch_dtype(tensor.dtype) == dtype


def _wanted(ctx: Any, plan: GradientPlan) -> tuple[bool, ...]:
    """Whether the backward now running asks for the gradients of these tensor inputs.

    `needs_input_grad` is as of the forward; `torch.autograd.grad(loss, [w])` wants less than that.
    Where one gradient is left it is wanted, or there were no backward.
    """
    edges, needs = ctx.next_functions, ctx.needs_input_grad
    nodes = [edges[i][0] if needs[1 + i] else None for i in plan.input_vjps]
    if sum(node is not None for node in nodes) == 1:
        return tuple([node is not None for node in nodes])
    return tuple([_is_wanted(node, plan) for node in nodes])


def _is_wanted(node: Any, plan: GradientPlan) -> bool:
    if node is None:
        return False
    try:
        return bool(torch._C._will_engine_execute_node(node))
    except RuntimeError as error:
        # torch does not say so of a leaf that autograd.grad collects; others get False. The error
        # takes 40 us: from now on this plan's leaves come as views, of which torch says it at once
        if "leaf node" not in str(error):
            raise
        plan.asked_of_leaves = True
        return True


# The apply of torch's own, without what it does in Python for transforms: none is active here.
_joined: Any = super(torch.autograd.Function, Joined).apply
_compiled: Any = super(torch.autograd.Function, _Compiled).apply
_unrecorded: Any = super(torch.autograd.Function, Unrecorded).apply
