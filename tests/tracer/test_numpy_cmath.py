"""Python's cmath in functions of numpy: values, types, gradients, errors."""

from __future__ import annotations

import cmath
from cmath import sqrt as complex_root
from typing import Any

import numpy as np
import pytest

from gradof import differentiate, grad, value_and_grad

POINTS = (0.3, -0.5, 0.3 + 0.2j, -2.0 - 0.1j)
ONE = (
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "exp", "isfinite", "isinf",
    "isnan", "log", "log10", "phase", "polar", "sin", "sinh", "sqrt", "tan", "tanh",
)  # fmt: skip


def test_every_function_is_there() -> None:
    named = {name for name, f in vars(cmath).items() if callable(f) and name[0] != "_"}
    assert named == {*ONE, "rect", "isclose"}


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("name", ONE)
def test_a_function_of_one_number(name: str, point: complex) -> None:
    function = getattr(cmath, name)
    want, have = function(point), differentiate(lambda z: function(z[0]))(np.array([point]))
    for w, h in zip(*(v if isinstance(v, tuple) else (v,) for v in (want, have)), strict=True):
        assert type(h) is type(w)
        assert h == pytest.approx(w, rel=1e-13)


def test_functions_of_more() -> None:
    x = np.array([0.4, 1.25])
    rect = differentiate(lambda x: cmath.rect(x[0], x[1]))(x)
    assert type(rect) is complex and rect == pytest.approx(cmath.rect(0.4, 1.25))
    log = differentiate(lambda x: cmath.log(x[0], x[1]))(x)
    assert log == pytest.approx(cmath.log(0.4, 1.25))
    assert differentiate(lambda x: cmath.log(x[0], 2.0))(x) == pytest.approx(cmath.log(0.4, 2.0))
    assert differentiate(lambda x: cmath.log(3.0, x[0]))(x) == pytest.approx(cmath.log(3.0, 0.4))
    assert differentiate(lambda x: cmath.isclose(x[0], x[0] + 1e-12))(x) is True
    assert differentiate(lambda x: cmath.isclose(x[0], x[1], rel_tol=0.1))(x) is False


def roots(a: Any, b: Any, c: Any) -> Any:
    root = complex_root(b * b - 4 * a * c)
    return abs((-b + root) / (2 * a)) ** 2 + cmath.phase(-b + root)


@pytest.mark.parametrize("b", [2.0, 5.0])
def test_gradients_of_a_root_that_may_be_complex(b: float) -> None:
    value, slope = value_and_grad(roots)(1.0, b, 3.0)
    assert value == pytest.approx(roots(1.0, b, 3.0), rel=1e-13)
    difference = (roots(1.0 + 1e-6, b, 3.0) - roots(1.0 - 1e-6, b, 3.0)) / 2e-6
    assert slope == pytest.approx(difference, rel=1e-7)
    again = (grad(roots)(1.0 + 1e-6, b, 3.0) - grad(roots)(1.0 - 1e-6, b, 3.0)) / 2e-6
    assert grad(grad(roots))(1.0, b, 3.0) == pytest.approx(again, rel=1e-6)


@pytest.mark.parametrize(("name", "pole"), [("log", 0.0), ("log10", 0.0), ("atanh", 1.0)])
def test_poles_raise_at_the_first_call_and_at_later_ones(name: str, pole: float) -> None:
    compiled = differentiate(lambda x: getattr(cmath, name)(x[0]))
    for at in (pole, 0.5, pole):
        x = np.array([at])
        if at == pole:
            with pytest.raises(ValueError, match="math domain error"):
                compiled(x)
        else:
            assert compiled(x) == pytest.approx(getattr(cmath, name)(at))


def test_a_number_that_varies_is_an_input() -> None:
    def fn(x: Any, k: float) -> Any:
        return x * cmath.phase(k * x[0]) + cmath.log(k).real

    compiled, x = differentiate(fn), np.array([-0.5, 0.2])
    for k in (0.5, 0.7, 0.9, 1.1, 1.3):
        np.testing.assert_allclose(compiled(x, k), fn(x, k), rtol=1e-14)
    assert compiled.cache_info().misses <= 2
