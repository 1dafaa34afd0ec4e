"""Histograms, sets and labels of data, which numpy makes anew at each call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradof
from gradof.errors import UnsupportedOpError

P = np.array([0.3, 0.7, 1.1])


def _effects_of_groups(p: Any, labels: Any, y: Any) -> Any:
    found, inverse = np.unique(labels, return_inverse=True)
    return np.sum((y - p[: len(found)][inverse]) ** 2)


def _entropy(p: Any, labels: Any, y: Any) -> Any:
    found, first, counts = np.unique(labels, return_index=True, return_counts=True)
    return np.sum(counts * np.log(counts) * p[0]) + p[1] * np.sum(found) + np.sum(y[first]) * p[2]


def _poisson_of_a_histogram(p: Any, labels: Any, y: Any) -> Any:
    counts, edges = np.histogram(y, bins=5)
    expected = np.exp(p[0] - p[1] * (0.5 * (edges[1:] + edges[:-1])) ** 2)
    return np.sum(expected - counts * np.log(expected)) * p[2]


def _sets(p: Any, labels: Any, y: Any) -> Any:
    return np.sum(p[np.intersect1d(labels, [1, 2])]) + p[0] * len(np.union1d(labels, [7]))


def _rows_that_are_alike(p: Any, labels: Any, y: Any) -> Any:
    pairs = np.stack([p[labels], 2.0 * p[labels]], axis=1)
    rows, first, counts = np.unique(pairs, axis=0, return_index=True, return_counts=True)
    columns = np.unique(np.stack([p, p, 2.0 * p]), axis=1)
    return np.sum(rows[:, 1] * counts) + p[0] * np.sum(first) + np.sum(columns**2 * np.arange(3))


def _values_that_were_sorted(p: Any, labels: Any, y: Any) -> Any:
    values, inverse = np.unique(np.concatenate([p, p[:1]]), return_inverse=True)
    joined = np.union1d(p, 2.0 * p[:1])
    return np.sum(values * np.arange(3)) + np.sum(p[inverse[:3]] * values) + joined @ joined


@pytest.mark.parametrize("fn", [
    _effects_of_groups, _entropy, _poisson_of_a_histogram, _sets, _values_that_were_sorted,
    _rows_that_are_alike,
])  # fmt: skip
def test_value_and_gradient_for_other_data(fn: Callable[..., Any]) -> None:
    compiled = gradof.value_and_grad(fn)
    rng = np.random.default_rng(0)
    for n in (12, 12, 17, 2, 12):
        data = rng.integers(0, 3, n), rng.normal(size=n)
        value, gradient = compiled(P, *data)
        np.testing.assert_allclose(value, fn(P, *data))
        slope = [(fn(P + d, *data) - fn(P - d, *data)) / 2e-6 for d in np.eye(3) * 1e-6]
        np.testing.assert_allclose(gradient, slope, rtol=1e-6, atol=1e-8)


AS_IT_IS: dict[str, Callable[[Any], Any]] = {
    "histogram2d": lambda y: np.histogram2d(y, y**2, bins=3)[0] ** 2,
    "histogramdd": lambda y: np.histogramdd(np.stack([y, -y], axis=1), bins=2)[0] ** 2,
    "histogram_bin_edges": lambda y: np.histogram_bin_edges(y, bins=3),
    "setdiff1d": lambda y: np.setdiff1d(np.round(y), [0.0, 1.0]),
    "setxor1d": lambda y: np.setxor1d(np.round(y), [0.0, 5.0]),
    "unique_all": lambda y: np.unique_all(np.round(y)).counts ** 2,
    "unique_counts": lambda y: np.unique_counts(np.round(y))[1] ** 2,
    "unique_inverse": lambda y: np.unique_inverse(np.round(y))[1],
}


@pytest.mark.parametrize("name", AS_IT_IS)
def test_numpys_own_result_for_other_data(name: str) -> None:
    def fn(p: Any, y: Any) -> Any:
        return p[0] * np.sum(AS_IT_IS[name](y)) + p[1]

    compiled, rng = gradof.value_and_grad(fn), np.random.default_rng(1)
    for n in (9, 9, 14):
        y = rng.normal(size=n)
        value, gradient = compiled(P, y)
        np.testing.assert_allclose(value, fn(P, y))
        np.testing.assert_allclose(gradient, [np.sum(AS_IT_IS[name](y)), 1.0, 0.0])


def test_a_gradient_through_edges_is_refused_with_the_line() -> None:
    with pytest.raises(UnsupportedOpError, match=r"numpy.histogram(.|\n)*test_numpy_as_it_is.py"):
        gradof.grad(lambda p: np.sum(np.histogram(p, bins=4)[1]))(P)
