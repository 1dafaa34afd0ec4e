"""Loops under a memory budget: segments that are computed again, and what that holds at once."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

import gradof
from gradof.autodiff.differentiate import differentiate
from gradof.autodiff.gradient import Gradient
from gradof.ir.loop import Loop, is_loop
from gradof.ir.types import TensorType

Array = np.ndarray[Any, Any]
BUDGETS = [0.7, 0.3, 0.1, 0.0]


def saved_bytes(gradient: Gradient) -> int:
    temporaries = gradient.f.outputs[gradient.f_real_outputs :]
    return sum(v.type.nbytes for v in temporaries if isinstance(v.type, TensorType))


def driven(p: Array, u: Array) -> Any:
    x, total = p, np.zeros_like(p)
    for t in range(len(u)):
        x = np.tanh(x * 0.9 + 0.1 * np.sin(x) * u[t]) + 0.01 * x
        total = total + x * x
    return np.sum(total)


def path(p: Array, u: Array) -> Any:
    x, found = p, np.zeros((len(u), len(p)))
    for t in range(len(u)):
        x = np.cos(x) * u[t] + 0.5 * np.sin(p * x)
        found[t] = x
    return np.sum(found[::3] * found[::3]) + np.sum(x)


def until(p: Array, u: Array) -> Any:
    x = p
    while np.sum(x * x) > 0.05:
        x = np.sin(x) * np.cos(0.1 * x * u[0]) * 0.97
    return np.sum(x * u[1])


@pytest.mark.cases(3)
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("fn", [driven, path, until], ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("steps", [36, 67])
def test_gradients_are_those_without_a_budget(fn: Any, steps: int, budget: float) -> None:
    rng = np.random.default_rng(steps)
    p, u = rng.standard_normal(5), rng.standard_normal((steps, 1))
    lean = gradof.differentiate(fn, memory_budget=budget)
    (value, pull), (want, pull_all) = gradof.vjp(lean, p, u), gradof.vjp(fn, p, u)
    np.testing.assert_allclose(value, want, rtol=1e-12)
    for found, each in zip(pull(np.float64(1.0)), pull_all(np.float64(1.0)), strict=True):
        np.testing.assert_allclose(found, each, rtol=1e-9, atol=1e-12)

    def slope(f: Any) -> Any:
        return gradof.grad(lambda x: np.sum(gradof.grad(f)(x, u) ** 2))(p)

    np.testing.assert_allclose(slope(lean), slope(fn), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("fn", [driven, path], ids=lambda fn: fn.__name__)
def test_saved_bytes_are_within_the_budget_and_fall_with_it(fn: Any) -> None:
    graph = gradof.differentiate(fn).trace(np.ones(100), np.ones((900, 1)))
    whole = saved_bytes(differentiate(graph))
    assert whole > 900 * 100 * 8
    before = whole
    for budget in BUDGETS:
        gradient = differentiate(graph, memory_budget=budget)
        assert saved_bytes(gradient) <= min(before, budget * whole)
        before = saved_bytes(gradient)


def test_segments_are_as_long_as_there_are() -> None:
    graph = gradof.differentiate(driven).trace(np.ones(100), np.ones((900, 1)))
    loops = [n for n in differentiate(graph, memory_budget=0.3).f.nodes() if is_loop(n)]
    assert any(is_loop(n) and Loop(n).steps == 30 for n in loops[0].blocks[0].nodes())


def test_the_peak_falls_with_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADOF_KEPT_MB", "0")
    gradof.release_memory()
    p, u = np.linspace(0.0, 1.0, 40_000), np.ones((225, 1))
    peaks = []
    for budget in (None, 0.3):
        fn = gradof.differentiate(driven, memory_budget=budget)
        for _ in range(2):
            tracemalloc.start()
            gradof.vjp(fn, p, u)[1](np.float64(1.0))
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        peaks.append(peak)
    assert peaks[1] <= 0.3 * peaks[0]
