"""Activations against torch: values, first and second derivatives, kinks, large arguments."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as tf

from gradof import differentiate
from gradof.errors import InferenceError
from gradof.ops.expr import F
from tests.ops.reference import compare, forward, gradient, randn

CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[float, ...]]] = {
    "gelu": (lambda x: F.gelu(x, approximate="none"), tf.gelu, (0.0,)),
    "gelu_tanh": (lambda x: F.gelu(x, approximate="tanh"),
                  lambda x: tf.gelu(x, approximate="tanh"), (0.0,)),
    "silu": (F.silu, tf.silu, (0.0,)),
    "softplus": (lambda x: F.softplus(x, beta=2.0, threshold=3.0),
                 lambda x: tf.softplus(x, 2.0, 3.0), (0.0, 1.5, 30.0, -30.0)),
    "log_sigmoid": (F.log_sigmoid, tf.logsigmoid, (0.0, 90.0, -90.0)),
    "mish": (F.mish, tf.mish, (0.0,)),
    "softsign": (F.softsign, tf.softsign, (0.0,)),
    "tanhshrink": (F.tanhshrink, tf.tanhshrink, (0.0,)),
    "elu": (lambda x: F.elu(x, alpha=1.5, scale=1.0, input_scale=1.0),
            lambda x: tf.elu(x, 1.5), (0.0, 1000.0, -1000.0)),
    "selu": (F.selu, tf.selu, (0.0, 1000.0)),
    # 1/alpha is a power of two: torch rounds it to float32, even for float64
    "celu": (lambda x: F.celu(x, alpha=0.5), lambda x: tf.celu(x, 0.5), (0.0, 1000.0)),
    "leaky_relu": (lambda x: F.leaky_relu(x, negative_slope=0.1),
                   lambda x: tf.leaky_relu(x, 0.1), (0.0,)),
    "hardtanh": (lambda x: F.hardtanh(x, low=-1.0, high=0.5),
                 lambda x: tf.hardtanh(x, -1.0, 0.5), (-1.0, 0.5)),
    "relu6": (F.relu6, tf.relu6, (0.0, 6.0)),
    # torch's own hardsigmoid multiplies a float64 gradient by a 1/6 rounded to float32
    "hardsigmoid": (F.hardsigmoid, lambda x: torch.clamp(x + 3.0, 0.0, 6.0) / 6.0, ()),
    "hardswish": (F.hardswish, tf.hardswish, (-3.0, 3.0, 0.0)),
    "threshold": (lambda x: F.threshold(x, threshold=0.1, value=20.0),
                  lambda x: tf.threshold(x, 0.1, 20.0), (0.1,)),
    "hardshrink": (lambda x: F.hardshrink(x, lambd=0.5),
                   lambda x: tf.hardshrink(x, 0.5), (0.5, -0.5)),
    "softshrink": (lambda x: F.softshrink(x, lambd=0.5),
                   lambda x: tf.softshrink(x, 0.5), (0.5, -0.5)),
    "glu": (lambda x: F.glu(x, dim=0), lambda x: tf.glu(x, 0), ()),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_matches_torch_to_second_order(name: str) -> None:
    build, eager, _ = CASES[name]
    compare(build, eager, randn(6, 5) * 3.0)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case[2]])
def test_kinks_and_large_arguments(name: str) -> None:
    build, eager, points = CASES[name]
    compare(build, eager, np.array(points), order=1)


@pytest.mark.parametrize("name", ["gelu", "silu", "elu", "selu", "celu", "softplus", "mish",
                                  "log_sigmoid"])  # fmt: skip
def test_gradient_stays_finite_far_out(name: str) -> None:
    x = np.array([-700.0, -100.0, -20.0, 20.0, 100.0, 700.0])
    (grad,) = gradient(CASES[name][0], x)
    assert np.isfinite(grad).all()


def test_hardsigmoid_has_no_gradient_at_its_bounds() -> None:
    compare(F.hardsigmoid, tf.hardsigmoid, np.array([-3.0, 3.0, -9.0, 9.0]), order=1)


def test_prelu_takes_the_weight_side_at_zero() -> None:
    compare(F.prelu, lambda x, w: tf.prelu(x, w[0]), randn(4, 3), np.array([[0.25, 0.5, -1.0]]))
    compare(F.prelu, lambda x, w: tf.prelu(x, w), np.array([0.0, 1.0]), np.array([0.3]), order=1)


@pytest.mark.parametrize("name", ["softplus", "log_sigmoid"])
def test_torch_lowering_is_the_same_function(name: str) -> None:
    build, eager, _ = CASES[name]
    compare(build, eager, randn(6, 5) * 3.0, library="torch")


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(InferenceError, match="odd size 3"):
        gradient(lambda x: F.glu(x, dim=1), randn(2, 3))
    with pytest.raises(InferenceError, match="approximate"):
        gradient(lambda x: F.gelu(x, approximate="fast"), randn(2, 3))


def test_softmax_family() -> None:
    x = randn(3, 4, 5) * 30.0
    compare(lambda x: F.softmax(x, dim=1), lambda x: torch.softmax(x, 1), x)
    compare(lambda x: F.log_softmax(x, dim=2), lambda x: torch.log_softmax(x, 2), x)
    for dims, keep in (((0,), True), ((0, 2), False), ((0, 1, 2), False)):
        compare(lambda x, d=dims, k=keep: F.logsumexp(x, dims=d, keepdims=k),
                lambda x, d=dims, k=keep: torch.logsumexp(x, d, k), x)  # fmt: skip


def test_softmax_family_with_masked_rows() -> None:
    x = randn(3, 4)
    x[0, :2] = -np.inf
    for build, eager in (
        (lambda x: F.softmax(x, dim=1), lambda x: torch.softmax(x, 1)),
        (lambda x: F.logsumexp(x, dims=(1,), keepdims=False), lambda x: torch.logsumexp(x, 1)),
    ):
        compare(build, eager, x, order=1)
    x[1] = -np.inf
    x[2, 0] = np.inf
    compare(lambda x: F.softmax(x, dim=1), lambda x: torch.softmax(x, 1), x, order=1)


def test_logsumexp_of_a_masked_row_has_gradient_zero() -> None:
    # exp(x - max) is 0 for every element; torch divides it by itself and gives nan.
    x = np.full((2, 3), -np.inf)
    x[1, 0] = 1.0
    build = partial(F.logsumexp, dims=(1,), keepdims=False)
    assert forward(build, x)[0].tolist() == [-np.inf, 1.0]
    assert gradient(build, x)[0].tolist() == [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]


@pytest.mark.parametrize("fn", [tf.softshrink, tf.hardshrink, tf.relu6])
def test_what_is_cut_off_passes_no_infinite_gradient_on(fn: Any) -> None:
    x = torch.tensor([-0.2, 0.2, -4.0, 0.0, 0.7, math.inf], requires_grad=True)
    for program in (lambda x: torch.sqrt(fn(x)), lambda x: fn(fn(x) / x)):
        found, wanted = (
            torch.autograd.grad(f(x).sum(), x)[0] for f in (differentiate(program), program)
        )
        torch.testing.assert_close(found, wanted, equal_nan=True)


def test_both_derivatives_of_entr_at_and_below_zero() -> None:
    x = torch.tensor([0.55, 0.0, -0.5, math.inf], dtype=torch.float64, requires_grad=True)
    first, second = [], []
    for f in (differentiate(torch.special.entr), torch.special.entr):
        first.append(torch.autograd.grad(f(x).sum(), x, create_graph=True)[0])
        second.append(torch.autograd.grad(first[-1].sum(), x)[0])
    torch.testing.assert_close(*first, equal_nan=True)
    torch.testing.assert_close(*second, equal_nan=True)
