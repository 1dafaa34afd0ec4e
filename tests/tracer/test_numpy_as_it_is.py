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


def _values_that_were_sorted(p: Any, labels: Any, y: Any) -> Any:
    values, inverse = np.unique(np.concatenate([p, p[:1]]), return_inverse=True)
    joined = np.union1d(p, 2.0 * p[:1])
    return np.sum(values * np.arange(3)) + np.sum(p[inverse[:3]] * values) + joined @ joined


@pytest.mark.parametrize("fn", [
    _effects_of_groups, _entropy, _poisson_of_a_histogram, _sets, _values_that_were_sorted,
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


def test_a_gradient_through_edges_is_refused_with_the_line() -> None:
    with pytest.raises(UnsupportedOpError, match=r"numpy.histogram(.|\n)*test_numpy_as_it_is.py"):
        gradof.grad(lambda p: np.sum(np.histogram(p, bins=4)[1]))(P)
