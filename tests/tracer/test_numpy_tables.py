"""Plain arrays from outside the function that are indexed by traced integers and masks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradof

TABLE = np.arange(12.0).reshape(3, 4) ** 2
X = np.array([0.5, 1.5])


def of_a_global(x: Any) -> Any:
    i = np.floor(x).astype(int)
    return np.sum(TABLE[i, i + 1] * x)


def of_an_argument(x: Any) -> Any:
    def inner(table: Any, i: Any) -> Any:
        return table[i][:, 1]

    return np.sum(inner(TABLE, np.floor(x).astype(int)) * x)


def of_a_default(x: Any, table: Any = TABLE) -> Any:
    i = np.searchsorted(table[0], x)
    return np.sum((table[0][i] - table[0][i - 1]) * x**2)


def of_a_closure() -> Callable[[Any], Any]:
    table = TABLE * 2

    def fn(x: Any) -> Any:
        i = np.floor(x).astype(int)
        left, right = table[i, 0], table[i + 1, 0]
        return np.sum((1 - (x - i)) * left + (x - i) * right)

    return fn


def by_a_mask(x: Any) -> Any:
    return np.sum(TABLE[0, :2][x > 1.0]) * np.sum(x)


def of_the_runs_own_that_changes(x: Any) -> Any:
    table = np.array([1.0, 2.0, 3.0])
    kept = [table]
    i = np.floor(x).astype(int)
    first = table[i] * x
    table[1] = 10.0
    return np.sum(first + table[i] * x**2) * len(kept)


def _slope(fn: Callable[[Any], Any], x: Any) -> Any:
    steps = 1e-6 * np.eye(len(x))
    return np.array([(fn(x + h) - fn(x - h)) / 2e-6 for h in steps])


@pytest.mark.parametrize(
    "fn",
    [of_a_global, of_an_argument, of_a_default, of_a_closure(), by_a_mask,
     of_the_runs_own_that_changes],
)  # fmt: skip
def test_value_and_gradient(fn: Callable[[Any], Any]) -> None:
    compiled = gradof.value_and_grad(fn)
    for x in (X, X[::-1] + 0.25, X):
        value, gradient = compiled(x)
        np.testing.assert_allclose(value, fn(x), rtol=1e-12)
        np.testing.assert_allclose(gradient, _slope(fn, x), rtol=1e-6, atol=1e-6)


def test_a_table_that_changes_is_read_at_each_call() -> None:
    table = TABLE.copy()

    def fn(x: Any) -> Any:
        return np.sum(table[np.floor(x).astype(int), 1] * x)

    slope = gradof.grad(fn)
    np.testing.assert_allclose(slope(X), table[[0, 1], 1])
    table[0, 1] = 100.0
    np.testing.assert_allclose(slope(X), [100.0, table[1, 1]])
    assert slope.cache_info().misses == 1


def test_a_table_of_an_object_may_be_named_first() -> None:
    class Model:
        table = TABLE.copy()
        scale = 2.0

        def scaled(self) -> Any:
            return self.table * self.scale

    model = Model()

    def direct(x: Any) -> Any:
        return np.sum(model.table[np.floor(x).astype(int), 1] * x)

    def named(x: Any) -> Any:
        table = model.table
        return np.sum(table[np.floor(x).astype(int), 1] * x)

    def made(x: Any) -> Any:
        return np.sum(model.scaled()[np.floor(x).astype(int), 1] * x) / 2.0

    slopes = [gradof.grad(fn) for fn in (direct, named, made)]
    for change in (0.0, 7.0, -3.0):
        model.table[0, 1] += change
        for slope in slopes:
            np.testing.assert_allclose(slope(X), model.table[[0, 1], 1])
    model.scale = 4.0
    np.testing.assert_allclose(slopes[2](X), 2.0 * model.table[[0, 1], 1])
