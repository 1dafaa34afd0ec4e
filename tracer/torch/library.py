"""Functions of torch that are recorded as one op, with torch's own backward.

    y, h, c = torch.lstm(x, [h0, c0], weights, ...)     →   %y, %h, %c, %kept = library_call[...]

torch takes `lstm`, `gru` and their like apart before a trace sees them, into some ten ops a step
and as many for its gradient: a long sequence would be a graph of thousands of nodes, and no faster
than the library's own loop. So each is an op of a library of ours here, that runs torch's.

Attention is such an op where its scores are many: torch's kernel keeps none of them.

Not so where a layer drops some of its results, as the numbers drawn would be torch's own affair; in
half precision on the CPU; under autocast, which has casts between the steps; and, on a device,
outside of training, where cuDNN keeps nothing for a backward. There the steps are recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import _disable_current_modes

from gradof import tuning
from gradof.errors import UnsupportedOpError
from gradof.tracer.state.source import user_loc
from gradof.tracer.torch.functional import had_flash_attention, is_wrapper, plainly
from gradof.tracer.torch.overrides import OVERRIDES
from gradof.tracer.torch.transforms import transformed

Tensor = torch.Tensor
_LAYERS = {"lstm": 3, "gru": 2, "rnn_tanh": 2, "rnn_relu": 2}  # with the number of their results
_WHOLE = frozenset({torch.float32, torch.float64, torch.bool})
_ON_DEVICE = frozenset({torch.float32, torch.float64, torch.float16, torch.bfloat16})
_library: Any = torch.library.Library
_OPS = _library("gradof", "FRAGMENT")


def _register(name: str, results: int) -> None:
    states = "Tensor[] hx" if name == "lstm" else "Tensor hx"
    given = ", ".join(["Tensor"] * results)
    _OPS.define(
        f"{name}(Tensor input, {states}, Tensor[] params, bool has_biases, int num_layers, "
        f"float dropout, bool train, bool bidirectional, bool batch_first) -> ({given})"
    )
    run = getattr(torch.ops.aten, name).input
    _OPS.impl(name, lambda *args: tuple(t.clone() for t in run(*args)), "CompositeExplicitAutograd")

    def backward(ctx: Any, *grads: Any) -> Any:
        return ctx.again(grads)

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.again = lambda grads: _step_by_step(run, inputs, grads)

    register: Any = torch.library.register_autograd
    register(f"gradof::{name}", backward, setup_context=setup, lib=_OPS)
    OVERRIDES[getattr(torch, name)] = _as_one(name)


def _step_by_step(run: Any, inputs: tuple[Any, ...], grads: Sequence[Any]) -> Any:
    """The gradient of a layer by its steps, for `torch.autograd.grad` inside a trace."""
    with torch.enable_grad():
        results = run(*inputs)
        parts = [p if isinstance(p, (list, tuple)) else [p] for p in inputs[:3]]
        live = [t for part in parts for t in part if t.requires_grad]
        pairs = [(r, g) for r, g in zip(results, grads, strict=True) if g is not None]
        found = iter(torch.autograd.grad(
            [r for r, _ in pairs], live, [g for _, g in pairs], allow_unused=True,
            create_graph=True,
        ))  # fmt: skip

    def given(part: Any) -> Any:
        if isinstance(part, Tensor):
            return next(found) if part.requires_grad else None
        return [given(t) for t in part]

    return (*map(given, inputs[:3]), *[None] * (len(inputs) - 3))


def _as_one(name: str) -> Callable[..., Any]:
    whole, stepwise = getattr(torch.ops.gradof, name), getattr(torch, name)

    def run(*args: Any, **kwargs: Any) -> Any:
        if len(args) > 3 and isinstance(args[3], (list, tuple)) and is_wrapper(args[0]):
            raise UnsupportedOpError(
                f"{name} of a packed sequence, whose shapes are those of its lengths",
                loc=user_loc(), hint="pass a padded one, and mask what is beyond the lengths",
            )
        one = not kwargs and len(args) == 9 and isinstance(args[0], Tensor) and _may_be_one(*args)
        return whole(*args) if one else stepwise(*args, **kwargs)

    return run


def _may_be_one(
    x: Any, states: Any, params: Any, has_biases: Any, layers: int, dropout: float, train: bool,
    *_: Any,
) -> bool:  # fmt: skip
    if isinstance(has_biases, (list, tuple)) or type(layers) is not int:
        return False  # the form for packed sequences, of which none is a wrapper
    tensors = [x, *(states if isinstance(states, (list, tuple)) else [states]), *params]
    draws = train and dropout != 0 and layers > 1
    return not draws and (_are_whole(*tensors) or (bool(train) and _are_of_cudnn(*tensors)))


def _are_whole(*tensors: Any) -> bool:
    """Whether a call takes these as they are: on the CPU, of full precision, without casts."""
    return not torch.is_autocast_enabled("cpu") and all(
        isinstance(t, Tensor) and t.is_cpu and t.dtype in _WHOLE and is_wrapper(t)
        and not transformed(t) for t in tensors
    )  # fmt: skip


def _are_of_cudnn(*tensors: Any) -> bool:
    """Whether cuDNN's layers take these: on one CUDA device, of one dtype, without casts."""
    return (
        not torch.is_autocast_enabled("cuda")
        and all(isinstance(t, Tensor) and is_wrapper(t) and not transformed(t) for t in tensors)
        and all(t.is_cuda and t.dtype in _ON_DEVICE for t in tensors)
        and len({(t.device, t.dtype) for t in tensors}) == 1
    )


