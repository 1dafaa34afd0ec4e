"""numpy.polynomial, and fits, of traced coefficients or points: values, slopes by differences."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.polynomial as npp
import pytest

import gradof

X = np.array([1.1, 2.3, 3.7, 0.53])
T = np.arange(4.0)
FAMILIES = {
    "polynomial": ("poly", npp.Polynomial), "chebyshev": ("cheb", npp.Chebyshev),
    "legendre": ("leg", npp.Legendre), "hermite": ("herm", npp.Hermite),
    "hermite_e": ("herme", npp.HermiteE), "laguerre": ("lag", npp.Laguerre),
}  # fmt: skip
Function = Callable[[Any, Any], Any]  # of the functions of a family, and of coefficients
FUNCTIONS: dict[str, Function] = {
    "add": lambda f, x: f("add")(x, x[:2] ** 2), "sub": lambda f, x: f("sub")(x, x[:2] ** 2),
    "mul": lambda f, x: f("mul")(x, x[:2]), "pow": lambda f, x: f("pow")(x, 3),
    "div": lambda f, x: np.concatenate(f("div")(x, x[:2])), "mulx": lambda f, x: f("mulx")(x),
    "val": lambda f, x: f("val")(x, x**2), "der": lambda f, x: f("der")(x),
    "val2d": lambda f, x: f("val2d")(x, x, np.outer(x, x)),
    "val3d": lambda f, x: f("val3d")(x, x, x, np.einsum("i,j,k->ijk", x, x, x)),
    "grid2d": lambda f, x: f("grid2d")(x, x, np.outer(x, x)), "int": lambda f, x: f("int")(x),
    "roots": lambda f, x: np.abs(f("roots")(x)), "companion": lambda f, x: f("companion")(x),
    "fromroots": lambda f, x: f("fromroots")(x), "line": lambda f, x: f("line")(x[0], x[1]),
    "vander": lambda f, x: f("vander")(x, 3), "fit": lambda f, x: f("fit")(T, x, 2),
    "vander2d": lambda f, x: f("vander2d")(x, x, [1, 2]),
}  # fmt: skip
CLASSES: dict[str, Function] = {
    "sum": lambda c, x: (c(x) + c(x[:2]) - 1).coef, "power": lambda c, x: (c(x) ** 2).coef,
    "product": lambda c, x: (c(x) * c(x[:2]) * x[0]).coef,
    "quotient": lambda c, x: divmod(c(x), c(x[:2]))[0].coef, "value": lambda c, x: c(x)(x),
    "of a series": lambda c, x: c(x)(c(x[:2])).coef,
    "converted": lambda c, x: c(x, domain=[-2, 5]).convert().coef,
    "to powers": lambda c, x: c(x).convert(kind=npp.Polynomial).coef,
    "cast": lambda c, x: npp.Chebyshev.cast(c(x)).coef,
    "derivative": lambda c, x: c(x).deriv(2).coef,
    "integral": lambda c, x: c(x).integ(1, k=[x[0]], lbnd=x[1]).coef,
    "roots": lambda c, x: np.abs(c(x).roots()), "from roots": lambda c, x: c.fromroots(x)(0.3),
    "places": lambda c, x: c(x).linspace(5)[1], "fit": lambda c, x: c.fit(T, x, 2)(0.3),
    "fit of places": lambda c, x: c.fit(x, T**2, 2)(0.3),
    "domain": lambda c, x: c(x, domain=np.array([x.min(), x.max()]))(1.5),
    "cut": lambda c, x: c(x).cutdeg(1).coef, "items": lambda c, x: np.stack(list(c(x))),
}  # fmt: skip


def _check(fn: Callable[[Any], Any], x: Any = X) -> None:
    def weighted(x: Any) -> Any:
        made = fn(x)
        return np.sum(made * np.cos(np.arange(float(np.size(made)))).reshape(np.shape(made)))

    compiled, line, step = gradof.value_and_grad(weighted), np.cos(np.arange(float(x.size))), 1e-6
    line = line.reshape(x.shape)
    for at in (x, x * 1.03):
        value, slope = compiled(at)
        np.testing.assert_allclose(value, weighted(at), rtol=1e-9)
        ends = [weighted(at + s * line) for s in (step, -step)]
        np.testing.assert_allclose(
            np.sum(slope * line), (ends[0] - ends[1]) / (2 * step), rtol=1e-5, atol=1e-6
        )


@pytest.mark.cases(6)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("family", FAMILIES)
def test_functions_of_series(family: str, name: str) -> None:
    module, short = importlib.import_module(f"numpy.polynomial.{family}"), FAMILIES[family][0]
    _check(lambda x: FUNCTIONS[name](lambda function: getattr(module, short + function), x))


@pytest.mark.cases(6)
@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("family", FAMILIES)
def test_series(family: str, name: str) -> None:
    _check(lambda x: CLASSES[name](FAMILIES[family][1], x))


@pytest.mark.parametrize("family", [f for f in FAMILIES if f != "polynomial"])
def test_series_of_powers(family: str) -> None:
    module, short = importlib.import_module(f"numpy.polynomial.{family}"), FAMILIES[family][0]
    _check(getattr(module, f"{short}2poly"))
    _check(getattr(module, f"poly2{short}"))


TWO = np.stack([X, X**2], axis=1)
W = np.array([1.0, 2.0, 0.5, 1.5])
FITS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "covariance": (lambda y: np.polyfit(T, y, 1, cov=True)[1], X),
    "unscaled": (lambda y: np.polyfit(y, T, 1, cov="unscaled")[1], X),
    "weighted": (lambda y: np.polyfit(T, y, 1, w=W, cov=True)[1], X),
    "of several": (lambda y: np.polyfit(T, y, 1, cov=True)[1], TWO),
    "left over": (lambda y: np.polyfit(T, y, 1, rcond=1e-9, full=True)[1], TWO),
}


@pytest.mark.parametrize("name", FITS)
def test_fits_with_what_is_said_of_them(name: str) -> None:
    _check(*FITS[name])


def test_a_fit_says_what_numpy_says() -> None:
    for y in (X, TWO):
        found = gradof.differentiate(lambda y: np.polyfit(T, y, 2, rcond=1e-9, full=True))(y)
        want = np.polyfit(T, y, 2, rcond=1e-9, full=True)
        for a, b in zip(found, want, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-9)
            assert type(a) is type(b) and np.shape(a) == np.shape(b)
    with pytest.raises(ValueError, match="data points must exceed order"):
        gradof.grad(lambda y: np.polyfit(T, y, 3, cov=True)[1].sum())(X)


@pytest.mark.parametrize("axis", [0, 1, -1, None])
def test_complex_numbers_in_order(axis: int | None) -> None:
    """By real parts, and by the others where those are equal; nan stands last."""

    def pairs(x: Any) -> Any:
        return np.stack([x[:4] + 1j * x[4:], x[4:] + 1j * x[:4]])

    for x in (np.array([1.0, 2, 1, 0, 3, 2, 1, 0]), np.array([1.0, np.nan, 1, 0, 3, 2, np.nan, 0])):
        for function in (np.sort, np.argsort):
            found = gradof.differentiate(lambda x, f=function: f(pairs(x), axis=axis))(x)
            np.testing.assert_array_equal(found, function(pairs(x), axis=axis))
    _check(lambda x: np.abs(np.sort(pairs(x), axis=axis)), np.array([1.1, 2, 1.2, 0, 3, 2.5, 1, 4]))
