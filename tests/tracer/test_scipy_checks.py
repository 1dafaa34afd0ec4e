"""What scipy checks of values is checked at every call, not only while the function is traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.signal
from scipy.interpolate import (
    BarycentricInterpolator,
    InterpolatedUnivariateSpline,
    RegularGridInterpolator,
    interpn,
)
from scipy.optimize import leastsq, minimize
from scipy.special import lambertw
from scipy.stats import multivariate_normal

from gradof import differentiate, grad

GRID = np.linspace(0.0, 1.0, 5)
VALUES = np.random.default_rng(0).standard_normal(5)
TABLE = np.random.default_rng(1).standard_normal((5, 5))
KEPT = RegularGridInterpolator((GRID,), VALUES)

BOUNDED: dict[str, Callable[[Any], Any]] = {
    "a grid": lambda x: KEPT(x[:, None]),
    "a grid made within": lambda x: RegularGridInterpolator((GRID,), VALUES)(x[:, None]),
    "two dims": lambda x: RegularGridInterpolator((GRID, GRID), TABLE)(np.stack([x * 0.1, x], -1)),
    "interpn": lambda x: interpn((GRID,), VALUES, x[:, None]),
    "ext=2": lambda x: InterpolatedUnivariateSpline(GRID, VALUES, ext=2)(x),
}


@pytest.mark.parametrize("name", BOUNDED)
def test_a_place_that_is_out_of_bounds_is_scipys_error_at_any_call(name: str) -> None:
    function = BOUNDED[name]
    compiled = differentiate(function)
    for x in (np.array([0.1, 0.5]), np.array([0.2, 0.7])):
        np.testing.assert_allclose(compiled(x), function(x), rtol=1e-12)
    for x in (np.array([0.2, 1.6]), np.array([-0.2, 0.6])):
        with pytest.raises(ValueError) as told:
            function(x)
        with pytest.raises(ValueError, match=str(told.value)):
            compiled(x)
    np.testing.assert_allclose(compiled(GRID), function(GRID), rtol=1e-12)


def test_one_number_stands_for_all_of_a_normals_vector() -> None:
    cov = np.array([[2.0, 0.3], [0.3, 1.0]])
    for singular in (False, True):
        def function(x: Any, singular: bool = singular) -> Any:
            return multivariate_normal.logpdf(x[:1], None, cov * x[1], singular)

        x = np.array([0.3, 0.7])
        np.testing.assert_allclose(differentiate(function)(x), function(x), rtol=1e-13)
        slopes = [(function(x + e) - function(x - e)) / 2e-6 for e in 1e-6 * np.eye(2)]
        np.testing.assert_allclose(grad(function)(x), slopes, rtol=1e-7)


def test_the_branch_of_lamberts_w_is_that_of_the_call() -> None:
    compiled = differentiate(lambda z, k: lambertw(z, k[0]).real)
    z = np.array([-0.2, -0.1])
    for k in (0, -1, 0):
        np.testing.assert_allclose(compiled(z, np.array([k])), lambertw(z, k).real)


def test_which_ends_of_bounds_are_equal_is_asked_at_every_call() -> None:
    def least(low: Any) -> Any:
        bounds = [(low[0], 2.0), (low[1], 3.0)]
        return minimize(lambda x: np.sum((x - 1.0) ** 2), np.ones(2), bounds=bounds).x

    compiled = differentiate(least)
    for low in (np.array([1.5, -4.0]), np.array([2.0, 2.5]), np.array([-9.0, -9.0])):
        np.testing.assert_allclose(compiled(low), least(low), atol=1e-6)


def test_a_function_of_scipys_within_what_it_solves() -> None:
    """As statsmodels' ar2arma; the search for what the residuals read meets swapped code."""

    def response(p: Any) -> Any:
        impulse = np.zeros(8)
        impulse[0] = 1.0
        return scipy.signal.lfilter(np.r_[1, p[1:]], np.r_[1, p[:1]], impulse)

    def fitted(a: Any) -> Any:
        return leastsq(lambda p: a - response(p), np.array([0.1, 0.1]))[0]

    a = 0.5 ** np.arange(8.0) + 0.01 * np.arange(8)
    np.testing.assert_allclose(differentiate(fitted)(a), fitted(a), rtol=1e-6)
    slopes = [np.sum(fitted(a + e) - fitted(a - e)) / 2e-4 for e in 1e-4 * np.eye(8)]
    np.testing.assert_allclose(grad(lambda a: np.sum(fitted(a)))(a), slopes, rtol=1e-2, atol=1e-3)


def test_a_polynomial_through_one_point_and_through_points_that_are_the_same() -> None:
    def through(x: Any) -> Any:
        return BarycentricInterpolator(x, x * 0.0 + 2.0)(0.3)

    np.testing.assert_array_equal(differentiate(through)(np.array([0.5])), 2.0)
    compiled = differentiate(through)
    np.testing.assert_allclose(compiled(np.array([0.0, 0.5, 1.0])), 2.0)
    with pytest.raises(ValueError, match="must be distinct"):
        compiled(np.array([0.0, 0.5, 0.5]))


def test_a_grid_that_the_function_makes_and_what_its_interpolator_shows() -> None:
    def fn(v: Any) -> Any:
        made = RegularGridInterpolator((np.arange(5.0),), v, bounds_error=False, fill_value=v[0])
        inside = interpn((np.linspace(0.0, 4.0, 5),), v, np.array([[1.5]]))
        return made(np.array([[1.5], [9.0]])).sum() + made.values[2] * made.fill_value + inside[0]

    for v in (VALUES, VALUES * 3.0):
        np.testing.assert_allclose(differentiate(fn)(v), fn(v), rtol=1e-13)
        slopes = [(fn(v + e) - fn(v - e)) / 2e-6 for e in 1e-6 * np.eye(5)]
        np.testing.assert_allclose(grad(fn)(v), slopes, rtol=1e-6, atol=1e-9)
