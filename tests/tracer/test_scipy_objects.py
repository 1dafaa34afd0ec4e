"""Objects of scipy's that hold traced arrays, in functions that solvers call.

A solver runs on numbers: the objects that its function knows are made anew of them, also where
they keep their arrays in slots, or in a form of ours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import integrate, interpolate, optimize, signal, stats
from scipy.spatial.transform import Rotation

from gradof import differentiate, grad

X = np.linspace(0.0, 5.0, 8)
Y = np.array([-2.0, -1.5, -0.7, 0.2, 0.9, 1.1, 2.0, 3.1])
STEPS = np.cos(np.arange(8) * 1.7)
MADE: dict[str, Callable[[Any], Any]] = {
    "interp1d": lambda y: interpolate.interp1d(X, y),
    "interp1d, cubic": lambda y: interpolate.interp1d(X, y, kind="cubic"),
    "CubicSpline": lambda y: interpolate.CubicSpline(X, y),
    "antiderivative": lambda y: interpolate.CubicSpline(X, y).antiderivative(),
    "PchipInterpolator": lambda y: interpolate.PchipInterpolator(X, y),
    "make_interp_spline": lambda y: interpolate.make_interp_spline(X, y),
    "UnivariateSpline": lambda y: interpolate.UnivariateSpline(X, y, s=0),
    "KroghInterpolator": lambda y: interpolate.KroghInterpolator(X, y),
    "grid": lambda y: _of_grid(interpolate.RegularGridInterpolator((X,), y, method="cubic")),
    "Polynomial": lambda y: np.polynomial.Polynomial(y[:4] - 0.4),
    "poly1d": lambda y: np.poly1d(y[:3]),
    "gaussian_kde": lambda y: _of_density(stats.gaussian_kde(y)),
    "frozen": lambda y: _of_frozen(stats.gamma(y[5], scale=y[6])),
}


def _of_grid(grid: Any) -> Callable[[Any], Any]:
    return lambda t: grid(np.reshape(t, (1, 1)))[0]


def _of_density(kde: Any) -> Callable[[Any], Any]:
    return lambda t: kde(np.reshape(t, (1,)))[0]


def _of_frozen(frozen: Any) -> Callable[[Any], Any]:
    return lambda t: frozen.cdf(t)


SOLVERS: dict[str, Callable[[Any], Any]] = {
    "quad": lambda f: integrate.quad(lambda t: f(t) ** 2, 0.5, 4.0, limit=200, epsabs=1e-11)[0],
    "solve_ivp": lambda f: integrate.solve_ivp(
        lambda t, z: [f(t) - z[0]], (0.5, 4.0), [1.0], rtol=1e-10, atol=1e-10
    ).y[0, -1],
    "root": lambda f: optimize.root(lambda t: np.array([f(t[0]) - f(2.2)]), [2.0], tol=1e-12).x[0],
}


@pytest.mark.filterwarnings("ignore::scipy.integrate.IntegrationWarning")
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("made", MADE)
def test_in_a_function_that_a_solver_calls(made: str, solver: str) -> None:
    def solved(y: Any) -> Any:
        return SOLVERS[solver](MADE[made](y)) + 0.0 * y[0]

    assert differentiate(solved)(Y) == pytest.approx(solved(Y), rel=1e-7, abs=1e-7)
    slope = np.sum(grad(solved)(Y) * STEPS)
    difference = (solved(Y + 1e-4 * STEPS) - solved(Y - 1e-4 * STEPS)) / 2e-4
    assert slope == pytest.approx(difference, rel=5e-4, abs=1e-5)  # steps end beside kinks


def test_a_bracket_of_an_interpolation() -> None:
    """As packages find where a profile has half its height."""

    def width(y: Any) -> Any:
        profile = interpolate.interp1d(range(len(y)), y)
        half = (np.max(y) + np.min(y)) / 2
        return optimize.brentq(lambda i: profile(i) - half, 0, len(y) - 1)

    slope = np.sum(grad(width)(Y) * STEPS)
    difference = (width(Y + 1e-6 * STEPS) - width(Y - 1e-6 * STEPS)) / 2e-6
    assert slope == pytest.approx(difference, rel=1e-6)


class _Private:
    __slots__ = ("__dict__", "__weight", "shift")

    def __init__(self, y: Any) -> None:
        self.__weight, self.shift, self.start = y, y * 2.0, y[0]

    def __call__(self, t: Any) -> Any:
        return self.__weight[0] * t + self.shift[1] + self.start


def test_slots_with_private_names() -> None:
    slope = grad(lambda y: integrate.quad(_Private(y), 0.0, 1.0)[0])(np.array([1.0, 2.0]))
    np.testing.assert_allclose(slope, [1.5, 2.0])


TURN = np.array([0.2, 0.4, -0.3, 0.9])
LEFT_AS_THEY_ARE: dict[str, Callable[[Any], Any]] = {
    "quaternions of another length": lambda q: Rotation(2 * q, normalize=False).as_rotvec(),
    "and of a small angle": lambda q: Rotation(2 * q * [1e-4, 1e-4, 0, 1], normalize=False)
    .as_rotvec(),
    "no peaks": lambda q: signal.peak_prominences(q, [])[0],
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT_AS_THEY_ARE)
def test_values_are_scipys(name: str) -> None:
    fn = LEFT_AS_THEY_ARE[name]
    np.testing.assert_allclose(differentiate(fn)(TURN), fn(TURN), rtol=1e-13)


@pytest.mark.parametrize(("at", "fn"), [
    (np.full(4, np.nan), lambda q: Rotation.from_quat(q).as_matrix()),
    (np.eye(2), lambda m: Rotation.from_matrix(m).as_quat()),
    (-np.eye(3), lambda m: Rotation.from_matrix(m).as_quat()),
])  # fmt: skip
def test_what_scipy_refuses(at: Any, fn: Any) -> None:
    with pytest.raises(ValueError, match=r"norm|shape|determinant"):
        fn(at)
    with pytest.raises(ValueError, match=r"norm|shape|determinant"):
        differentiate(fn)(at)
