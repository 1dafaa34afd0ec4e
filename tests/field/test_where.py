"""Section I: NaN from a branch of `where` that is not taken, as reported, in both libraries.

By default the NaN is there, as in eager; `numerics="nan_safe"` has what the double where by hand
has, and where a test can say it, finite differences or a closed formula.
"""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import gradof
from gradof import differentiate

Array = Any


def both(fn: Callable[[Any, Any], Any], x: Array) -> list[tuple[Array, Array]]:
    """(eager-exact, nan_safe) gradients of `fn(library, x)`: of numpy, then of torch."""
    numpy = lambda x: fn(np, x)  # noqa: E731
    found = [(gradof.grad(numpy)(x), gradof.grad(numpy, numerics="nan_safe")(x))]
    pair = []
    tensors = lambda t: fn(torch, t)  # noqa: E731
    for compiled in (differentiate(tensors), differentiate(tensors, numerics="nan_safe")):
        leaf = torch.tensor(x, requires_grad=True)
        (grad,) = torch.autograd.grad(compiled(leaf), leaf)
        assert compiled.cache_info().backward_runs == 1
        pair.append(grad.numpy())
    found.append((pair[0], pair[1]))
    leaf = torch.tensor(x, requires_grad=True)
    (eager,) = torch.autograd.grad(fn(torch, leaf), leaf)
    np.testing.assert_allclose(pair[0], eager.numpy(), rtol=1e-12, atol=1e-14)
    return found


def safe(fn: Callable[[Any, Any], Any], x: Array, want: Array) -> None:
    """nan_safe has `want`; the default has a NaN or an infinity, as eager has."""
    for plain, mended in both(fn, x):
        assert not np.isfinite(plain).all()
        np.testing.assert_allclose(mended, want, rtol=1e-12, atol=1e-14)


def test_jax_347_norms_of_rows_one_of_which_is_zero() -> None:
    def fn(m: Any, x: Any) -> Any:
        norm = m.sqrt((x**2).sum(1))
        return m.where(norm > 0.5, norm, m.ones_like(norm)).sum()

    x = np.array([[1.0, 2.0], [3.0, 4.0], [0.0, 0.0]])
    root = math.sqrt(5)
    safe(fn, x, [[1 / root, 2 / root], [0.6, 0.8], [0.0, 0.0]])


def test_jax_1052_arctan2_of_zeros_that_are_masked() -> None:
    mask = {np: np.array([False, True, False]), torch: torch.tensor([False, True, False])}

    def fn(m: Any, a: Any) -> Any:
        b = m.arctan2(a, 2 * a + a * a)
        return m.where(mask[m], 0.0, b).sum()

    a = np.array([3.0, 0.0, -5.0])
    # arctan2(a, 2a + a^2) = arctan(1 / (2 + a)) up to a constant, of slope -1 / (1 + (2 + a)^2).
    for plain, mended in both(fn, a):  # torch's own rule has zero at the origin, and so has ours
        np.testing.assert_allclose(plain, [-1 / 26, 0.0, -1 / 10], rtol=1e-12)
        np.testing.assert_allclose(mended, [-1 / 26, 0.0, -1 / 10], rtol=1e-12)
    safe(lambda m, a: fn(m, a) + m.where(a == 0, 0.0, a / (a * a)).sum(), a,
         [-1 / 26 - 1 / 9, 0.0, -1 / 10 - 1 / 25])  # fmt: skip


@pytest.mark.parametrize("at", [-1.0, 0.0, 2.0])
def test_jax_5798_a_logarithm_behind_a_guard(at: float) -> None:
    def fn(m: Any, x: Any) -> Any:
        return m.where(x > 0, m.log(x) / x, 0.0 * x).sum()

    want = (1 - math.log(at)) / at**2 if at > 0 else 0.0
    for _, mended in both(fn, np.array([at])):
        np.testing.assert_allclose(mended, [want], rtol=1e-12, atol=0)


def test_jax_19089_second_derivative_of_a_guarded_power() -> None:
    """Second derivatives, where the factor that is infinite is another one."""

    def fn(m: Any, x: Any) -> Any:
        return m.where(x > 0, x**1.5, x**2).sum()

    x = np.array([0.0, 4.0, -1.0])
    hessian = gradof.hessian(lambda x: fn(np, x), numerics="nan_safe")(x)
    np.testing.assert_allclose(hessian, np.diag([2.0, 0.375, 2.0]), rtol=1e-12, atol=1e-14)
    plain = gradof.hessian(lambda x: fn(np, x))(x)
    eager = torch.autograd.functional.hessian(lambda t: fn(torch, t), torch.tensor(x)).numpy()
    np.testing.assert_allclose(np.diag(plain), np.diag(eager), rtol=1e-12)
    assert not np.isfinite(np.diag(plain)).all()


