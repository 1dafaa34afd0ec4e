"""Histograms of traced data: which bin an element is in has no gradient, what it weighs has.

    np.histogram(y, bins=5)                      numpy's own at each call
    np.histogram(x, edges, weights=w)            w added up by bins; linear in w
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from gradof.tracer.numpy.by_value import run_as_it_is
from gradof.tracer.numpy.functions import as_array, composed
from gradof.tracer.numpy.recorder import contains_traced

Adaptor = Callable[..., Any]


def _by_weights(function: Any) -> Callable[[Adaptor], Adaptor]:
    """Registers what numpy's function is where the weights are traced; it is its own elsewhere."""

    def register(ours: Adaptor) -> Adaptor:
        signature = inspect.signature(ours)

        @composed(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            given = signature.bind(*args, **kwargs).arguments
            by = ours if contains_traced(given.get("weights")) else (
                functools.partial(run_as_it_is, function))  # fmt: skip
            return by(*args, **kwargs)

        return ours

    return register


@_by_weights(np.histogram)
def _histogram(
    a: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None
) -> Any:
    values, shares = np.ravel(as_array(a)), as_array(weights)
    if shares.shape != np.shape(a):
        raise ValueError("weights should have the same shape as a.")
    edges = _edges(values, bins, range)
    heights = _added_up([(values, edges)], np.ravel(shares))
    return (_density(heights, [edges]) if density else heights), edges


@_by_weights(np.histogram2d)
def _histogram2d(
    x: Any, y: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None
) -> Any:
    if len(x) != len(y):
        raise ValueError("x and y must have the same length.")
    if hasattr(bins, "__len__") and len(bins) not in (1, 2):  # one array of edges, for both
        bins = [as_array(bins)] * 2
    heights, edges = np.histogramdd([x, y], bins, range, density, weights)
    return heights, edges[0], edges[1]


@_by_weights(np.histogramdd)
def _histogramdd(
    sample: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None
) -> Any:
    columns = _columns(sample)
    counts = list(bins) if hasattr(bins, "__len__") else [bins] * len(columns)
    if len(counts) != len(columns):
        raise ValueError("The dimension of bins must be equal to the dimension of the sample x.")
    limits = [None] * len(columns) if range is None else list(range)
    if len(limits) != len(columns):
        raise ValueError("range argument must have one entry per dimension")
    edges = tuple(
        _edges(column, n, limit)
        for column, n, limit in zip(columns, counts, limits, strict=True)
    )
    heights = _added_up(list(zip(columns, edges, strict=True)), np.ravel(as_array(weights)))
    return (_density(heights, list(edges)) if density else heights), edges


def _columns(sample: Any) -> list[Any]:
    """One array for each dim: of the rows of an array, or of a list of columns."""
    if isinstance(sample, (list, tuple)):
        return [np.ravel(as_array(column)) for column in sample]
    rows = as_array(sample)
    rows = rows if rows.ndim > 1 else rows[:, None]
    return [rows[:, d] for d in range(rows.shape[1])]


def _edges(values: Any, bins: Any, limits: Any) -> Any:
    """The ends of the bins, which follow the least and the largest element where none are given."""
    if isinstance(bins, str):
        raise TypeError(
            "Automated estimation of the number of bins is not supported for weighted data"
        )
    if not contains_traced((values, bins, limits)):
        return np.histogram_bin_edges(values, bins, limits)
    if np.ndim(bins):
        return as_array(bins)
    least, most = limits or ((np.min(values), np.max(values)) if values.size else (0.0, 1.0))
    if least == most:
        least, most = least - 0.5, most + 0.5
    return np.linspace(least, most, int(bins) + 1)


def _added_up(columns: list[tuple[Any, Any]], weights: Any) -> Any:
    """Weights by the bins of their elements; what is in no bin is left out.

    Each bin is open on the right but for the last, as numpy's are.
    """
    shape = tuple(len(edges) - 1 for _, edges in columns)
    inside, place = True, 0
    for (values, edges), n in zip(columns, shape, strict=True):
        found = np.searchsorted(edges, values, side="right") - 1
        inside = np.logical_and(inside, np.logical_and(values >= edges[0], values <= edges[-1]))
        place = place * n + np.clip(found, 0, n - 1)
    total = np.zeros_like(weights, shape=(int(np.prod(shape)),))
    np.add.at(total, place, np.where(inside, weights, 0))
    return np.reshape(total, shape)


def _density(heights: Any, edges: list[Any]) -> Any:
    total = np.sum(heights)
    for d, ends in enumerate(edges):
        shape = tuple(-1 if i == d else 1 for i in range(len(edges)))
        heights = heights / np.reshape(np.diff(ends), shape)
    return heights / total
