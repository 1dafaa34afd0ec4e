"""Losses, as composites; `reduction` is "none", "mean" or "sum".

>>> F.cross_entropy(logits, target, reduction="mean", ignore_index=-100)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradof.errors import InferenceError
from gradof.ops.cost import CALL
from gradof.ops.expr import Expr, F
from gradof.ops.families import binary, composite
from gradof.ops.registry import op

Array = NDArray[Any]
BCE_FLOOR = float(np.float32(1e-12))  # torch keeps it in float32, for float64 as well


def _reduced(x: Expr, reduction: str) -> Expr:
    dims = tuple(range(x.rank))
    if reduction == "none":
        return x
    if reduction == "sum":
        return F.sum(x, dims=dims, keepdims=False)
    if reduction == "mean":
        return F.mean(x, dims=dims, keepdims=False)
    raise InferenceError(f"a reduction is 'none', 'mean' or 'sum', not {reduction!r}")


def _mse_loss(x: Expr, target: Expr, reduction: str) -> Expr:
    return _reduced(F.square(x - target), reduction)


def _huber_loss(x: Expr, target: Expr, delta: float, reduction: str) -> Expr:
    off = x - target
    size = F.abs(off)
    is_far = size >= float(delta)  # there the gradient of a square would be infinity times 0
    far = (size - 0.5 * float(delta)) * float(delta)
    near = F.square(F.where(is_far, 0.0, off)) * 0.5  # of the size it would be flat at 0
    return _reduced(F.where(is_far, far, near), reduction)


def _smooth_l1_loss(x: Expr, target: Expr, beta: float, reduction: str) -> Expr:
    off = x - target
    size = F.abs(off)
    if beta == 0:
        return _reduced(size, reduction)
    is_far = size >= float(beta)
    near = F.square(F.where(is_far, 0.0, off)) * (0.5 / float(beta))
    return _reduced(F.where(is_far, size - 0.5 * float(beta), near), reduction)


def _soft_margin_loss(x: Expr, target: Expr, reduction: str) -> Expr:
    return _reduced(F.log1p_exp(-(x * target)), reduction)


op("mse_loss(x, target; reduction) -> y", family=composite(_mse_loss), expand=_mse_loss)
op("huber_loss(x, target; delta, reduction) -> y", family=composite(_huber_loss),
   expand=_huber_loss)
op("smooth_l1_loss(x, target; beta, reduction) -> y", family=composite(_smooth_l1_loss),
   expand=_smooth_l1_loss)
op("soft_margin_loss(x, target; reduction) -> y", family=composite(_soft_margin_loss),
   expand=_soft_margin_loss)

# --- binary cross entropy -----------------------------------------------------------------------


def _np_bce(x: Array, target: Array) -> Array:
    # Logarithms are cut off at -100, as in torch, so that a sure mistake has a finite loss.
    low = np.maximum(np.log1p(-x), -100)
    result: Array = (target - 1) * low - target * np.maximum(np.log(x), -100)
    return result


def _bce_x(g: Expr, x: Expr, target: Expr) -> Expr:
    return g * ((x - target) / F.maximum((1.0 - x) * x, BCE_FLOOR))


def _bce_target(g: Expr, x: Expr) -> Expr:
    return g * (F.log1p(-x) - F.log(x))


def _bernoulli_nll(x: Expr, target: Expr) -> Expr:
    cut = F.maximum(F.log1p(-x), -100.0), F.maximum(F.log(x), -100.0)
    return (target - 1.0) * cut[0] - target * cut[1]


# A primitive for torch's cut-off, which no composition of differentiable ops has.
op("bernoulli_nll(x, target) -> y", family=binary(frozenset({"float"})), cost=CALL, numpy=_np_bce,
   torch="torch.nn.functional.binary_cross_entropy({x}, {target}, reduction='none')",
   scalar=_bernoulli_nll, vjp={"x": _bce_x, "target": _bce_target},
   formula="-(target*log(x) + (1 - target)*log(1 - x))", domain=((0.1, 0.9), (0.1, 0.9)))


def _binary_cross_entropy(
    x: Expr, target: Expr, weight: Expr | None = None, *, reduction: str
) -> Expr:
    loss = F.bernoulli_nll(x, target)
    return _reduced(loss if weight is None else loss * weight, reduction)


op("binary_cross_entropy(*xs; reduction) -> y", family=composite(_binary_cross_entropy),
   expand=_binary_cross_entropy, doc="Operands: x, target and, if there is one, a weight.")


def _bce_with_logits(
    x: Expr, target: Expr, pos_weight: Expr | None = None, *, reduction: str
) -> Expr:
    log_p = F.log_sigmoid(x)
    if pos_weight is not None:
        log_p = log_p * ((pos_weight - 1.0) * target + 1.0)
    return _reduced((1.0 - target) * x - log_p, reduction)


op("binary_cross_entropy_with_logits(*xs; reduction) -> y", family=composite(_bce_with_logits),
   expand=_bce_with_logits, doc="Operands: x, target and, if there is one, a pos_weight.")


def _kl_div(x: Expr, target: Expr, reduction: str, log_target: bool) -> Expr:
    if log_target:
        loss = F.exp(target) * (target - x)
    else:
        loss = F.xlogy(target, target) - target * x
    return _reduced(loss, reduction)


op("kl_div(x, target; reduction, log_target) -> y", family=composite(_kl_div), expand=_kl_div)

# --- classes ------------------------------------------------------------------------------------


def _nll_loss(
    x: Expr, target: Expr, weight: Expr | None = None, *, reduction: str, ignore_index: int
) -> tuple[Expr, Expr]:
    dim = 1 if x.rank > 1 else 0
    kept = target != ignore_index
    # An ignored target may be no class at all; class 0 stands in, with weight 0.
    label = F.where(kept, target, 0)
    label = F.in_range(label, size=x.shape[dim], wraps=False, error="index")
    column = label.reshape((*label.shape[:dim], 1, *label.shape[dim:]))
    picked = F.gather(x, column, dim=dim).reshape(label.shape)
    if weight is None:
        importance = kept.cast(x.dtype)
    else:
        rows = F.index_select(weight, label.reshape((label.type.size,)), dim=0)
        importance = F.where(kept, rows.reshape(label.shape), 0.0)
    # where, not a product: an ignored element may be infinite
    loss = F.where(kept, -(picked * importance), 0.0)
    dims = tuple(range(label.rank))
    total = F.sum(importance, dims=dims, keepdims=False)
    if reduction == "mean":
        return F.sum(loss, dims=dims, keepdims=False) / total, total
    return _reduced(loss, reduction), total


op("nll_loss(*xs; reduction, ignore_index) -> y, total_weight", family=composite(_nll_loss),
   expand=_nll_loss,
   doc="Operands: log-probabilities [N, C, *space], targets [N, *space], perhaps a weight [C].")


def _cross_entropy(
    x: Expr, target: Expr, weight: Expr | None = None, *, reduction: str, ignore_index: int
) -> Expr:
    log_p = F.log_softmax(x, dim=1 if x.rank > 1 else 0)
    operands = (log_p, target) if weight is None else (log_p, target, weight)
    return F.nll_loss.multiple(*operands, reduction=reduction, ignore_index=ignore_index)[0]


op("cross_entropy(*xs; reduction, ignore_index) -> y", family=composite(_cross_entropy),
   expand=_cross_entropy, doc="Operands: logits, integer targets and perhaps a weight.")