def test_jax_2630_an_infinity_in_the_branch_that_is_not_taken() -> None:
    safe(lambda m, x: m.where(x > 0, 0.0 * x, x * math.inf).sum(), np.array([1.0]), [0.0])


def test_jax_654_pair_distances_with_the_diagonal_masked() -> None:
    """Coulomb energy: the distance of an atom to itself is zero, and masked before and after."""
    keep = 1 - np.eye(4)
    charges = np.array([1.3, 0.3, -0.4, 0.2])
    constants: Any = {
        np: (keep, charges), torch: (torch.tensor(keep), torch.tensor(charges)),
    }  # fmt: skip

    def fn(m: Any, conf: Any) -> Any:
        mask, q = constants[m]
        d = ((conf[None] - conf[:, None]) ** 2).sum(-1) ** 0.5
        qij = q[None] * q[:, None]
        return m.where(mask > 0, qij / d, 0.0).sum()

    def force(conf: Any) -> Any:
        out = np.zeros_like(conf)
        for i in range(4):
            for j in range(4):
                if i != j:
                    r = conf[i] - conf[j]
                    out[i] -= 2 * charges[i] * charges[j] * r / np.linalg.norm(r) ** 3
        return out

    conf = np.random.default_rng(0).standard_normal((4, 3))
    safe(fn, conf, force(conf))


def test_jax_3058_a_norm_at_the_origin() -> None:
    """Written out it is NaN without the guard; `linalg.norm` itself has eager's zero."""

    def fn(m: Any, x: Any) -> Any:
        n = m.sqrt((x * x).sum())
        return m.where(n > 0, n, 0.0)

    safe(fn, np.zeros(3), np.zeros(3))
    for _, mended in both(fn, np.array([3.0, 0.0, 4.0])):
        np.testing.assert_allclose(mended, [0.6, 0.0, 0.8])
    for plain, _ in both(lambda m, x: m.linalg.norm(x), np.zeros(3)):
        np.testing.assert_array_equal(plain, np.zeros(3))


def test_jax_10360_a_pole_that_the_mask_leaves_out() -> None:
    x = np.array([1.0, 0.5, -2.0])
    safe(lambda m, x: m.where(abs(x) < 1.0, 1.0 / (x - 1.0), 0.0).sum(), x, [0.0, -4.0, 0.0])


def test_jax_7440_powers_with_a_fractional_exponent_of_a_negative_base() -> None:
    """`where(x < 0, (-x)**a, x**a)`: each side is NaN where the other is taken."""

    def fn(m: Any, x: Any) -> Any:
        return m.where(x < 0, (-x) ** 0.7, x**0.7).sum()

    safe(fn, np.array([-2.0, 3.0]), [-0.7 * 2**-0.3, 0.7 * 3**-0.3])


def test_jax_faq_the_double_where_by_hand_still_does() -> None:
    """What people wrote instead is finite in both modes, and the same."""

    def fn(m: Any, x: Any) -> Any:
        inner = m.where(x > 0.0, x, 1.0 + 0.0 * x)
        return m.where(x > 0.0, m.log(inner), 0.0 * x).sum()

    for plain, mended in both(fn, np.array([0.0, 2.0])):
        np.testing.assert_array_equal(plain, [0.0, 0.5])
        np.testing.assert_array_equal(mended, [0.0, 0.5])


def test_a_branch_that_is_taken_keeps_its_nan() -> None:
    """nan_safe hides nothing: where the square root is chosen, its infinite slope is the answer."""

    def fn(m: Any, x: Any) -> Any:
        return m.where(x >= 0, m.sqrt(x), 0.0).sum()

    for plain, mended in both(fn, np.array([0.0, 4.0])):
        np.testing.assert_array_equal(plain, [np.inf, 0.25])
        np.testing.assert_array_equal(mended, [np.inf, 0.25])


def test_jax_475_lint_says_which_line_makes_the_nan() -> None:
    """Asked for since 2019: which operation is it, on the user's own line."""

    def fn(x: Any) -> Any:
        r = np.sum(x * x, axis=1)
        depth = np.sqrt(r)
        return np.sum(np.where(r > 0, depth, 0.0))

    (found,) = differentiate(fn).lint(np.zeros((2, 3)))
    first = fn.__code__.co_firstlineno
    text = str(found)
    assert "sqrt" in text and f"test_where.py:{first + 2}" in text
