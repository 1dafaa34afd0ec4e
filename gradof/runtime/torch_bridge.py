"""Compiled graphs under torch's autograd. Imported only once torch is in use.

`call(plan, tensors)` runs a graph on torch tensors. If a gradient may be asked for, it runs f of
the plan's Gradient inside a `torch.autograd.Function`, which saves exactly the captures and whose
backward is `call` again, on df: with `create_graph=True` that call is differentiable in turn, to
any order.

Note [Temporaries are outputs]
The values f saves for df are returned by the Function beside the real outputs and dropped by
`call`. Being outputs they have a grad_fn when they are unpacked in the backward, so a second
derivative flows through them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from gradof.errors import DeviceError, LeafTypeError
from gradof.ir.types import DType
from gradof.runtime.plan import GradientPlan, GraphPlan
from gradof.tracer.torch_functional import refuse_transformed, transforms_active
from gradof.tracer.torch_types import from_torch_dtype, to_torch_dtype

Tensor = torch.Tensor
_PLAIN = frozenset({torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64,
                    torch.bool, torch.complex64, torch.complex128, torch.complex32})
_WIDER = {torch.bfloat16: torch.float32, torch.complex32: torch.complex64}


def call(plan: GraphPlan, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Run `plan` on torch tensors, recorded by autograd where an input requires grad."""
    if transforms_active():  # as where a cotangent carries a tangent
        for tensor in tensors:
            refuse_transformed(tensor, "a tensor that compiled code is to read")
    if torch.is_grad_enabled():
        flags = tuple([t.requires_grad for t in tensors])
        if True in flags:
            gradient = plan.gradient(flags)
            outputs: tuple[Tensor, ...] = _Compiled.apply(gradient, *tensors)  # type: ignore[no-untyped-call]
            return outputs[: gradient.real_outputs]
    return run(plan, tensors)


def run(plan: GraphPlan, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Run `plan` on the values of tensors; no autograd."""
    made = [from_numpy(array) for array in plan(*[to_numpy(t) for t in tensors])]
    if plan.holds:
        pairs = zip(made, plan.held, strict=True)
        made = [t if held is None else t.to(to_torch_dtype(held)) for t, held in pairs]
    for i, view in plan.views:
        made[i] = view.of(tensors[view.input])
    return tuple(made)


def run_check(check: Callable[..., Any], tensors: Sequence[Tensor], random: bool) -> None:
    """Run the deciding part of a path; random numbers it draws will be drawn again."""
    if not random:
        check(*[to_numpy(t) for t in tensors])
        return
    state = torch.get_rng_state()
    try:
        check(*[to_numpy(t) for t in tensors])
    finally:
        torch.set_rng_state(state)


def from_numpy(array: Any) -> Tensor:
    """A tensor over a fresh array; torch has no negative strides, so a flipped one is copied."""
    if array.ndim and min(array.strides) < 0:
        array = array.copy()
    return torch.from_numpy(array)


def to_numpy(tensor: Tensor) -> Any:
    """A numpy view of a dense CPU tensor, without a copy; dtypes numpy has not are widened."""
    if tensor._is_zerotensor():  # not in memory
        tensor = tensor.detach().clone()
    wide = _WIDER.get(tensor.dtype)
    if wide is not None:
        tensor = tensor.detach().to(wide)
    return tensor.numpy(force=True)  # without history; pending conjugates and signs are resolved


def check_tensor(tensor: Tensor, path: str) -> None:
    """Refuse what the numpy backend cannot read, before anything runs."""
    refuse_transformed(tensor, path)
    if tensor.dtype in _PLAIN and tensor.is_cpu and tensor.layout is torch.strided:
        return
    if tensor.layout != torch.strided:
        raise LeafTypeError(
            f"{path} is a {tensor.layout} tensor", hint="pass a dense tensor: x.to_dense()"
        )
    if tensor.device.type != "cpu":
        raise DeviceError(
            f"{path} is on {tensor.device}; the numpy backend runs on the CPU",
            hint="move the tensor and the module with .cpu()",
        )
    if tensor.is_quantized:
        raise LeafTypeError(f"{path} is quantized", hint="pass x.dequantize()")


class _Compiled(torch.autograd.Function):
    """f forward, df backward; see Note [Temporaries are outputs]."""

    @staticmethod
    def forward(ctx: Any, plan: GradientPlan, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        outputs = run(plan.f, tensors)
        ctx.plan = plan
        ctx.save_for_backward(
            *[tensors[i] for i in plan.captured_inputs],
            *[outputs[i] for i in plan.captured_outputs],
        )
        if plan.constant_outputs:
            ctx.mark_non_differentiable(*[outputs[i] for i in plan.constant_outputs])
        return outputs

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> tuple[Tensor | None, ...]:
        plan: GradientPlan = ctx.plan
        result: list[Tensor | None] = [None] * plan.arity
        vjps = [cotangents[i] for i in plan.output_vjps]
        defined = tuple([g is not None for g in vjps])
        wanted = _wanted(ctx, plan.input_vjps)
        if True in defined and True in wanted:
            special = plan.df(defined, wanted)
            arguments = [*vjps, *ctx.saved_tensors]
            given = [t for i in special.inputs if (t := arguments[i]) is not None]
            grads = call(special.plan, given)
            for position, grad in zip(special.outputs, grads, strict=True):
                result[plan.input_vjps[position]] = grad
        return (None, *result)


def cotangent_dtype_matches(tensor: Any, dtype: DType) -> bool:
    """Whether a cotangent is a tensor of the given dtype."""
    return isinstance(tensor, Tensor) and from_torch_dtype(tensor.dtype) == dtype


def _wanted(ctx: Any, inputs: Sequence[int]) -> tuple[bool, ...]:
    """Whether the backward now running asks for the gradients of these tensor inputs.

    `needs_input_grad` is as of the forward; `torch.autograd.grad(loss, [w])` wants less than that.
    """
    edges, needs = ctx.next_functions, ctx.needs_input_grad
    return tuple([bool(needs[1 + i]) and _is_wanted(edges[i][0]) for i in inputs])


def _is_wanted(node: Any) -> bool:
    if node is None:
        return False
    try:
        return bool(torch._C._will_engine_execute_node(node))
    except RuntimeError as error:
        # torch does not say so of a leaf that autograd.grad collects; others get False
        if "leaf node" not in str(error):
            raise
        return True
