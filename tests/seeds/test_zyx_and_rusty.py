"""Wrong gradients that zyx and RustyASG had: order, reciprocals, broadcasting, silent zeros."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as nnf

import gradof
from tests.seeds.compare import normal, positive, same, whole

KERNEL = normal(2, 2, 2, 2)
EDGES = torch.tensor([0.0, 0.0, -2.0, 1.0], dtype=torch.float64)


# --- zyx -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("swapped", [False, True])
def test_Z1_a_comparison_does_not_reorder_the_reverse(swapped: bool) -> None:
    def f(a: torch.Tensor) -> torch.Tensor:
        x = torch.exp(a)
        masked = torch.where(x > 0.5, x, x * 0)
        return masked + torch.sin(x) if swapped else torch.sin(x) + masked

    same(f, normal(4, 3))


def test_reciprocal_is_multiplied_by_the_cotangent() -> None:
    same(torch.reciprocal, positive(4, 3))
    same(lambda x: torch.rsqrt(x) + 1 / x, positive(4, 3))
    same(lambda x: nnf.batch_norm(x, None, None, training=True), normal(6, 3))
    x = positive(3).requires_grad_()
    g = torch.tensor([0.5, -3.0, 7.0], dtype=torch.float64)
    (slope,) = torch.autograd.grad(gradof.differentiate(torch.reciprocal)(x), x, g)
    torch.testing.assert_close(slope, -g / x.detach() ** 2)


@pytest.mark.parametrize("op", [torch.fmod, torch.remainder], ids=["fmod", "remainder"])
def test_mod_divisor_gradient_where_signs_differ(op: Callable[..., torch.Tensor]) -> None:
    same(lambda x, y: op(x, y) * x, normal(4, 3) * 5, -positive(4, 3))
    x = torch.tensor([-5.3], dtype=torch.float64)
    y = torch.tensor([2.0], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(gradof.differentiate(op)(x, y), y)
    assert slope.item() == (2.0 if op is torch.fmod else 3.0)  # truncated, floored


def test_pad_of_pad_uses_its_own_widths() -> None:
    same(lambda x: nnf.pad(nnf.pad(x, (1, 0, 0, 2)), (2, 3)) ** 2, normal(4, 3))
    same(lambda x: nnf.pad(nnf.pad(x, (-1, 2)), (3, -1, -1, 0)) ** 2, normal(4, 3))


def test_max_keeps_no_count_that_can_go_wrong() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = torch.maximum(x, y)
        return torch.maximum(z, y) * torch.maximum(z, x) + z

    same(f, normal(4, 3), positive(4, 3))
    same(lambda x: torch.maximum(x, x) * x, normal(4, 3))


def test_pow_edges() -> None:
    same(lambda x: torch.pow(x, EDGES.abs().to(x.dtype)), EDGES, order=1)
    same(lambda x, y: torch.pow(x, y), EDGES, EDGES.flip(0) + 2, order=1)


def test_reduced_product_has_a_rule() -> None:
    same(lambda x: x.prod(1), normal(4, 3))
    same(lambda x: x.prod(0), EDGES.reshape(2, 2))


def test_ln2_is_that_of_the_dtype() -> None:
    same(lambda x: torch.exp2(x) + torch.log2(x), positive(4, 3))


# --- RustyASG ------------------------------------------------------------------------------------


def test_R1_broadcasting_is_undone_at_intermediates() -> None:
    same(lambda x: x - x.mean(), normal(4, 3))
    same(lambda x, b, w: ((x * b).reshape(6, 2) @ w).tanh(), normal(4, 3), normal(1, 3),
         normal(2, 3))  # fmt: skip
    x = normal(5).requires_grad_()
    c = normal(5)
    (slope,) = torch.autograd.grad(gradof.differentiate(lambda x: x - x.mean())(x), x, c)
    torch.testing.assert_close(slope, c - c.mean())


def test_R2_a_column_and_a_row_make_a_matrix() -> None:
    same(lambda x, y: (x + y) ** 2, normal(4, 1), normal(1, 3))
    same(lambda x, y: torch.where(x > y, x, y), normal(4, 1), normal(1, 3))


def test_softmax_of_several_rows() -> None:
    same(lambda x: x.softmax(-1), normal(3, 4))
    same(lambda x: x.log_softmax(0), normal(3, 4))


def test_gelu_has_both_terms_of_its_derivative() -> None:
    same(nnf.gelu, normal(4, 3) * 3)
    x = torch.tensor([-1.5, 1.05], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(gradof.differentiate(nnf.gelu)(x).sum(), x)
    assert slope[0] < -0.12 and slope[1] > 1.08


def test_elu_of_a_large_number() -> None:
    same(nnf.elu, torch.tensor([-100.0, 100.0, 1000.0], dtype=torch.float64), order=1)


def test_power_exponent_has_a_gradient() -> None:
    same(torch.pow, positive(4, 3), normal(4, 3))
    same(lambda y: 3.0**y, normal(4, 3))


@pytest.mark.parametrize("channels", [1, 3])
def test_conv_bias_is_summed_per_channel(channels: int) -> None:
    same(lambda x, w, b: nnf.conv2d(x, w, b) ** 2, normal(2, 2, 4, 4), normal(channels, 2, 2, 2),
         normal(channels))  # fmt: skip


SILENT: dict[str, Callable[[Any], torch.Tensor]] = {
    "conv_transpose2d": lambda x: nnf.conv_transpose2d(x, KERNEL.to(x.dtype)) ** 2,
    "adaptive_avg_pool2d": lambda x: nnf.adaptive_avg_pool2d(x, 2) ** 2,
    "variance": lambda x: x.var(1),
    "broadcast": lambda x: x[:, :1].expand(1, 2, 3, 3) ** 2,
    "mean over an axis": lambda x: x.mean(2) ** 2,
    "max_pool2d": lambda x: nnf.max_pool2d(x, 2, 1) ** 2,
    "layer_norm": lambda x: nnf.layer_norm(x, (3,)),
    "batch_norm": lambda x: nnf.batch_norm(x, None, None, training=True),
}


@pytest.mark.parametrize("name", SILENT)
def test_no_silent_zero_to_second_order(name: str) -> None:
    fn = SILENT[name]
    same(fn, normal(1, 2, 3, 3))
    x = normal(1, 2, 3, 3).requires_grad_()
    y = gradof.differentiate(fn)(x)
    (first,) = torch.autograd.grad(y, x, torch.cos(y.detach()) + y.detach(), create_graph=True)
    (second,) = torch.autograd.grad(first, x, torch.cos(x.detach() * 3))
    assert first.abs().max() > 1e-3 and second.abs().max() > 1e-3


def test_embedding_and_dropout_are_no_dead_ends() -> None:
    same(lambda w, i: nnf.dropout(nnf.embedding(i, w), 0.4) ** 2, normal(4, 3), whole(4, 5))


def test_clamp_and_abs_at_their_corners() -> None:
    corners = torch.tensor([-1.0, 0.0, 1.0, 0.5], dtype=torch.float64)
    same(lambda x: x.clamp(-1, 1), corners, order=1)
    same(torch.abs, corners, order=1)
