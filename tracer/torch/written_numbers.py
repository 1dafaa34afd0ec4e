"""Functions of torch with a number that varies, written out in ops that take numbers of the graph.

    F.leaky_relu(x, slope)      →      where(x > 0, x, x * slope)
    noise.normal_(0.0, sigma)   →      noise.normal_().mul_(sigma).add_(0.0)

An op's own number is an attribute, one trace for each of its values. Each program has torch's
values, gradients (at the edges, too) and draws; it gives NotImplemented for what it does not cover,
and the number is pinned.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

Tensor = torch.Tensor
Program = Callable[..., Any]
WRITTEN: dict[Any, Program] = {}
_SINGLE = (torch.float32, torch.float64)
_HALVES = (torch.float16, torch.bfloat16)


def written(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a call with traced numbers gives; NotImplemented without a program for it."""
    program = WRITTEN.get(func)
    tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)]
    if program is None or any(t.dtype in _HALVES or t.is_complex() for t in tensors):
        return NotImplemented  # a program would round half precision at each of its steps
    try:
        inspect.signature(program).bind(*args, **kwargs)
    except TypeError:
        return NotImplemented  # another form of the call
    return program(*args, **kwargs)


def _for(*functions: Any) -> Callable[[Program], Program]:
    def register(program: Program) -> Program:
        WRITTEN.update(dict.fromkeys(functions, program))
        return program

    return register


def _reduced(loss: Tensor, reduction: str) -> Any:
    if reduction not in ("mean", "sum", "none"):
        return NotImplemented
    return loss if reduction == "none" else getattr(loss, reduction)()


def _is_single(*tensors: Tensor) -> bool:
    """Whether the op's own arithmetic is that of torch's ops one by one."""
    return all(t.dtype in _SINGLE for t in tensors)


@_for(F.leaky_relu, torch._C._nn.leaky_relu)
def _leaky_relu(input: Tensor, negative_slope: Any = 0.01, inplace: bool = False) -> Any:
    if inplace or not _is_single(input):
        return NotImplemented
    return torch.where(input > 0, input, input * negative_slope)


@_for(F.elu)
def _elu(input: Tensor, alpha: Any = 1.0, inplace: bool = False) -> Any:
    if inplace or not _is_single(input):
        return NotImplemented
    return torch.where(input > 0, input, input.clamp(max=0).expm1() * alpha)


@_for(F.celu)
def _celu(input: Tensor, alpha: Any = 1.0, inplace: bool = False) -> Any:
    if inplace or not _is_single(input):
        return NotImplemented
    return torch.where(input > 0, input, (input.clamp(max=0) / alpha).expm1() * alpha)


@_for(F.softplus)
def _softplus(input: Tensor, beta: Any = 1, threshold: Any = 20) -> Any:
    if not _is_single(input):
        return NotImplemented
    scaled = input * beta
    return torch.where(
        scaled > threshold, input, scaled.clamp(max=threshold).exp().log1p() / beta
    )


@_for(F.hardtanh)
def _hardtanh(
    input: Tensor, min_val: Any = -1.0, max_val: Any = 1.0, inplace: bool = False
) -> Any:
    if inplace or not _is_single(input):
        return NotImplemented
    within = (input > min_val) & (input < max_val)  # at the bounds there is no gradient
    return torch.where(within, input, input.detach().clamp(min_val, max_val))


@_for(F.softshrink)
def _softshrink(input: Tensor, lambd: Any = 0.5) -> Any:
    if lambd < 0 or not _is_single(input):
        return NotImplemented
    near = torch.where(input < -lambd, input + lambd, input * 0)
    return torch.where(input > lambd, input - lambd, near)


@_for(F.huber_loss)
def _huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: Any = 1.0, weight: Any = None
) -> Any:
    if weight is not None or delta <= 0 or not _is_single(input, target):
        return NotImplemented
    if input.shape != target.shape:
        return NotImplemented
    d = input - target
    far = d.abs()
    loss = torch.where(far <= delta, 0.5 * d * d, (far - 0.5 * delta) * delta)
    return _reduced(loss, reduction)


