"""Reductions and scans: numpy forward, torch gradients to second order, ties, zeros, empty dims."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from gradof.ops.expr import Expr, F
from tests.ops.reference import compare, forward, gradient, randn

ALL_DIMS = [d for n in range(4) for d in itertools.combinations(range(3), n)]
Reduce = Callable[..., Any]


def build(name: str, dims: tuple[int, ...], keep: bool) -> Callable[[Expr], Expr]:
    return lambda x: F.__getattr__(name)(x, dims=dims, keepdims=keep)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("dims", ALL_DIMS, ids=str)
@pytest.mark.parametrize("name", ["sum", "mean", "amax", "amin", "prod"])
def test_gradients(name: str, dims: tuple[int, ...], keep: bool) -> None:
    x = randn(2, 3, 4)
    if name in ("sum", "mean") and dims:
        eager: Reduce = lambda x: getattr(torch, name)(x, dims, keep)  # noqa: E731
    elif name == "prod" or not dims:
        def eager(x: Any) -> Any:
            for d in reversed(dims):
                x = x.prod(d, keepdim=keep)
            return x * 1.0
    else:
        eager = lambda x: getattr(torch, name)(x, dims, keep)  # noqa: E731
    compare(build(name, dims, keep), eager, x)


@pytest.mark.parametrize("dims", ALL_DIMS, ids=str)
@pytest.mark.parametrize("name", ["sum", "mean", "amax", "amin", "prod", "any", "all"])
def test_forward_is_numpys(name: str, dims: tuple[int, ...]) -> None:
    for keep, dtype in itertools.product((False, True), (np.float32, np.float64)):
        x = randn(2, 3, 4).astype(dtype)
        (have,) = forward(build(name, dims, keep), x)
        want = getattr(np, name)(x, axis=dims, keepdims=keep)
        assert have.dtype == want.dtype and have.shape == want.shape
        np.testing.assert_allclose(have, want, rtol=1e-6 if dtype is np.float32 else 1e-14)


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8])
def test_sums_of_integers_stay_in_their_dtype(dtype: Any) -> None:
    x = np.arange(12).reshape(3, 4).astype(dtype)
    for name in ("sum", "prod", "amax", "amin"):
        (have,) = forward(build(name, (1,), False), x)
        np.testing.assert_array_equal(have, getattr(np, name)(x, axis=1, dtype=dtype)
                                      if name in ("sum", "prod") else getattr(np, name)(x, 1))
        assert have.dtype == dtype


@pytest.mark.parametrize("name", ["amax", "amin"])
def test_ties_share_the_gradient(name: str) -> None:
    x = np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0], [-1.0, -5.0, 0.0]])
    for dims in ((0,), (1,), (0, 1)):
        compare(build(name, dims, False), lambda x, d=dims: getattr(torch, name)(x, d), x, order=1)
    assert gradient(build(name, (1,), False), x)[0][1].tolist() == [1 / 3] * 3


@pytest.mark.parametrize("zeros", [0, 1, 2, 3])
def test_the_gradient_of_a_product_is_exact_with_zeros(zeros: int) -> None:
    x = randn(2, 5)
    x[0, :zeros] = 0.0
    compare(build("prod", (1,), False), lambda x: x.prod(1), x)
    compare(build("prod", (0, 1), True), lambda x: x.prod().reshape(1, 1), x)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 8, 9])
def test_exclusive_product(n: int) -> None:
    x = randn(2, n)
    (have,) = forward(F.exclusive_prod, x)
    want = np.array([[np.prod(np.delete(row, i)) for i in range(n)] for row in x]).reshape(2, n)
    np.testing.assert_allclose(have, want, rtol=1e-13)


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_cumsum(dim: int) -> None:
    compare(lambda x: F.cumsum(x, dim=dim), lambda x: torch.cumsum(x, dim), randn(2, 3, 4))
    for dtype in (np.int32, np.float32):
        x = np.arange(24).reshape(2, 3, 4).astype(dtype)
        (have,) = forward(lambda x: F.cumsum(x, dim=dim), x)
        assert have.dtype == dtype
        np.testing.assert_array_equal(have, np.cumsum(x, dim))


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_positions_take_the_first_of_ties(name: str, dim: int, keep: bool) -> None:
    x = np.array([[1.0, 3.0, 3.0], [1.0, 0.0, 3.0]])
    (have,) = forward(lambda x: F.__getattr__(name)(x, dim=dim, keepdims=keep), x)
    want = getattr(np, name)(x, axis=dim, keepdims=keep)
    assert have.dtype == np.int64
    np.testing.assert_array_equal(have, want)


def test_sizes_of_zero() -> None:
    x = np.zeros((0, 3))
    for name, value in (("sum", 0.0), ("prod", 1.0)):
        (have,) = forward(build(name, (0,), False), x)
        assert have.tolist() == [value] * 3
        (grad,) = gradient(build(name, (0,), False), x)
        assert grad.shape == (0, 3)
    with np.errstate(all="ignore"):
        assert np.isnan(forward(build("mean", (0,), False), x)[0]).all()
    for name in ("amax", "amin"):
        assert forward(build(name, (1,), False), x)[0].shape == (0,)
        assert gradient(build(name, (1,), False), x)[0].shape == (0, 3)
    assert forward(build("sum", (), False), np.array(2.5))[0] == 2.5
    assert gradient(build("mean", (), True), np.array(2.5))[0] == 1.0
