"""The pullback of a numpy function reads what the value's run saved."""

# mypy: disable-error-code="attr-defined"
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradof
import gradof.autograd.numpy as agnp
from gradof.autograd.core import make_vjp
from gradof.autograd.extend import defvjp, primitive, vspace
from gradof.autograd.wrap_util import unary_to_nary
from gradof.runtime.once import compiled_once

X = np.array([0.5, 1.0, 2.0])


def test_nothing_is_computed_twice_however_often_it_is_called() -> None:
    """A solve of a sparse system, say; it ran again in each pullback."""
    runs = []

    @primitive
    def solve(x: Any) -> Any:
        runs.append("solve")
        return np.cumsum(x[::-1])[::-1]

    defvjp(solve, lambda ans, x: lambda g: np.cumsum(g))

    def fn(x: Any) -> Any:
        return agnp.sum(solve(agnp.sin(x)) ** 2)

    make_vjp(fn, X)  # traced
    runs.clear()
    pull, _ = make_vjp(fn, X)
    first, again = pull(1.0), pull(3.0)
    assert runs == ["solve"]
    exact = np.cumsum(2 * np.cumsum(np.sin(X)[::-1])[::-1]) * np.cos(X)
    np.testing.assert_allclose(first, exact)
    np.testing.assert_allclose(again, 3 * exact)


def test_the_value_is_the_callers_to_change() -> None:
    x = X.copy()
    value, pullback = gradof.vjp(np.exp, x)
    value[:] = 9.0
    np.testing.assert_allclose(pullback(np.ones(3))[0], np.exp(X))


def test_random_numbers_are_those_of_the_value() -> None:
    def fn(x: Any) -> Any:
        return x * np.random.rand(3)

    np.random.seed(3)
    value, pullback = gradof.vjp(fn, X)
    after = np.random.rand()
    for _ in range(2):
        np.testing.assert_allclose(pullback(np.ones(3))[0], value / X)
    np.random.seed(3)
    assert np.random.rand(4)[3] == after


@pytest.mark.parametrize("argnum", [0, -1])
def test_an_operator_of_one_argument_is_the_functions_own(argnum: int) -> None:
    """Of `unary_to_nary`, which packages make their own Jacobians with: each call was a trace."""

    @unary_to_nary
    def ones_pulled(fun: Any, x: Any) -> Any:
        pull, value = make_vjp(fun, x)
        return pull(vspace(value).ones())

    def fn(x: Any) -> Any:
        return agnp.sin(x) * 2.0

    for k in range(3):
        np.testing.assert_allclose(ones_pulled(fn, argnum)(k * X), 2 * np.cos(k * X))
    held = vars(fn)
    (compiled,) = (compiled_once(entry[1]) for entry in held.values() if type(entry) is tuple)
    assert compiled.cache_info().misses == 1

    def two(x: Any, y: Any, scale: float = 1.0) -> Any:
        return x * y * scale

    np.testing.assert_allclose(ones_pulled(two, 1)(X, X + 1, scale=3.0), 3 * X)
    both = ones_pulled(two, (0, 1))(X, X + 1)
    np.testing.assert_allclose(both, (X + 1, X))
