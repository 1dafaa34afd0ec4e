"""Loops of which a trace runs a few steps: the others do the same, or run themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradof
from gradof import tuning
from tests.loops.step_programs import NOT_SHORTENED, SHORTENED, Array, N, X


def looked_at(compiled: Any) -> tuple[bool, ...]:
    """Of each loop of the one trace, whether a few steps stood for all."""
    ((entry,),) = compiled.cache.entries.values()
    found: tuple[bool, ...] = entry.traced.loops
    return found


def test_ten_thousand_steps_leave_as_little_as_twenty() -> None:
    def fn(x: Array, us: Array) -> Any:
        total = np.zeros(3)
        for t, u in enumerate(us):
            x = x + 0.01 * np.sin(x) * u
            total = total + us[t] * x
        return np.sum(total)

    compiled = gradof.differentiate(fn)
    sizes = set()
    for length in (20, 50, 10_000):
        us = np.cos(np.arange(length))
        np.testing.assert_allclose(compiled(X, us), fn(X, us), rtol=1e-9)
        sizes.add(sum(1 for _ in compiled.trace(X, us).walk()))
    assert len(sizes) == 1
    assert all(all(e.traced.loops) for found in compiled.cache.entries.values() for e in found)


def unrolled_gradient(fn: Callable[[Array], Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    with monkeypatch.context() as m:
        m.setattr(tuning, "LOOP_LOOKED_AT", 10**9)
        return gradof.value_and_grad(lambda x: fn(x))(X)


@pytest.mark.parametrize("name", SHORTENED)
def test_steps_that_are_alike_are_left_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fn = SHORTENED[name]
    compiled = gradof.value_and_grad(fn)
    value, slope = compiled(X)
    loops = looked_at(compiled.base)
    assert loops and all(loops)
    np.testing.assert_allclose(value, fn(X), rtol=1e-12)
    want = unrolled_gradient(fn, monkeypatch)
    np.testing.assert_allclose(slope, want[1], rtol=1e-10)
    other = X * 0.7
    np.testing.assert_allclose(compiled(other)[0], fn(other), rtol=1e-12)


def test_a_float_that_varies_is_the_same_in_every_step() -> None:
    class Euler:
        def __init__(self, h: float) -> None:
            self.h = h

        def end(self, x: Array, rate: float) -> Any:
            for _ in range(N):
                x = x + self.h * np.sin(x) * (rate / 2)
            return np.sum(x)

    model = Euler(0.1)
    compiled = gradof.differentiate(model.end)
    for model.h, rate in ((0.1, 1.0), (0.1, 3.0), (0.2, 2.0), (0.05, 2.5)):
        np.testing.assert_allclose(compiled(X, rate), model.end(X, rate), rtol=1e-12)
    assert compiled.cache_info().misses == 3
    entries = [entry for found in compiled.cache.entries.values() for entry in found]
    assert all(entry.traced.loops == (True,) for entry in entries)


@pytest.mark.parametrize("name", NOT_SHORTENED)
def test_what_is_not_known_to_be_alike_runs(name: str) -> None:
    fn = NOT_SHORTENED[name]
    compiled = gradof.differentiate(fn)
    value = compiled(X)
    assert not any(looked_at(compiled))
    np.testing.assert_allclose(value, fn(X), rtol=1e-12)


def test_what_steps_say_is_said_by_each(capsys: pytest.CaptureFixture[str]) -> None:
    def fn(x: Array) -> Any:
        for _ in range(N):
            x = np.sin(x) + 0.1
            print("step")
        return np.sum(x)

    compiled = gradof.differentiate(fn)
    for _ in range(3):
        compiled(X)
        assert capsys.readouterr().out == "step\n" * N


def test_numbers_of_steps_are_pythons_in_what_is_returned() -> None:
    def fn(x: Array) -> Any:
        found, keys, pairs = {}, set(), []
        for t in range(N):
            x = np.sin(x) + 0.1
            found[t, "x"] = x
            keys.add(-t)
            pairs.append([t, t + 1])
        return np.sum(x), found, keys, pairs, t

    value, found, keys, pairs, last = gradof.differentiate(fn)(X)
    want = fn(X)
    np.testing.assert_allclose(value, want[0])
    assert list(found) == list(want[1]) and keys == want[2] and pairs == want[3]
    numbers = [last, *keys, *(t for t, _ in found), *(t for pair in pairs for t in pair)]
    assert {type(n) for n in numbers} == {int} and last == N - 1