for _name, _results in _LAYERS.items():
    _register(_name, _results)


# --- attention -----------------------------------------------------------------------------------

_attention: Any = torch.nn.functional.scaled_dot_product_attention
_choose: Any = torch._fused_sdp_choice
_KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]  # those of the CPU


def _attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float | None,
    grouped: bool,
) -> Tensor:  # fmt: skip
    found: Tensor = torch.ops.aten.scaled_dot_product_attention(
        q, k, v, mask, 0.0, causal, scale=scale, enable_gqa=grouped
    )
    return found


def _attention_backward(ctx: Any, grad: Tensor) -> Any:
    with torch.enable_grad():
        result = _attend(*ctx.given)
        live = [t for t in ctx.given[:4] if t is not None and t.requires_grad]
        found = iter(torch.autograd.grad(result, live, grad, create_graph=True))
    return (*(next(found) if t is not None and t.requires_grad else None for t in ctx.given[:4]),
            None, None, None)  # fmt: skip


def _remember(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.given = inputs


def _attention_as_one(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: Any = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    tensors = [t for t in (query, key, value, attn_mask) if t is not None]
    if dropout_p == 0.0 and type(scale) in (float, type(None)) and _is_worth_a_call(*tensors):
        found = torch.ops.gradof.attention(
            query, key, value, attn_mask, is_causal, scale, enable_gqa
        )
    else:
        found = _attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    order = _order_of_kernel(
        [query, key, value, attn_mask], dropout_p, is_causal, scale, enable_gqa
    )
    if order == sorted(order):
        return found
    return found.permute(order).contiguous().permute([order.index(d) for d in range(len(order))])


def _order_of_kernel(
    given: list[Any], dropout_p: float, is_causal: bool, scale: Any, enable_gqa: bool
) -> list[int]:
    """The dims of eager's result as they lie in memory: in a trace attention is taken apart, which
    gives rows, but torch's kernel on the CPU lays its result out as the query is.
    """
    tensors = [t for t in given if t is not None]
    if not (had_flash_attention() and all(is_wrapper(t) and t.is_cpu for t in tensors)):
        return []
    with _disable_current_modes(), plainly(), sdpa_kernel(_KERNELS):
        like: list[Any] = [t if t is None else _empty_as(t) for t in given]
        choice = _choose(*like, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
        strides = torch.empty_like(like[0]).stride()
    if choice != SDPBackend.FLASH_ATTENTION.value:
        return []
    return sorted(range(len(strides)), key=lambda d: -strides[d])


def _empty_as(tensor: Tensor) -> Tensor:
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    return made.requires_grad_(tensor.requires_grad)


def _is_worth_a_call(*tensors: Any) -> bool:
    """Whether torch's kernel, which keeps no scores, is quicker than the products by themselves."""
    if not _are_whole(*tensors) or any(t.dim() != 4 for t in tensors[:3]):
        return False
    query, key, *_ = tensors
    scores = query.shape[0] * query.shape[1] * query.shape[2] * key.shape[2]
    return bool(scores >= tuning.ATTENTION_SCORES)


_OPS.define("attention(Tensor q, Tensor k, Tensor v, Tensor? mask, bool causal, float? scale, "
            "bool grouped) -> Tensor")  # fmt: skip
_OPS.impl("attention", lambda *args: _attend(*args).clone(), "CompositeExplicitAutograd")
_registered: Any = torch.library.register_autograd
_registered("gradof::attention", _attention_backward, setup_context=_remember, lib=_OPS)
OVERRIDES[_attention] = _attention_as_one
