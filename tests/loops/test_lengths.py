"""Calls that differ in lengths alone: two traces, and one native function for all further ones."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from types import FunctionType
from typing import Any

import numpy as np
import pytest

import gradof
from tests.loops import programs
from tests.loops.length_programs import (
    ANY_LENGTH,
    FLOATS,
    OTHER_FLOATS,
    OTHERS,
    Array,
    P,
    smooth,
    values,
)

FIRST = (40, 57)  # of which the traces are
LATER = (500, 16, 1000, 17, 64, 999, 33, 128, 41)
SHORT = (8, 3, 1, 0, 2)


def anew(fn: Any, *args: Any) -> Any:
    """Value and gradient from a trace of this length."""
    copy = FunctionType(fn.__code__, fn.__globals__, fn.__name__, None, fn.__closure__)
    return gradof.value_and_grad(copy)(*args)


def outcome(fn: Any, *args: Any) -> Any:
    """A result, or the kind of error."""
    try:
        return fn(*args)
    except Exception as error:
        return type(error)


def check(fn: Any, compiled: Any, *args: Any) -> None:
    """As plain numpy, and bit by bit as from a trace of its own."""
    found, want = outcome(compiled, *args), outcome(anew, fn, *args)
    if isinstance(want, type):
        assert found is want
        return
    np.testing.assert_allclose(found[0], fn(*args), rtol=1e-9)
    np.testing.assert_allclose(found[0], want[0], rtol=1e-13)
    np.testing.assert_allclose(found[1], want[1], rtol=1e-11, atol=1e-14)


def check_numbers(fn: Any, compiled: Any, p: Array, obs: Array) -> None:
    """As plain numpy, and its differences along a line."""
    value, slope = compiled(p, obs)
    line, step = np.array([0.6, -0.8]), 1e-5
    ends = [fn(p + line * s, obs) for s in (2 * step, step, -step, -2 * step)]
    want = (8 * (ends[1] - ends[2]) - (ends[0] - ends[3])) / (12 * step)
    np.testing.assert_allclose(value, fn(p, obs), rtol=1e-9)
    np.testing.assert_allclose(slope @ line, want, rtol=1e-6, atol=1e-8 * max(1.0, abs(value)))


@pytest.mark.cases(4)
@pytest.mark.parametrize("name", ANY_LENGTH)
def test_two_traces_serve_every_length(name: str) -> None:
    fn = ANY_LENGTH[name]
    compiled = gradof.value_and_grad(fn)
    for n in (*FIRST, *LATER):
        check_numbers(fn, compiled, P, values(n))
    assert compiled.cache_info().misses == 2
    assert compiled.cache_info().hits == len(LATER)
    check(fn, compiled, P, values(LATER[0]))


@pytest.mark.cases(4)
@pytest.mark.parametrize("name", FLOATS)
def test_floats_that_follow_from_a_length_are_of_the_graph(name: str) -> None:
    fn = FLOATS[name]
    compiled = gradof.value_and_grad(fn)
    for n in (*FIRST, 70, *LATER):
        check_numbers(fn, compiled, P, values(n))
    assert compiled.cache_info().misses == 3  # the first did not know that the length varies
    check(fn, compiled, P, values(LATER[0]))


@pytest.mark.parametrize("fn", [ANY_LENGTH["smooth"], ANY_LENGTH["written_per_step"]])
def test_second_derivatives_are_of_any_length(fn: Any) -> None:
    def other(p: Array, obs: Array) -> Any:
        return fn(p, obs)

    rng = np.random.default_rng(5)
    for n in (*FIRST, 700, 19):
        obs, v = values(n), (rng.normal(size=2), rng.normal(size=n))
        found = gradof.hvp(fn, (P, obs), v)
        for a, b in zip(found, gradof.hvp(FunctionType(fn.__code__, fn.__globals__), (P, obs), v),
                        strict=True):  # fmt: skip
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)
    info = gradof.grad(fn).cache_info()
    assert info.misses == 2


@pytest.mark.cases(4)
@pytest.mark.parametrize(
    "fn", [*ANY_LENGTH.values(), *OTHERS.values(), *FLOATS.values(), *OTHER_FLOATS.values()]
)
def test_a_short_sequence_is_what_python_makes_of_it(fn: Any) -> None:
    compiled = gradof.value_and_grad(fn)
    with np.errstate(all="ignore"):
        for n in (*FIRST, *SHORT):
            check(fn, compiled, P, values(n))


@pytest.mark.cases(4)
@pytest.mark.parametrize("name", [*OTHERS, *OTHER_FLOATS])
def test_what_looks_at_its_length_is_never_wrong(name: str) -> None:
    fn = {**OTHERS, **OTHER_FLOATS}[name]
    compiled = gradof.value_and_grad(fn)
    for n in (20, 33, 500, 41, 51, 40, 65, 64, 71, 30, 20, 52, 55):
        check(fn, compiled, P, values(n))


@pytest.mark.parametrize("name", ["hmm", "kalman", "garch", "rnn"])
def test_programs_that_are_measured(name: str) -> None:
    made = {n: getattr(programs, name)(n) for n in (60, 83, 400, 31)}
    loss, whole = made[60].loss, made[60].arguments
    compiled = gradof.value_and_grad(loss)
    for program in made.values():
        check(loss, compiled, *whole[:-1], program.arguments[-1])
    assert compiled.cache_info().misses == 2


def test_whole_numbers_are_lengths() -> None:
    def fn(p: Array, steps: int, obs: Array, *, lag: int) -> Any:
        path = np.zeros((steps + 1, 2)) + p
        for t in range(lag, steps):
            path[t + 1] = path[t] * p + obs[t] * np.sin(path[t])
        return np.sum(path) / steps + path[steps, 0] * len(obs)

    compiled = gradof.value_and_grad(lambda p, n, obs: fn(p, n, obs, lag=1))
    for n in (*FIRST, *LATER):
        value, _ = compiled(P, n, values(n))
        np.testing.assert_allclose(value, fn(P, n, values(n), lag=1), rtol=1e-9)
    assert compiled.cache_info().misses == 2
    other = gradof.value_and_grad(fn)
    for n, lag in ((40, 2), (57, 2), (300, 2), (64, 2), (64, 3), (300, 4), (31, 2)):
        value, slope = other(P, n, values(400), lag=lag)
        np.testing.assert_allclose(value, fn(P, n, values(400), lag=lag), rtol=1e-9)
        line, step = np.array([0.6, -0.8]), 1e-6
        ends = [fn(P + s * line, n, values(400), lag=lag) for s in (step, -step)]
        np.testing.assert_allclose(slope @ line, (ends[0] - ends[1]) / (2 * step), rtol=1e-5)
    with pytest.raises(IndexError):
        other(P, 500, values(400), lag=2)


def test_whole_numbers_that_are_looked_at_are_constants() -> None:
    def fn(p: Array, n: int) -> Any:
        s = p[0] * 0.0
        for _ in range(n):
            s = s * p[0] + p[1]
        return s * n if n < 60 else s / 2**n

    compiled = gradof.value_and_grad(fn)
    for n in (40, 57, 80, 30, 100, 61, 59, 60, 8, 1):
        assert compiled(P, n)[0] == pytest.approx(fn(P, n))


def test_two_lengths_are_two() -> None:
    def fn(p: Array, a: Array, d: dict[str, list[Array]]) -> Any:
        (b,) = d["b"]
        s = 0.0
        for z in a:
            s = s * p[0] + z
        for z in b:
            s = s * p[1] + np.sin(z) @ p
        return s * len(a) - len(b)

    compiled = gradof.value_and_grad(fn)
    for n, m in ((40, 50), (57, 61), (500, 17), (20, 20), (64, 300)):
        args = P, values(n), {"b": [values(m, 2)]}
        check(fn, compiled, *args)
    assert compiled.cache_info().misses == 2


def test_lengths_that_were_the_same_are_one_until_they_differ() -> None:
    def fn(p: Array, a: Array, b: Array) -> Any:
        s = 0.0
        for x in a:
            s = s * p[0] + x
        for y in b:
            s = s * p[1] + np.cos(y)
        return s

    compiled = gradof.value_and_grad(fn)
    for n, m in ((40, 40), (57, 57), (500, 500), (64, 300), (33, 44), (90, 90)):
        check(fn, compiled, P, values(n), values(m))


def test_arrays_that_are_no_rows_and_places_out_of_range() -> None:
    def fn(p: Array, obs: Array, places: Array) -> Any:
        s = 0.0
        for z in obs[places]:
            s = s * p[0] + z * p[1]
        return s

    compiled = gradof.value_and_grad(fn)
    for n in (*FIRST, 90, 300):
        check(fn, compiled, P, values(30), np.arange(n) % 30)
        check(fn, compiled, P, values(60)[::2], np.arange(2 * n)[::-2] % 30)
    assert compiled.cache_info().misses == 2
    with pytest.raises(IndexError):
        compiled(P, values(30), np.arange(100))
    check(fn, compiled, P, values(30), np.arange(100) % 30)


def test_values_and_results_of_that_length() -> None:
    @gradof.differentiate
    def path(p: Array, obs: Array) -> Any:
        x = np.zeros(len(obs))
        for t in range(1, len(obs)):
            x[t] = x[t - 1] * p[0] + obs[t]
        return {"x": x, "last": x[-1]}

    for n in (*FIRST, *LATER):
        found = path(P, values(n))
        want = path.fn(P, values(n))
        np.testing.assert_allclose(found["x"], want["x"], rtol=1e-12)
        assert found["last"] == found["x"][-1]
    assert path.cache_info().misses == 2


def test_a_number_of_python_that_changes_is_another_trace() -> None:
    factor = {"of": 2.0}

    def fn(p: Array, obs: Array) -> Any:
        return smooth(p, obs) * factor["of"]

    compiled = gradof.value_and_grad(fn)
    for k, n in enumerate((40, 57, 80, 81, 82, 83)):
        factor["of"] = 2.0 + k // 3
        assert compiled(P, values(n))[0] == pytest.approx(fn(P, values(n)))


def test_a_number_of_python_that_looks_like_the_length_is_none() -> None:
    factor = {"of": 40.0}

    def fn(p: Array, obs: Array) -> Any:
        return smooth(p, obs) * factor["of"]

    compiled = gradof.value_and_grad(fn)
    for n in FIRST:
        factor["of"] = float(n)
        assert compiled(P, values(n))[0] == pytest.approx(fn(P, values(n)))
    assert compiled(P, values(300))[0] == pytest.approx(fn(P, values(300)))


def test_threads_share_the_code() -> None:
    compiled = gradof.value_and_grad(lambda p, obs: smooth(p, obs))
    for n in FIRST:
        compiled(P, values(n))
    sizes = [16 + 7 * k for k in range(60)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda n: compiled(P, values(n))[0], sizes * 3))
    np.testing.assert_allclose(found, [smooth(P, values(n)) for n in sizes * 3], rtol=1e-12)
    assert compiled.cache_info().misses == 2
