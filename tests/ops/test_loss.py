"""Losses against torch to second order: reductions, weights, ignored targets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as tf

from gradof.errors import InferenceError
from gradof.ir.attrs import Dense
from gradof.ops.expr import Expr, F
from tests.ops.reference import compare, forward, gradient, randn

REDUCTIONS = ("none", "mean", "sum")


def side_of(x: Expr, side: Any) -> Expr:
    """An array as an operand that is no variable."""
    return Expr(x.emitter.body.constant(Dense.of(side)), x.emitter)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_regression_losses(reduction: str) -> None:
    x, y = randn(4, 5), randn(4, 5, seed=1)
    compare(lambda x, y: F.mse_loss(x, y, reduction=reduction),
            lambda x, y: tf.mse_loss(x, y, reduction=reduction), x, y)  # fmt: skip
    compare(lambda x, y: F.huber_loss(x, y, delta=0.7, reduction=reduction),
            lambda x, y: tf.huber_loss(x, y, reduction, 0.7), x, y)  # fmt: skip
    side = np.sign(y) * 9.0  # far enough for the second derivative to be a difference of ones
    compare(lambda x: F.soft_margin_loss(x, side_of(x, side), reduction=reduction),
            lambda x: tf.soft_margin_loss(x, torch.from_numpy(side), reduction=reduction),
            x)  # fmt: skip
    for beta in (0.0, 0.6):
        compare(lambda x, y, b=beta: F.smooth_l1_loss(x, y, beta=b, reduction=reduction),
                lambda x, y, b=beta: tf.smooth_l1_loss(x, y, reduction=reduction, beta=b),
                x, y, order=1 if beta == 0 else 2)  # fmt: skip


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_binary_cross_entropy(reduction: str) -> None:
    p, t = 1 / (1 + np.exp(-randn(4, 5))), 1 / (1 + np.exp(-randn(4, 5, seed=1)))
    weight = np.abs(randn(4, 5, seed=2))
    compare(lambda x, y: F.binary_cross_entropy(x, y, reduction=reduction),
            lambda x, y: tf.binary_cross_entropy(x, y, reduction=reduction), p, t)  # fmt: skip
    compare(lambda x, y: F.binary_cross_entropy(x, y, _const(x, weight), reduction=reduction),
            lambda x, y: tf.binary_cross_entropy(x, y, torch.from_numpy(weight),
                                                 reduction=reduction), p, t)  # fmt: skip
    logits = randn(4, 5) * 20
    compare(lambda x, y: F.binary_cross_entropy_with_logits(x, y, reduction=reduction),
            lambda x, y: tf.binary_cross_entropy_with_logits(x, y, reduction=reduction),
            logits, t)  # fmt: skip
    compare(lambda x, y: F.binary_cross_entropy_with_logits(
                x, y, _const(x, weight[0]), reduction=reduction),
            lambda x, y: tf.binary_cross_entropy_with_logits(
                x, y, reduction=reduction, pos_weight=torch.from_numpy(weight[0])),
            logits, t)  # fmt: skip


def _const(x: Any, array: Any) -> Any:
    from gradof.ir.attrs import Dense

    return x.emitter.wrap(x.emitter.body.constant(Dense.of(array)))


def test_a_sure_mistake_has_a_finite_loss() -> None:
    x, t = np.array([0.0, 1.0, 0.0]), np.array([1.0, 0.0, 0.0])
    assert forward(lambda x, t: F.binary_cross_entropy(x, t, reduction="none"), x, t)[
        0].tolist() == [100.0, 100.0, 0.0]  # fmt: skip
    (grad, _) = gradient(lambda x, t: F.binary_cross_entropy(x, t, reduction="none"), x, t)
    want = torch.from_numpy(x).requires_grad_()
    loss = tf.binary_cross_entropy(want, torch.from_numpy(t), reduction="sum")
    np.testing.assert_allclose(grad, torch.autograd.grad(loss, want)[0].numpy(), rtol=1e-12)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("log_target", [False, True])
@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides:UserWarning")
def test_kl_div(reduction: str, log_target: bool) -> None:
    t = randn(4, 5, seed=1) if log_target else np.abs(randn(4, 5, seed=1))
    compare(lambda x, y: F.kl_div(x, y, reduction=reduction, log_target=log_target),
            lambda x, y: tf.kl_div(x, y, reduction=reduction, log_target=log_target),
            randn(4, 5), t)  # fmt: skip


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", [(6, 3), (2, 3, 4), (2, 3, 2, 2)], ids=str)
def test_class_losses(shape: tuple[int, ...], reduction: str) -> None:
    x = randn(*shape)
    target = np.random.default_rng(5).integers(0, 3, (shape[0], *shape[2:]))
    target.flat[1] = -100
    weight = np.array([0.5, 2.0, 1.5])
    settings: dict[str, Any] = {"reduction": reduction, "ignore_index": -100}
    compare(lambda x, t: F.cross_entropy(x, t, **settings),
            lambda x, t: tf.cross_entropy(x, t, reduction=reduction), x, target)  # fmt: skip
    compare(lambda x, t: F.cross_entropy(x, t, _const(x, weight), **settings),
            lambda x, t: tf.cross_entropy(x, t, torch.from_numpy(weight), reduction=reduction),
            x, target)  # fmt: skip
    compare(lambda x, t: F.nll_loss.multiple(x, t, **settings)[0],
            lambda x, t: tf.nll_loss(x, t, reduction=reduction), x, target, order=1)  # fmt: skip


def test_nll_loss_of_one_sample() -> None:
    compare(lambda x, t: F.nll_loss.multiple(x, t, reduction="mean", ignore_index=-100)[0],
            lambda x, t: tf.nll_loss(x, t), randn(3), np.array(1), order=1)  # fmt: skip


def test_wrong_reduction_is_refused() -> None:
    with pytest.raises(InferenceError, match="reduction is"):
        forward(lambda x, y: F.mse_loss(x, y, reduction="average"), randn(3), randn(3))
