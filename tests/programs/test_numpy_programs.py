"""numpy programs as people write them: value and derivatives of each, or a refusal that helps."""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import math
import operator
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special

import gradof
from tests.programs import sequences_numpy_arrays, sequences_numpy_reach

X = np.array([0.31, 0.72, 1.13])
NAMES: dict[str, Any] = {
    "np": np, "math": math, "operator": operator, "functools": functools, "itertools": itertools,
    "dataclasses": dataclasses, "collections": collections, "softmax": scipy.special.softmax,
    "logsumexp": scipy.special.logsumexp,
}  # fmt: skip


def _parsed(text: str) -> dict[str, str]:
    parts = text.strip().removeprefix("--- ").split("\n--- ")
    return {part.partition("\n")[0]: part.partition("\n")[2] for part in parts}


PROGRAMS = _parsed(sequences_numpy_reach.PROGRAMS) | _parsed(sequences_numpy_arrays.PROGRAMS)


def made(name: str) -> Callable[[Any], Any]:
    module = types.ModuleType("a_program")
    vars(module).update(NAMES)
    sys.modules["a_program"] = module  # dataclasses ask for it
    exec(compile(PROGRAMS[name], f"{name}.py", "exec"), vars(module))
    f: Callable[[Any], Any] = vars(module)["f"]
    return f


def differences(fn: Callable[[Any], Any], step: float = 1e-6) -> Any:
    """The derivative of fn at X along each axis, by central differences."""
    columns = []
    for d in np.eye(3) * step:
        columns.append((np.asarray(fn(X + d)) - np.asarray(fn(X - d))) / (2 * step))
    return np.stack(columns, axis=-1)


@pytest.mark.cases(28)
@pytest.mark.parametrize("name", PROGRAMS)
def test_value_and_gradient(name: str) -> None:
    fn = made(name)
    want, slope = fn(X.copy()), differences(made(name))
    compiled = gradof.value_and_grad(fn)
    for _ in range(2):
        value, gradient = compiled(X)
        np.testing.assert_allclose(value, want, rtol=1e-12)
        np.testing.assert_allclose(gradient, slope, rtol=1e-6, atol=1e-7)
    assert compiled.cache_info().misses == 1 and compiled.cache_info().backward_runs == 2
    assert fn(X.copy()) == want  # what the function can reach is as it was


@pytest.mark.long
@pytest.mark.parametrize("name", PROGRAMS)
def test_second_derivatives(name: str) -> None:
    gradient, hessian = gradof.grad(made(name)), gradof.hessian(made(name))
    np.testing.assert_allclose(hessian(X), differences(gradient), rtol=1e-6, atol=1e-6)


def test_there_are_as_many_as_promised() -> None:
    assert len(PROGRAMS) >= 120


# --- refused, at the user's line ------------------------------------------------------------------
# name → the program that is refused, and the same with its hint followed
REFUSED: dict[str, tuple[str, str]] = {
    "complex": (
        "def f(x):\n    s = [complex][0](x[0])\n    return (s * x[1]).real",
        "def f(x):\n    s = x[0] + 0j\n    return (s * x[1]).real",
    ),
    "a plain array that two names have": (
        "def f(x):\n    a = np.arange(3) * 1.0\n    b = a\n    b[0] = x[0]\n"
        "    return np.sum(a * x)",
        "def f(x):\n    a = np.arange(3) * 1.0\n    b = a.copy()\n    b[0] = x[0]\n"
        "    return np.sum(b * x)",
    ),
    "an unseeded generator": (
        "def f(x):\n    w = np.random.Generator(np.random.PCG64()).normal(size=3)\n"
        "    return np.sum(w * x)",
        "def f(x):\n    w = np.random.Generator(np.random.PCG64(3)).normal(size=3)\n"
        "    return np.sum(w * x)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_names_the_line_and_the_hint_helps(name: str) -> None:
    refused, mended = REFUSED[name]
    PROGRAMS[name], PROGRAMS["mended"] = refused, mended
    line = max(n for n, text in enumerate(refused.split("\n"), 1) if "return" not in text)
    with pytest.raises(gradof.errors.TraceError) as caught:
        gradof.differentiate(made(name))(X)
    assert f"{name}.py:{line}" in str(caught.value), str(caught.value)
    assert caught.value.hint
    fn = made("mended")
    value, gradient = gradof.value_and_grad(fn)(X)
    np.testing.assert_allclose(value, fn(X))
    np.testing.assert_allclose(gradient, differences(fn), rtol=1e-6, atol=1e-7)


def test_a_failed_trace_leaves_the_users_objects_as_they_were() -> None:
    losses: list[Any] = []
    cache: dict[str, Any] = {"seen": 0}

    def f(x: Any) -> Any:
        losses.append(np.sum(x))
        cache["last"] = x * 2
        cache["seen"] += 1
        return [float][0](x[0])

    with pytest.raises(gradof.errors.DataDependentError):
        gradof.grad(f)(X)
    assert losses == [] and cache == {"seen": 0}


def test_state_is_guarded_with_the_functions_that_were_there() -> None:
    """References are replaced while a trace runs; what is compared later are the originals."""
    table: dict[str, Any] = {"make": np.array, "log": math.log}

    def f(x: Any) -> Any:
        return table["make"]([x[0], x[1]]).sum() * table["log"](x[2])

    compiled = gradof.grad(f)
    for _ in range(3):
        compiled(X)
    assert compiled.cache_info().misses == 1 and table["make"] is np.array
    table["log"] = math.sqrt
    np.testing.assert_allclose(compiled(X), differences(f), rtol=1e-6)
    assert compiled.cache_info().misses == 2


def test_lists_of_whole_numbers_are_traced_twice_at_most() -> None:
    def f(p: Any, observed: list[int]) -> Any:
        a, total = np.ones(3) / 3, 0.0
        for o in observed:
            a = a * p[:, o]
            total = total + np.log(np.sum(a))
        return total

    compiled = gradof.value_and_grad(f)
    p = np.random.default_rng(0).random((3, 5))
    for n in range(6):
        observed = [int(v) for v in np.random.default_rng(n).integers(0, 5, 4)]
        value, gradient = compiled(p, observed)
        np.testing.assert_allclose(value, f(p, observed))
        step = np.zeros_like(p)
        step[1, observed[2]] = 1e-6
        slope = (f(p + step, observed) - f(p - step, observed)) / 2e-6
        np.testing.assert_allclose(gradient[1, observed[2]], slope, rtol=1e-6)
    assert compiled.cache_info().misses <= 2
    with pytest.raises(IndexError):
        compiled(p, [0, 1, 2, 7])
