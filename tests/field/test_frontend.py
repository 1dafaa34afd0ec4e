"""Reports of branches and loops on values, and of assignment into arrays.

Expected numbers are eager's, a closed formula's or finite differences'.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import gradof
from gradof import differentiate
from gradof.errors import DataDependentShapeError, GradofError
from tests.runtime.compare import check

Tensor = torch.Tensor
F64 = torch.float64


def slope_agrees(fn: Callable[[Any], Any], x: Any, seed: int = 0) -> None:
    """The gradient along a random direction is the central difference's."""
    direction = np.random.default_rng(seed).standard_normal(np.shape(x))
    step = 1e-6
    want = (fn(x + step * direction) - fn(x - step * direction)) / (2 * step)
    np.testing.assert_allclose(np.sum(gradof.grad(fn)(x) * direction), want, rtol=1e-7, atol=1e-9)


def _leaf(*values: float) -> Tensor:
    return torch.tensor(values, dtype=F64, requires_grad=True)


# --- branches and loops ---------------------------------------------------------------------------


def test_torchdynamo_96_both_sides_of_a_branch_in_one_function() -> None:
    """The branch not taken at first is traced when it is taken; what is before it is shared."""

    def fn(x: Tensor) -> Tensor:
        h = x.tanh()
        if h.sum() > 0:
            return (h * x).exp().sum()
        return (h - x).pow(2).sum()

    compiled = check(fn, _leaf(0.3, 0.4), order=2)
    for sign in (1.0, -1.0, 1.0, -1.0):
        x = _leaf(0.3 * sign, 0.4)
        y = x.detach().clone().requires_grad_()
        (mine,) = torch.autograd.grad(compiled(x), x)
        (theirs,) = torch.autograd.grad(fn(y), y)
        torch.testing.assert_close(mine, theirs)
    assert compiled.cache_info().misses == 1, "0.3 + 0.4 and 0.4 - 0.3 take one side"
    x = _leaf(-3.0, 0.4)
    (mine,) = torch.autograd.grad(compiled(x), x)
    h = x.detach().tanh()
    torch.testing.assert_close(mine, -2 * (h - x.detach()) * h**2)
    assert compiled.cache_info().misses == 2


def test_pytorch_117807_a_while_loop_with_an_early_return() -> None:
    """Conjugate gradients until the residual is small: two lengths, two traces.

    The matrix is made symmetric inside the function. Where all steps are taken, the gradient is
    the adjoint solve's; where the loop returns early, it is that of the steps taken, as in eager.
    """

    def solve(root: Tensor, b: Tensor) -> Tensor:
        a = root @ root.T + 5 * torch.eye(5, dtype=F64)
        x, r = torch.zeros_like(b), b
        p = r
        for _ in range(len(b)):
            ap = a @ p
            alpha = (r @ r) / (p @ ap)
            x, s = x + alpha * p, r - alpha * ap
            if s.norm() < 1e-10:
                return x
            p, r = s + (s @ s) / (r @ r) * p, s
        return x

    torch.manual_seed(0)
    root = torch.randn(5, 5, dtype=F64, requires_grad=True)
    a = (root @ root.T + 5 * torch.eye(5, dtype=F64)).detach()
    compiled = differentiate(solve)
    eigenvector = torch.linalg.eigh(a)[1][:, 2]
    for b in (torch.randn(5, dtype=F64), eigenvector, root.detach()[0]):
        x, exact = compiled(root, b), torch.linalg.solve(a, b)
        (grad,) = torch.autograd.grad(x.sum(), root)
        torch.testing.assert_close(x.detach(), exact)
        torch.testing.assert_close(grad, torch.autograd.grad(solve(root, b).sum(), root)[0])
        if b is not eigenvector:
            outer = torch.outer(torch.linalg.solve(a, torch.ones(5, dtype=F64)), exact)
            adjoint = -(outer + outer.T) @ root.detach()
            torch.testing.assert_close(grad, adjoint, rtol=1e-6, atol=1e-8)
    assert compiled.cache_info().misses == 2, "an eigenvector is solved in one step"


def test_hips_556_conjugate_gradients_in_numpy_with_a_tolerance() -> None:
    def fn(b: Any) -> Any:
        a = np.diag([2.0, 3.0, 4.0]) + 0.1
        x = np.zeros(3)
        r = b - a @ x
        p = r.copy()
        for _ in range(10):
            alpha = np.dot(p, r) / np.dot(p, a @ p)
            x += alpha * p
            r_ = b - a @ x
            if np.linalg.norm(r_) < 1e-9:
                break
            p = r_ - np.dot(a @ p, r_) / np.dot(p, a @ p) * p
            r = r_
        return np.sum(x**2)

    slope_agrees(fn, np.array([1.0, -2.0, 0.5]))


