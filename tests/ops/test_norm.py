"""Variances, norms and normalisations against torch to second order."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as tf

import gradof
from gradof.ops.expr import Expr, F
from tests.ops.reference import compare, forward, gradient, randn


@pytest.mark.parametrize("name", ["var", "std"])
@pytest.mark.parametrize("correction", [0, 1, 2])
def test_var_and_std(name: str, correction: int) -> None:
    for dims, keep in (((0,), False), ((1, 2), True), ((0, 1, 2), False)):
        compare(
            lambda x, d=dims, k=keep: F.__getattr__(name)(
                x, dims=d, correction=correction, keepdims=k),
            lambda x, d=dims, k=keep: getattr(torch, name)(
                x, dim=d, correction=correction, keepdim=k),
            randn(3, 4, 5),
        )  # fmt: skip


def test_variance_does_not_cancel() -> None:
    x = randn(50).astype(np.float32) + np.float32(1e4)
    (have,) = forward(lambda x: F.var(x, dims=(0,), correction=1, keepdims=False), x)
    want = np.var(x.astype(np.float64), ddof=1)
    assert abs(have - want) <= 1e-5 * want


def test_std_of_equal_elements_has_gradient_zero() -> None:
    compare(lambda x: F.std(x, dims=(1,), correction=1, keepdims=False),
            lambda x: torch.std(x, 1), np.ones((2, 3)), order=1)  # fmt: skip


@pytest.mark.parametrize("p", [2.0, 1.0, 3.0, 0.5, 1.5, math.inf, -math.inf, 0.0, -2.0])
def test_vector_norm(p: float) -> None:
    def build(x: Expr) -> Expr:
        return F.vector_norm(x, ord=p, dims=(1,), keepdims=False)

    def eager(x: torch.Tensor) -> Any:
        return torch.linalg.vector_norm(x, p, dim=1)

    if p == 0.0:
        assert forward(build, np.array([[1.0, 0.0, 2.0]]))[0].tolist() == [2.0]
    else:
        compare(build, eager, randn(4, 5))
    if p > 0:
        (grad,) = gradient(build, np.zeros((2, 3)))
        want = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
        (eager_grad,) = torch.autograd.grad(eager(want).sum(), want)
        np.testing.assert_array_equal(grad, eager_grad.numpy())


def test_layer_norm() -> None:
    compare(
        lambda x: F.layer_norm.multiple(x, dims=(1, 2), eps=1e-5),
        lambda x: torch.native_layer_norm(x, (4, 5), None, None, 1e-5), randn(3, 4, 5), order=1,
    )  # fmt: skip
    compare(lambda x: F.layer_norm.multiple(x, dims=(2,), eps=1e-5)[0],
            lambda x: tf.layer_norm(x, (5,)), randn(3, 4, 5))  # fmt: skip


def test_group_norm() -> None:
    compare(lambda x: F.group_norm.multiple(x, groups=2, eps=1e-5)[0],
            lambda x: tf.group_norm(x, 2), randn(3, 4, 5))  # fmt: skip


def test_rms_norm() -> None:
    compare(lambda x: F.rms_norm.multiple(x, dims=(2,), eps=1e-6)[0],
            lambda x: tf.rms_norm(x, (5,), eps=1e-6), randn(3, 4, 5))  # fmt: skip


@pytest.mark.parametrize("shape", [(6, 3), (3, 4, 5), (2, 3, 4, 4)], ids=str)
def test_batch_norm(shape: tuple[int, ...]) -> None:
    compare(lambda x: F.batch_norm.multiple(x, eps=1e-5)[0],
            lambda x: tf.batch_norm(x, None, None, training=True), randn(*shape))  # fmt: skip
    mean, var = randn(shape[1]), randn(shape[1]) ** 2 + 0.5
    compare(lambda x: F.batch_norm_inference(
                x, *(x.emitter.wrap(x.emitter.body.constant(d)) for d in (_dense(mean), _dense(var)
                )), eps=1e-5),
            lambda x: tf.batch_norm(x, torch.from_numpy(mean), torch.from_numpy(var)),
            randn(*shape))  # fmt: skip


def _dense(array: Any) -> Any:
    from gradof.ir.attrs import Dense

    return Dense.of(array)


@pytest.mark.parametrize("of", [3, 1])  # of a single number, as kernels of one feature have it
@pytest.mark.parametrize("p", [2, 0.5, 1.5, 3])
def test_second_derivatives_of_norms_at_zero_are_torchs(p: float, of: int) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        norm: torch.Tensor = torch.linalg.vector_norm(x, p, dim=1)
        return norm.exp().sum()

    def second(fn: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
        x = torch.tensor([[0.0, 0.0, 0.0], [0.4, 0.2, -0.3]])[:, :of].requires_grad_()
        (g,) = torch.autograd.grad(fn(x), x, create_graph=True)
        (again,) = torch.autograd.grad((g * torch.tensor([1.0, 2.0, -1.0])[:of]).sum(), x)
        return [g, again]

    torch.testing.assert_close(
        second(gradof.differentiate(f)), second(f), equal_nan=True, rtol=1e-4, atol=1e-5
    )
