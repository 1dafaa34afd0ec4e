"""Loops that values end: few traces for any number of steps, and right where there are more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradof
from gradof.ir.loop import Loop, is_loop
from tests.loops.while_programs import OTHERS, ROLLED, STARTS, Array

LINE = np.array([0.3, -0.5, 0.7])


def along(fn: Any, x: Array, by: float) -> Any:
    """The slope of a function along the line, by differences."""
    return (fn(x + by * LINE) - fn(x - by * LINE)) / (2 * by)


def counting_loops(compiled: Any) -> list[int]:
    """Of each trace, how many of its loops count themselves."""
    entries = [entry for found in compiled.cache.entries.values() for entry in found]
    graphs = [entry.traced.recorded or entry.traced.graph for entry in entries]
    return [
        sum(Loop(node).goes_on() is not None for node in graph.nodes() if is_loop(node))
        for graph in graphs
    ]


@pytest.mark.cases(15)
@pytest.mark.parametrize("name", [*ROLLED, *OTHERS])
def test_a_loop_that_a_value_ends_is_right_for_any_number_of_steps(name: str) -> None:
    fn = {**ROLLED, **OTHERS}[name]
    compiled = gradof.value_and_grad(fn)
    for start in STARTS:
        value, slope = compiled(start.copy())
        np.testing.assert_allclose(value, fn(start), rtol=1e-9)
        np.testing.assert_allclose(slope @ LINE, along(fn, start, 1e-6), rtol=1e-5, atol=1e-6)
    if name in ROLLED:
        assert compiled.cache_info().misses <= 4
        assert any(counting_loops(compiled.base))


@pytest.mark.cases(10)
@pytest.mark.parametrize("name", ROLLED)
def test_second_derivatives_through_a_loop_that_a_value_ends(name: str) -> None:
    slope = gradof.grad(ROLLED[name])
    second = gradof.grad(lambda x: np.sum(slope(x) * LINE))
    for start in (STARTS[0], STARTS[4]):
        want = (slope(start + 1e-6 * LINE) - slope(start - 1e-6 * LINE)) / 2e-6
        np.testing.assert_allclose(second(start), want, rtol=1e-4, atol=1e-5)


def test_what_would_overflow_without_a_step_has_no_slope() -> None:
    def f(p: Array) -> Any:
        x = np.sum(p)
        while x < 1.0:
            x = x + 1e-3 * np.sum(np.exp(1e3 * p)) + 0.01
        return x

    slope = gradof.grad(f)
    np.testing.assert_allclose(slope(np.array([1e-3, 2e-3, 0.0])) @ LINE,
                               along(f, np.array([1e-3, 2e-3, 0.0]), 1e-8), rtol=1e-4)  # fmt: skip
    np.testing.assert_array_equal(slope(np.array([3.0, 2.0, 0.0])), 1.0)


def test_what_no_step_computes_has_no_slope() -> None:
    def f(p: Array) -> Any:
        x = np.sum(np.abs(p))
        while x > 0.3:
            x = x * 0.5 + 0.001 * np.log(p[0]) ** 2
        return x

    slope = gradof.grad(f)
    for start in ([0.9, 0.4, 0.6], [0.0, 0.1, 0.1]):  # of which the second takes no step
        x = np.array(start)
        np.testing.assert_allclose(slope(x) @ LINE, along(f, x, 1e-7) if x[0] else 0.2, rtol=1e-5)
    assert slope.cache_info().misses == 1


def test_a_loop_within_a_loop_begins_where_its_range_does() -> None:
    """What steps of a round do holds in another round only where its range is the same."""
    sites = np.random.default_rng(11).standard_normal((5, 3)) * 1.5

    def near(p: Array) -> Any:
        x, total, pull = sites * p[1], 0.0, np.zeros(5)
        for i in range(len(x) - 1):
            for j in range(i + 1, len(x)):
                d = x[i] - x[j]
                r2 = np.dot(d, d)
                if r2 < 4.0:
                    total += p[0] / r2
                    pull[j] -= r2
        return total + pull @ pull

    value, slope = gradof.value_and_grad(near)(LINE)
    np.testing.assert_allclose(value, near(LINE))
    np.testing.assert_allclose(slope @ LINE, along(near, LINE, 1e-6), rtol=1e-6)
