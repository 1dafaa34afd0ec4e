"""Calls of scipy's that are not traced end with one clear error, of ours or of scipy's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import interpolate, linalg, stats

from gradof import differentiate, grad
from gradof.errors import UnsupportedOpError

X = np.linspace(0.0, 1.0, 9)
Y = np.random.default_rng(0).standard_normal(9)

KNOTS = np.array([0.0] * 4 + [1.0] * 4)

REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "knots that are traced": (
        lambda y: interpolate.BSpline(y, Y[:5], 3)(0.5), "knots are traced",
    ),
    "an argument that an adaptor lacks": (
        lambda y: interpolate.CubicSpline(X, y).integrate(0.0, 1.0, extrapolate=False),
        "PPoly.integrate called with these arguments: argument extrapolate",
    ),
    "code in C that says nothing of arrays": (
        lambda t: interpolate.BSpline.design_matrix(t * 0.1 + 0.5, KNOTS, 3).sum(),
        "in scipy.interpolate.design_matrix, a traced array would become",
    ),
    "a function that scipy wraps": (
        lambda y: stats.kendalltau(y, X).statistic, "in scipy.stats.kendalltau, a traced array",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_with_the_line(name: str) -> None:
    fn, said = REFUSED[name]
    with pytest.raises(UnsupportedOpError, match=said) as told:
        grad(fn)(Y)
    assert "test_scipy_refusals.py" in str(told.value)


THEIRS: dict[str, tuple[Callable[[Any], Any], type[Exception]]] = {
    "a keyword that scipy has not": (
        lambda y: interpolate.make_interp_spline(X, y, degree=3)(0.5), TypeError,
    ),
    "a method that scipy has not": (
        lambda y: interpolate.RegularGridInterpolator((X,), y, "steps")([[0.5]])[0], ValueError,
    ),
    "lengths that differ": (lambda y: interpolate.CubicSpline(X[:4], y)(0.5), ValueError),
}  # fmt: skip


@pytest.mark.parametrize("name", THEIRS)
def test_what_scipy_refuses_is_scipys_error(name: str) -> None:
    fn, kind = THEIRS[name]
    with pytest.raises(kind):
        fn(Y)
    with pytest.raises(kind) as told:
        grad(fn)(Y)
    assert not isinstance(told.value, UnsupportedOpError)


def test_memory_that_scipy_may_overwrite_is_read_before() -> None:
    """Branches go by the result, which was computed of what scipy had left of the operands."""
    seen: list[str] = []

    def fn(ab: Any, b: Any) -> Any:
        solved = linalg.solve_banded((1, 1), ab * 1.0, b * 1.0, overwrite_ab=True, overwrite_b=True)
        seen.append("above" if solved[0] > 0.5 else "below")
        return solved * 2.0 if solved[0] > 0.5 else solved

    ab = np.array([[0.0, 1.0, 1.0], [4.0, 4.0, 4.0], [1.0, 1.0, 0.0]])
    b = np.array([4.0, 1.0, 2.0])
    want = fn(ab, b)
    seen.clear()
    np.testing.assert_allclose(differentiate(fn)(ab, b), want, rtol=1e-14)
    assert set(seen) == {"above"}
