"""Wrong gradients that candle had: pooling, convolutions, scatters, ties, missing rules."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as nnf

import gradof
from gradof.errors import CotangentError, UnsupportedOpError
from tests.seeds.compare import normal, positive, same, whole

X = torch.arange(36, dtype=torch.float64).reshape(1, 1, 6, 6)


@pytest.mark.parametrize("k", [2, 3])
def test_C1_max_pool_gradient_is_not_scaled(k: int) -> None:
    x = X.clone().requires_grad_()
    y = gradof.differentiate(lambda x: nnf.max_pool2d(x, k))(x)
    g = torch.randn(y.shape, dtype=y.dtype)
    (slope,) = torch.autograd.grad(y, x, g)
    assert torch.equal(slope[0, 0, k - 1 :: k, k - 1 :: k], g[0, 0])  # the whole g, at the maxima
    assert slope.count_nonzero() == g.numel()
    same(lambda x: nnf.max_pool2d(x, k) ** 2, normal(2, 3, 6, 7))


def test_C2_an_intermediate_without_a_gradient_is_no_error() -> None:
    same(lambda x: torch.where(x.exp() > 1, x * x, x.sin()), normal(4, 3))
    same(lambda x: x * x.argmax(1, keepdim=True) + x.sort(0)[1] * x, normal(4, 3))


def test_C3_conv_input_gradient_has_the_size_of_each_side() -> None:
    same(lambda x, w: nnf.conv2d(x, w, stride=2), normal(1, 2, 5, 6), normal(3, 2, 3, 3))
    same(lambda x, w: nnf.conv2d(x, w, stride=2), normal(1, 2, 6, 5), normal(3, 2, 3, 3))


def test_C4_conv_kernel_gradient_where_the_stride_leaves_a_rest() -> None:
    same(lambda x, w: nnf.conv2d(x, w, stride=2), normal(1, 1, 6, 6), normal(1, 1, 3, 3))
    same(lambda x, w: nnf.conv1d(x, w, stride=3), normal(1, 1, 9), normal(2, 1, 2))


def test_C5_avg_pool_gives_dropped_rows_no_gradient() -> None:
    x = normal(1, 1, 5, 5).requires_grad_()
    y = gradof.differentiate(lambda x: nnf.avg_pool2d(x, 2))(x)
    (slope,) = torch.autograd.grad(y, x, torch.ones_like(y))
    assert not slope[..., 4, :].any() and not slope[..., 4].any()
    assert torch.equal(slope[..., :4, :4], torch.full((1, 1, 4, 4), 0.25, dtype=x.dtype))
    same(lambda x: nnf.avg_pool2d(x, 2) ** 2, normal(1, 2, 5, 5))
    same(lambda x: nnf.avg_pool2d(x, 3, 2) ** 2, normal(1, 2, 5, 6))


def test_C6_scatter_overwrites_and_scatter_add_does_not() -> None:
    place = torch.tensor([[1, 0, 2]])
    same(lambda x, s: x.scatter(0, place, s) ** 2, normal(4, 3), normal(1, 3))
    same(lambda x, s: x.scatter_add(0, place, s) ** 2, normal(4, 3), normal(1, 3))
    x, s = normal(4, 3).requires_grad_(), normal(1, 3).requires_grad_()
    y = gradof.differentiate(lambda x, s: x.scatter(0, place, s))(x, s)
    to_x, to_s = torch.autograd.grad(y.sum(), (x, s))
    assert to_x.sum() == 9 and to_s.sum() == 3


def test_C7_upsampling_adds_to_a_gradient_that_is_there() -> None:
    same(lambda x: (x * x).sum() + (nnf.interpolate(x, scale_factor=2) ** 2).sum(),
         normal(1, 2, 3, 3))  # fmt: skip


def test_no_fused_norm_or_softmax_lacks_a_gradient() -> None:
    same(lambda x: x.softmax(-1), normal(4, 3))
    same(lambda x, w: nnf.rms_norm(x, (3,), w), normal(4, 3), normal(3))
    same(lambda x, w, b: nnf.layer_norm(x, (3,), w, b), normal(4, 3), normal(3), positive(3))
    same(nnf.scaled_dot_product_attention, normal(2, 4, 3), normal(2, 4, 3), normal(2, 4, 3))


def test_a_root_that_is_no_scalar_needs_a_cotangent() -> None:
    f = gradof.differentiate(lambda x: x * x)
    with pytest.raises(RuntimeError, match="grad can be implicitly created only for scalar"):
        f(normal(3).requires_grad_()).backward()
    with pytest.raises(gradof.errors.GradofError):
        gradof.grad(lambda x: x * x)(normal(3))
    assert issubclass(CotangentError, ValueError)


def test_ties_of_a_maximum() -> None:
    tied = torch.tensor([[1.0, 2.0, 2.0], [3.0, 3.0, 3.0]], dtype=torch.float64)
    same(lambda x: x.amax(1), tied)
    same(lambda x: x.max(1)[0], tied)
    same(torch.maximum, tied, tied.flip(1))
    same(torch.relu, tied * 0, order=1)
    same(torch.abs, tied * 0, order=1)


def test_cast_gradient_has_the_dtype_of_the_operand() -> None:
    same(lambda x, y: x.float() * y.double().float(), normal(3), normal(3))
    x = normal(3).requires_grad_()
    gradof.differentiate(lambda x: (x.half() * 2).sum())(x).backward()
    assert x.grad is not None and x.grad.dtype == torch.float64


def test_pow_zero_of_zero_has_no_nan() -> None:
    x = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(gradof.differentiate(lambda x: x**0)(x).sum(), x)
    assert torch.equal(slope, torch.zeros(3, dtype=torch.float64))


def test_rules_that_were_missing() -> None:
    x = normal(4, 3)
    same(lambda x: nnf.gelu(x) + nnf.gelu(x, approximate="tanh") + torch.erf(x) + nnf.elu(x), x)
    same(nnf.conv1d, normal(1, 2, 5), normal(3, 2, 2))
    same(nnf.conv_transpose1d, normal(1, 2, 5), normal(2, 3, 2))
    same(nnf.conv_transpose2d, normal(1, 2, 4, 5), normal(2, 3, 2, 3))
    same(lambda x: nnf.interpolate(x, size=7, mode="nearest") ** 2, normal(1, 2, 3))
    same(lambda x: nnf.interpolate(x, size=(7, 5), mode="bilinear") ** 2, normal(1, 2, 3, 4))
    same(lambda x, i: x.index_select(0, i) ** 2, x, whole(4, 6))


def test_elu_and_silu_of_extremes_are_finite() -> None:
    big = torch.tensor([-1000.0, -100.0, 0.0, 100.0, 1000.0], dtype=torch.float64)
    same(nnf.elu, big, order=1)
    same(nnf.silu, big)
    assert issubclass(UnsupportedOpError, gradof.errors.GradofError)