def test_pytorch_93743_where_the_loop_count_is_a_tensor() -> None:
    """`range(int(n))`: as many steps as the tensor says, one trace for each count."""

    def fn(x: Tensor, n: Tensor) -> Tensor:
        for _ in range(int(n)):
            x = x.sin()
        return x.sum()

    compiled = differentiate(fn)
    for n in (0, 3, 1, 3):
        x = _leaf(0.5, 1.5)
        y = x.detach().clone().requires_grad_()
        (mine,) = torch.autograd.grad(compiled(x, torch.tensor(n)) * 1.0, x)
        (theirs,) = torch.autograd.grad(fn(y, torch.tensor(n)), y)
        torch.testing.assert_close(mine, theirs)
    assert compiled.cache_info().misses == 3


def test_jax_16430_bool_and_or_not_any_all_of_a_traced_array() -> None:
    """Every way of asking an array for its truth takes the side the numbers take."""

    def fn(x: Any) -> Any:
        if (x > 0).all() and not bool((x > 5).any()):
            return np.sum(x**2)
        if (x[0] and x[1]) or x[2] > 0:
            return np.sum(np.exp(x))
        return np.sum(x) * (x[0] or 3.0)

    compiled = gradof.grad(fn)
    for values, want in (([1.0, 2.0, 3.0], [2.0, 4.0, 6.0]),
                         ([6.0, 1.0, 1.0], np.exp([6.0, 1.0, 1.0])),
                         ([1.0, -2.0, 0.0], np.exp([1.0, -2.0, 0.0])),
                         ([-1.0, 0.0, 2.0], np.exp([-1.0, 0.0, 2.0])),
                         ([2.0, 0.0, -1.0], [3.0, 2.0, 2.0]),
                         ([0.0, 1.0, -1.0], [3.0, 3.0, 3.0])):  # fmt: skip
        np.testing.assert_allclose(compiled(np.array(values)), want)


@pytest.mark.parametrize("size", [0, 3])
def test_jax_17650_the_truth_of_several_values_is_numpys_error(size: int) -> None:
    """It is ambiguous with or without tracing: a ValueError, on the user's line."""

    def fn(x: Any) -> Any:
        if x > 0:
            return np.sum(x)
        return 0.0 * np.sum(x)

    said = rf"truth value of an array of shape \({size},\) is ambiguous"
    with pytest.raises(ValueError, match=said) as caught:
        gradof.grad(fn)(np.ones(size))
    assert isinstance(caught.value, GradofError)
    assert f"test_frontend.py:{fn.__code__.co_firstlineno + 1}" in str(caught.value)
    assert "any()" in str(caught.value)


def test_pytorch_156724_nonzero_in_one_side_of_a_branch() -> None:
    """How many places there are is a path; which ones they are is computed at each call."""

    def fn(x: Tensor) -> Tensor:
        if x.sum() > 0:
            return (x[torch.nonzero(x > 0)[:, 0]] ** 2).prod()
        return x.sin().sum()

    compiled = differentiate(fn)
    for values, misses in (((1.0, -0.5, 2.0), 1), ((-0.5, 3.0, 2.0), 1), ((1.0, 2.0, 3.0), 2),
                           ((1.0, -2.0, -3.0), 3), ((3.0, 2.0, -1.0), 3)):  # fmt: skip
        x, y = _leaf(*values), _leaf(*values)
        mine, theirs = compiled(x), fn(y)
        torch.testing.assert_close(mine, theirs)
        torch.testing.assert_close(torch.autograd.grad(mine, x), torch.autograd.grad(theirs, y))
        assert compiled.cache_info().misses == misses


def test_pytorch_156724_a_shape_without_a_rule_is_refused_on_its_line() -> None:
    def fn(x: Tensor) -> Tensor:
        kept: Tensor = torch.unique(x)
        return kept.sum() * x.sum()

    with pytest.raises(DataDependentShapeError, match="unique") as caught:
        differentiate(fn, strict=True)(_leaf(1.0, -1.0))
    assert f"test_frontend.py:{fn.__code__.co_firstlineno + 1}" in str(caught.value)


def test_pytorch_128306_a_threshold_on_rounded_scores() -> None:
    """bfloat16 compared with a Python float: the branch that eager takes."""

    def fn(x: Tensor) -> Tensor:
        if (x > 0.2).sum() > 2:
            return (x.float() * 2).sum()
        return x.float().square().sum()

    scores = torch.tensor([0.1, 0.2002, 0.3, 0.4]).bfloat16()
    assert differentiate(fn)(scores) == fn(scores)


def test_jax_10360_python_scalars_divide_as_numpy_divides() -> None:
    """A float argument is an array in the trace: 1 / 0 behind `where` is no ZeroDivisionError."""

    def fn(x: Any) -> Any:
        return np.where(abs(x) < 1.0, 1.0 / (x - 1.0), 0.0)

    with np.errstate(divide="ignore"):
        assert differentiate(fn)(np.float64(1.0)) == 0.0
        assert math.isclose(differentiate(fn)(np.float64(0.5)), -2.0)


# --- assignment -----------------------------------------------------------------------------------


