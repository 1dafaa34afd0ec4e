"""Optima whose derivatives are known: with bounds, constraints, robust losses, whole solutions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import scipy.signal
from scipy.optimize import LinearConstraint, linear_sum_assignment

import gradof
from gradof.errors import OutputError, UnsupportedOpError

T = np.linspace(0.0, 2.0, 9)
X = np.array([0.7, 1.3])


def test_a_fit_without_noise_gives_back_what_made_the_data() -> None:
    def fitted(x: Any) -> Any:
        data = x[0] * np.exp(-x[1] * T)
        found, _ = scipy.optimize.curve_fit(lambda t, a, b: a * np.exp(-b * t), T, data)
        least = scipy.optimize.least_squares(lambda p: p[0] * np.exp(-p[1] * T) - data, [1.0, 1.0])
        assert least.success
        return np.concatenate([found, least.x])

    want = np.concatenate([np.eye(2), np.eye(2)])
    np.testing.assert_allclose(gradof.jacobian(fitted)(X), want, atol=1e-8)
    curved = gradof.hessian(lambda x: np.sum(fitted(x) ** 2))(X)
    np.testing.assert_allclose(curved, 4 * np.eye(2), atol=1e-6)


def test_a_fit_is_made_again_for_other_data() -> None:
    def slope(y: Any) -> Any:
        return scipy.optimize.curve_fit(lambda t, a, b: a + b * t, T, y)[0][1]

    compiled = gradof.value_and_grad(slope)
    centred = T - T.mean()
    for y in (T * 2.0 + np.sin(9 * T), T * -1.0 + np.cos(7 * T)):
        value, gradient = compiled(y)
        np.testing.assert_allclose(value, centred @ y / (centred @ centred), rtol=1e-8)
        np.testing.assert_allclose(gradient, centred / (centred @ centred), atol=1e-9)
    assert compiled.cache_info().misses == 1


def test_a_bound_that_holds_moves_the_minimum_with_it() -> None:
    def place(b: Any) -> Any:
        cost = lambda v: np.sum((v - 2.0) ** 2)  # noqa: E731
        return scipy.optimize.minimize(cost, np.zeros(2), bounds=[(None, b[0]), (None, b[1])]).x

    # the second bound does not hold: its minimum stays
    slope = gradof.jacobian(place)(np.array([0.5, 9.0]))
    np.testing.assert_allclose(slope, [[1.0, 0.0], [0.0, 0.0]], atol=1e-7)


def test_a_projection_onto_a_simplex() -> None:
    def projected(x: Any) -> Any:
        cost = lambda v: 0.5 * np.sum((v - x) ** 2)  # noqa: E731
        rows = LinearConstraint(np.ones((1, 3)), 1.0, 1.0)
        found = scipy.optimize.minimize(
            cost, np.ones(3) / 3, bounds=[(0.0, None)] * 3, constraints=rows, method="SLSQP",
            options={"ftol": 1e-14},
        )  # fmt: skip
        return found.x

    # two numbers stay above zero, and share what is left of one
    slope = gradof.jacobian(projected)(np.array([0.9, 0.6, -0.8]))
    want = np.array([[0.5, -0.5, 0.0], [-0.5, 0.5, 0.0], [0.0, 0.0, 0.0]])
    np.testing.assert_allclose(slope, want, atol=1e-7)


def test_the_multipliers_are_the_gradient_of_a_linear_program() -> None:
    def least(b: Any) -> Any:
        rows = np.array([[1.0, 1.0], [1.0, 3.0]])
        return scipy.optimize.linprog([-1.0, -2.0], A_ub=rows, b_ub=b).fun

    value, slope = gradof.value_and_grad(least)(np.array([4.0, 6.0]))
    np.testing.assert_allclose(value, -5.0)
    np.testing.assert_allclose(slope, [-0.5, -0.5], atol=1e-9)


def test_an_assignment_is_made_again_for_other_costs() -> None:
    def cost(c: Any) -> Any:
        rows, columns = linear_sum_assignment(c)
        again = scipy.optimize.linear_sum_assignment(c, maximize=True)
        return c[rows, columns].sum() + 10.0 * c[again].sum()

    compiled = gradof.value_and_grad(cost)
    for c in (np.array([[1.0, 2.0], [3.0, 1.0]]), np.array([[5.0, 2.0], [3.0, 1.5]])):
        value, slope = compiled(c)
        np.testing.assert_allclose(value, cost(c))
        least = np.eye(2) if c[0, 0] == 1.0 else np.eye(2)[::-1]
        np.testing.assert_allclose(slope, least + 10.0 * (1.0 - least))
    assert linear_sum_assignment is scipy.optimize.linear_sum_assignment


def test_a_result_has_counts_and_says_what_has_no_derivative() -> None:
    def fn(x: Any) -> Any:
        found = scipy.optimize.minimize(lambda v: np.sum((v - x) ** 2), np.zeros(2))
        assert found.success and found.nit > 0, found.message
        return np.sum(found.x) + found.fun

    np.testing.assert_allclose(gradof.grad(fn)(X), [1.0, 1.0], atol=1e-6)

    def spread(x: Any) -> Any:
        return np.sum(
            scipy.optimize.minimize(lambda v: np.sum((v - x) ** 2), np.zeros(2)).hess_inv
        )

    with pytest.raises(UnsupportedOpError, match="hess_inv of the result of") as caught:
        gradof.grad(spread)(X)
    assert "test_scipy_optima.py" in str(caught.value)


def test_a_result_is_of_scipys_class_and_can_be_printed() -> None:
    def fn(x: Any) -> Any:
        return scipy.optimize.minimize(lambda v: np.sum((v - x) ** 2), np.zeros(2))

    found, want = gradof.differentiate(fn)(X), fn(X)
    assert type(found) is type(want) and not hasattr(found, "shape")
    assert "message: Optimization terminated successfully." in repr(found)
    assert found.nfev == want.nfev and found.success
    np.testing.assert_allclose(found.x, want.x)


PEAKS: dict[str, dict[str, Any]] = {
    "none": {}, "height": {"height": -9.0}, "threshold": {"threshold": 0.1},
    "prominence": {"prominence": 0.2, "wlen": 9}, "plateau": {"plateau_size": 1, "height": 0.0},
    "width": {"width": 0, "rel_height": 0.8}, "all": {
        "plateau_size": (1, 9), "width": (0, 50), "threshold": 0.0, "height": (-9, 90)},
}  # fmt: skip


@pytest.mark.parametrize("name", PEAKS)
def test_what_find_peaks_tells_of_peaks(name: str) -> None:
    x = np.random.default_rng(0).standard_normal(60).cumsum()

    def told(x: Any) -> Any:
        return scipy.signal.find_peaks(x, **PEAKS[name])

    (at, have), (places, want) = gradof.differentiate(told)(x), told(x)
    assert np.array_equal(at, places) and type(have) is dict and list(have) == list(want)
    for key in want:
        assert have[key].dtype == want[key].dtype
        np.testing.assert_allclose(have[key], want[key])

    def total(x: Any) -> Any:
        at, found = told(x)
        floats = [part for part in found.values() if part.dtype.kind == "f"]
        return sum((part * np.arange(1, len(at) + 1)).sum() for part in floats) + 0.0 * x.sum()

    slope, step = gradof.grad(total)(x), 1e-6
    differences = [(total(x + h) - total(x - h)) / (2 * step) for h in step * np.eye(60)]
    np.testing.assert_allclose(slope, differences, atol=1e-5)


@pytest.mark.parametrize("a", [1.0, 0.3, -1.7, 1e6])
def test_parameters_that_do_the_same_have_no_derivative(a: float) -> None:
    def fn(x: Any) -> Any:
        found = scipy.optimize.least_squares(lambda p: (p[0] + a * p[1]) * T - x[0] * T, [1.0, 1.0])
        return np.sum(found.x)

    # by differences its Jacobian is not exactly singular
    with pytest.raises(OutputError, match="least_squares: the solution is not the only one"):
        gradof.grad(fn)(X)


def test_units_of_parameters_are_free() -> None:
    def rate(y: Any) -> Any:
        t = T * 1e3
        return scipy.optimize.curve_fit(
            lambda t, a, b, c: a * np.exp(-b * t) + c, t, y, p0=[9e5, 9e-4, 1e2]
        )[0][1]

    y = 1e6 * np.exp(-T) + 1e3
    step = np.where(np.arange(9) == 4, 10.0, 0.0)
    want = (rate(y + step) - rate(y - step)) / 20.0
    np.testing.assert_allclose(gradof.grad(rate)(y)[4], want, rtol=1e-4)


def _with_slopes(p: Any) -> Any:
    found = scipy.optimize.minimize(
        _cost, np.zeros(2), (np.exp(p[0]),), "Newton-CG", jac=gradof.grad(_cost),
        hess=gradof.hessian(_cost), options={"xtol": 1e-12},
    )  # fmt: skip
    return np.sum(found.x**2) + found.fun


def _with_slopes_of_closures(p: Any) -> Any:
    def cost(b: Any) -> Any:
        return _cost(b, np.exp(p[0]))

    slope = gradof.grad(cost)
    found = scipy.optimize.minimize(cost, np.zeros(2), jac=slope, options={"gtol": 1e-10})
    return np.sum(found.x**2)


def _by_a_root_of_the_slope(p: Any) -> Any:
    slope = gradof.grad(_cost)
    return np.sum(scipy.optimize.root(lambda b: slope(b, np.exp(p[0])), np.zeros(2)).x ** 2)


def _by_residuals(p: Any) -> Any:
    def left(b: Any) -> Any:
        return np.concatenate([p[0] * b - 1.0, b**3 - p[0]])

    exact = {"ftol": 1e-15, "xtol": 1e-15, "gtol": 1e-15}
    found = scipy.optimize.least_squares(left, np.ones(2), jac=gradof.jacobian(left), **exact)
    return np.sum(found.x**2)


def _cost(b: Any, weight: Any) -> Any:
    return np.sum(np.log1p(np.exp(b * np.array([1.0, -2.0])))) + weight * np.sum((b - 0.3) ** 2)


@pytest.mark.parametrize(
    "fn", [_with_slopes, _with_slopes_of_closures, _by_a_root_of_the_slope, _by_residuals]
)
def test_slopes_may_be_compiled_ones(fn: Callable[[Any], Any]) -> None:
    compiled = gradof.value_and_grad(fn)
    for p in (np.array([0.7]), np.array([0.9]), np.array([0.7])):
        value, slope = compiled(p)
        np.testing.assert_allclose(value, fn(p), rtol=1e-10)
        difference = (fn(p + 1e-4) - fn(p - 1e-4)) / 2e-4
        np.testing.assert_allclose(slope, [difference], rtol=1e-5)
    assert compiled.cache_info().misses == 1