@_for(F.smooth_l1_loss)
def _smooth_l1_loss(
    input: Tensor, target: Tensor, size_average: None = None, reduce: None = None,
    reduction: str = "mean", beta: Any = 1.0,
) -> Any:  # fmt: skip
    if (size_average, reduce) != (None, None) or beta <= 0 or not _is_single(input, target):
        return NotImplemented
    if input.shape != target.shape:  # torch warns
        return NotImplemented
    d = input - target
    far = d.abs()
    return _reduced(torch.where(far < beta, 0.5 * d * d / beta, far - 0.5 * beta), reduction)


@_for(F.margin_ranking_loss)
def _margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: Any = 0, size_average: None = None,
    reduce: None = None, reduction: str = "mean",
) -> Any:  # fmt: skip
    if (size_average, reduce) != (None, None):
        return NotImplemented
    return _reduced((-target * (input1 - input2) + margin).clamp_min(0), reduction)


@_for(F.triplet_margin_loss)
def _triplet_margin_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, margin: Any = 1.0, p: float = 2,
    eps: float = 1e-6, swap: bool = False, size_average: None = None, reduce: None = None,
    reduction: str = "mean",
) -> Any:  # fmt: skip
    if (size_average, reduce) != (None, None) or margin <= 0:
        return NotImplemented
    near = F.pairwise_distance(anchor, positive, p, eps)
    far = F.pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = torch.min(far, F.pairwise_distance(positive, negative, p, eps))
    return _reduced((near - far + margin).clamp_min(0), reduction)


@_for(F.cross_entropy)
def _cross_entropy(
    input: Tensor, target: Tensor, weight: Any = None, size_average: None = None,
    ignore_index: int = -100, reduce: None = None, reduction: str = "mean",
    label_smoothing: Any = 0.0,
) -> Any:  # fmt: skip
    if weight is not None or (size_average, reduce) != (None, None) or input.dim() != 2:
        return NotImplemented
    if not 0 <= label_smoothing <= 1 or target.is_floating_point():
        return NotImplemented
    logs = F.log_softmax(input, 1)
    hard = F.nll_loss(logs, target, ignore_index=ignore_index, reduction=reduction)
    even = torch.where(target == ignore_index, 0, -logs.mean(1))
    if reduction == "mean":
        even = even.sum() / (target != ignore_index).sum()
    elif reduction == "sum":
        even = even.sum()
    return hard * (1 - label_smoothing) + even * label_smoothing


@_for(torch.addmm, Tensor.addmm, torch.baddbmm, Tensor.baddbmm)
def _addmm(input: Tensor, left: Tensor, right: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    if not _is_single(input, left, right):  # of whole numbers the factors are, too
        return NotImplemented
    return input * beta + (left @ right) * alpha


@_for(F.scaled_dot_product_attention)
def _attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Any = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: Any = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    if type(dropout_p) is not float or not _is_single(query) or not query.shape[-1]:
        return NotImplemented
    query = query * (scale * math.sqrt(query.shape[-1]))
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, enable_gqa=enable_gqa
    )


@_for(torch.normal)
def _normal(mean: Any, std: Any, size: Any) -> Any:
    if isinstance(mean, Tensor) or isinstance(std, Tensor) or std < 0:
        return NotImplemented
    drawn = torch.randn(size)
    return drawn * std + mean if _is_single(drawn) else NotImplemented


@_for(Tensor.normal_)
def _normal_(x: Tensor, mean: Any = 0.0, std: Any = 1.0, *, generator: Any = None) -> Any:
    if not _is_single(x) or std < 0:
        return NotImplemented
    return x.normal_(generator=generator).mul_(std).add_(mean)


@_for(Tensor.uniform_)
def _uniform_(x: Tensor, low: Any = 0.0, high: Any = 1.0, *, generator: Any = None) -> Any:
    if not _is_single(x) or low > high:
        return NotImplemented
    return x.uniform_(generator=generator).mul_(high - low).add_(low)


@_for(torch.broadcast_tensors)
def _broadcast_tensors(*tensors: Any) -> Any:
    # torch.distributions makes tensors of what it does not take for one
    given = [t for t in tensors if isinstance(t, Tensor)]
    dtype = given[0].dtype if given else torch.get_default_dtype()
    made = [t if isinstance(t, Tensor) else torch.tensor(t, dtype=dtype) for t in tensors]
    return torch.broadcast_tensors(*made)  # type: ignore[no-untyped-call]
