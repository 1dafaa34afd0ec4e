"""Histograms by weights that are traced: linear in the weights, by bins of their elements."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradof
from gradof.testing import check

_RNG = np.random.default_rng(0)
X: Any
ROWS: Any
X, ROWS, W = _RNG.normal(size=20), _RNG.normal(size=(20, 2)), _RNG.uniform(0.1, 1.0, 20)
ENDS: Any = [-1.0, 0.0, 0.5, 2.0]
MIXED: Any = [3, [-1, 0, 1]]

CASES: dict[str, Callable[[Any], Any]] = {
    "bins": lambda w: np.histogram(X, bins=4, weights=w)[0],
    "ends": lambda w: np.histogram(X, ENDS, weights=w)[0],
    "within": lambda w: np.histogram(X, bins=4, range=(-1, 1), weights=w)[0],
    "density": lambda w: np.histogram(X, bins=4, weights=w, density=True)[0],
    "planes": lambda w: np.histogram(X.reshape(4, 5), 3, weights=w.reshape(4, 5))[0],
    "nothing": lambda w: np.histogram(X[:0], bins=3, weights=w[:0])[0] + w[0],
    "equal numbers": lambda w: np.histogram(np.ones(20), bins=3, weights=w)[0],
    "at ends": lambda w: np.histogram(np.arange(20) % 5, bins=[0, 1, 3, 4], weights=w)[0],
    "in two dims": lambda w: np.histogram2d(ROWS[:, 0], ROWS[:, 1], bins=3, weights=w)[0],
    "two kinds of bins": lambda w: np.histogram2d(
        ROWS[:, 0], ROWS[:, 1], bins=MIXED, weights=w, density=True
    )[0],
    "the same ends": lambda w: np.histogram2d(
        ROWS[:, 0], ROWS[:, 1], bins=ENDS, weights=w
    )[0],
    "rows": lambda w: np.histogramdd(ROWS, bins=(2, 3), weights=w)[0],
    "columns": lambda w: np.histogramdd(
        [ROWS[:, 0], ROWS[:, 1]], bins=2, range=[(-1, 1), (-2, 2)], weights=w, density=True
    )[0],
    "one column": lambda w: np.histogramdd(X, bins=[4], weights=w)[0],
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_of_constant_data(name: str) -> None:
    assert check(lambda w: CASES[name](w) ** 2, (W,), order=2).ok


@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize("bins", [4, ENDS], ids=["bins", "ends"])
def test_of_traced_data(bins: Any, density: bool) -> None:
    def fn(x: Any, w: Any) -> Any:
        return np.histogram(x, bins, weights=w, density=density)[0]

    assert check(fn, (X, W), order=2).ok
    compiled, rng = gradof.differentiate(fn), np.random.default_rng(1)
    for _ in range(3):
        x = rng.normal(size=20)
        np.testing.assert_allclose(compiled(x, W), fn(x, W))


def test_ends_follow_the_data() -> None:
    def fn(x: Any, w: Any) -> Any:
        heights, ends = np.histogram(x, 4, weights=w)
        return np.sum(heights * (ends[1:] + ends[:-1]))

    assert check(fn, (X, W), order=2).ok


@pytest.mark.parametrize(
    "fn",
    [
        lambda w: np.histogram(X, 4, weights=w[1:])[0],
        lambda w: np.histogramdd(ROWS, bins=(2, 3, 4), weights=w)[0],
        lambda w: np.histogramdd(ROWS, bins=2, range=[(0, 1)], weights=w)[0],
        lambda w: np.histogram2d(X, X[1:], weights=w)[0],
        lambda w: np.histogram(X, bins="sturges", weights=w)[0],
    ],
    ids=["weights", "bins", "range", "columns", "a rule"],
)
def test_errors_are_numpys(fn: Callable[[Any], Any]) -> None:
    with pytest.raises((ValueError, TypeError)) as expected:
        fn(W)
    with pytest.raises(Exception, match=re.escape(str(expected.value))):
        gradof.differentiate(fn)(W)


def test_a_path_of_einsum() -> None:
    def fn(a: Any) -> Any:
        path, _ = np.einsum_path("ij,jk,kl", a, a, a, optimize="greedy")
        return np.einsum("ij,jk,kl", a, a, a, optimize=path)

    assert check(fn, (ROWS[:2],), order=2).ok