def test_hips_58_a_block_assigned_into_zeros() -> None:
    """The program of the report, and its expected answer."""

    def fn(a: Any) -> Any:
        b = np.zeros((4, 4))
        b[:2, :2] = a
        return b.sum()

    np.testing.assert_array_equal(gradof.grad(fn)(np.random.default_rng(0).random((2, 2))),
                                  np.ones((2, 2)))  # fmt: skip


def test_hips_177_rows_of_a_result_filled_in_a_loop() -> None:
    def fn(param: Any) -> Any:
        res = np.zeros(5)
        for m in range(5):
            res[m] = np.sum(param[m] * param[0])
        return np.sum(res)

    eta = np.random.default_rng(1).standard_normal((5, 3))
    want = np.tile(eta[0], (5, 1))
    want[0] = eta.sum(0) + eta[0]
    np.testing.assert_allclose(gradof.grad(fn)(eta), want)


def test_hips_375_the_jacobian_of_a_filled_vector() -> None:
    def fn(b: Any) -> Any:
        c = np.zeros(2)
        c[0] = b[0] * b[0]
        c[1] = b[1] * b[0] + b[2]
        return c

    np.testing.assert_array_equal(gradof.jacobian(fn)(np.array([1.0, 2.0, 2.0])),
                                  [[2.0, 0.0, 0.0], [2.0, 1.0, 1.0]])  # fmt: skip


def test_hips_515_a_matrix_of_numbers_and_traced_values() -> None:
    """A camera matrix from parameters and zeros, multiplied with `np.append`ed points."""

    def fn(params: Any) -> Any:
        ku, kv, skew, theta = params
        k = np.array([[ku, skew, 0.5], [0.0, kv, 0.25], [0.0, 0.0, 1.0]])
        c, s = np.cos(theta), np.sin(theta)
        r = np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])
        point = np.append(np.array([0.3, -0.7]), 1.0)
        alpha = np.dot(np.linalg.inv(k), point)
        return np.sum((r @ alpha) ** 3)

    slope_agrees(fn, np.array([1.2, 0.8, 0.1, 0.4]))


def test_hips_559_a_plain_array_that_traced_values_are_written_into() -> None:
    """A copy can be written into, and the closure's own array, which each call writes to again."""
    a, columns = np.ones((7, 7)), np.arange(7.0)

    def fn(b: Any) -> Any:
        a[2:5, 3:6] = b.flatten().reshape((3, 3))
        return np.sum(a * a * columns)

    def of_a_copy(b: Any) -> Any:
        work = a.copy()
        work[2:5, 3:6] = b.flatten().reshape((3, 3))
        return np.sum(work * work * columns)

    def of_zeros(b: Any) -> Any:
        work = np.zeros_like(a) + a
        work[2:5, 3:6] = b.flatten().reshape((3, 3))
        return np.sum(work * work * columns)

    b = 2 * np.ones((3, 3))
    want = 4 * np.tile([3.0, 4.0, 5.0], (3, 1))
    of_the_closure = gradof.grad(fn)
    for scale in (1.0, 0.5):
        np.testing.assert_array_equal(of_the_closure(scale * b), scale * want)
        plain = np.ones((7, 7))
        plain[2:5, 3:6] = scale * b
        np.testing.assert_array_equal(a, plain)
    for accepted, traces in ((of_a_copy, 2), (of_zeros, 1)):
        a[:] = 1.0
        compiled = gradof.value_and_grad(accepted)
        value, grad = compiled(b)
        assert value == 7 * 21.0 + 3 * 12 * 3.0, "ones, of which nine are two"
        np.testing.assert_allclose(grad, want)
        a[:] = 0.0
        value, grad = compiled(b)
        assert value == 3 * 4 * 12.0, "the new table is read"
        np.testing.assert_allclose(grad, want)
        assert compiled.base.cache_info().misses == traces


def test_hips_304_arrays_of_lists_with_a_dtype() -> None:
    def fn(th: Any) -> Any:
        return np.array([[th[0], th[1]], [th[2] * th[3], 1.0]], np.float64)

    got = gradof.jacobian(fn)(np.array([1.0, 2.0, 3.0, 4.0]))
    want = np.zeros((2, 2, 4))
    want[0, 0, 0] = want[0, 1, 1] = 1.0
    want[1, 0, 2:] = [4.0, 3.0]
    np.testing.assert_array_equal(got, want)


def test_jax_2219_masks_integers_and_steps_on_the_left() -> None:
    """`x[mask] = 0`, `x[idx] += v` with repeats, `x[::-2] *= 3`, `x[i, j] = x[j, i]`."""

    def fn(x: Any) -> Any:
        x = x.copy()
        x[x > 1.0] = 0.0
        x[np.array([0, 0, 2]), 1] += 5.0 * x[1, :3]
        x[::-2] *= 3.0
        x[0, 1] = x[1, 0]
        return np.sum(np.sin(x))

    slope_agrees(fn, np.random.default_rng(2).uniform(-1, 2, (3, 4)))
