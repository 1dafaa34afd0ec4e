"""Losses of aten."""

from __future__ import annotations

from gradof.ops.expr import Expr, F
from gradof.tracer.aten.registry import Call, aten

_REDUCTIONS = ("none", "mean", "sum")  # at::Reduction


@aten("nll_loss_forward.default", "nll_loss2d_forward.default")
def nll_loss(
    c: Call, x: Expr, target: Expr, weight: Expr | None, reduction: int, ignore_index: int
) -> tuple[Expr, Expr]:
    operands = (x, target) if weight is None else (x, target, weight)
    loss, total = F.nll_loss.multiple(
        *operands, reduction=_REDUCTIONS[reduction], ignore_index=ignore_index
    )
    if reduction == 0:  # torch gives no total there
        total = total * 0.0
    return loss, total


@aten("mse_loss.default")
def mse_loss(c: Call, x: Expr, target: Expr, reduction: int = 1) -> Expr:
    return F.mse_loss(x, target, reduction=_REDUCTIONS[reduction])


@aten("huber_loss.default")
def huber_loss(c: Call, x: Expr, target: Expr, reduction: int = 1, delta: float = 1.0) -> Expr:
    return F.huber_loss(x, target, delta=float(delta), reduction=_REDUCTIONS[reduction])


@aten("smooth_l1_loss.default")
def smooth_l1_loss(c: Call, x: Expr, target: Expr, reduction: int = 1, beta: float = 1.0) -> Expr:
    return F.smooth_l1_loss(x, target, beta=float(beta), reduction=_REDUCTIONS[reduction])


@aten("binary_cross_entropy.default")
def binary_cross_entropy(
    c: Call, x: Expr, target: Expr, weight: Expr | None = None, reduction: int = 1
) -> Expr:
    operands = (x, target) if weight is None else (x, target, weight)
    return F.binary_cross_entropy(*operands, reduction=_REDUCTIONS[reduction])


@aten("soft_margin_loss.default")
def soft_margin_loss(c: Call, x: Expr, target: Expr, reduction: int = 1) -> Expr:
    return F.soft_margin_loss(x, target, reduction=_REDUCTIONS[reduction])
