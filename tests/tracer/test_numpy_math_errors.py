"""Functions of Python's `math` on traced numbers raise where Python's raise."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradof

# name → numbers of a value, and of an error
ERRORS: dict[str, tuple[list[float], list[float]]] = {
    "log": ([2.0], [0.0]), "log2": ([2.0], [-1.0]), "log10": ([2.0], [-1.0]),
    "log1p": ([2.0], [-2.0]), "sqrt": ([2.0], [-1.0]), "acos": ([0.2], [2.0]),
    "asin": ([0.2], [-2.0]), "acosh": ([2.0], [0.5]), "atanh": ([0.2], [1.0]),
    "gamma": ([2.0], [-1.0]), "lgamma": ([2.0], [0.0]), "sin": ([2.0], [np.inf]),
    "exp": ([2.0], [1000.0]), "cosh": ([2.0], [-1e4]), "expm1": ([2.0], [1e4]),
    "pow": ([2.0, 0.5], [-2.0, 0.5]), "fmod": ([5.0, 3.0], [5.0, 0.0]),
}  # fmt: skip


def _of(name: str) -> Callable[[Any], Any]:
    function = getattr(math, name)
    return lambda x: function(*(x[i] for i in range(len(x)))) + 3.0 * x[0] * x[0] * x[0]


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_pythons(name: str) -> None:
    plain, (good, bad) = _of(name), ERRORS[name]
    with pytest.raises((ValueError, OverflowError)) as wanted:
        plain(np.array(bad))
    for first in (good, bad):  # an error of a compiled call, and of a trace
        compiled = gradof.value_and_grad(_of(name))
        for x in (first, good, bad, good):
            if x is bad:
                with pytest.raises(wanted.type, match=str(wanted.value)):
                    compiled(np.array(x))
            else:
                assert math.isclose(compiled(np.array(x))[0], plain(np.array(x)))
        assert first is bad or compiled.cache_info().misses == 1


def test_an_error_in_a_loop_is_raised_from_native_code() -> None:
    def f(x: Any) -> Any:
        total = 0.0
        for value in x:
            total = total + math.log(value) * math.sqrt(value)
        return total

    compiled = gradof.grad(f)
    x = np.linspace(1.0, 2.0, 40)
    want = (1.0 + 0.5 * np.log(x)) / np.sqrt(x)
    np.testing.assert_allclose(compiled(x), want)
    x[17] = -1.0
    with pytest.raises(ValueError, match="math domain error"):
        compiled(x)


def test_an_error_that_is_caught_decides_what_runs() -> None:
    def score(x: Any) -> Any:
        try:
            return math.log(x[0]) * x[1]
        except ValueError:
            return -100.0 * x[1]

    compiled = gradof.value_and_grad(lambda x: score(x) + x[0] ** 2)
    for first in (2.0, -2.0, 3.0, 0.0):
        x = np.array([first, 5.0])
        value, slope = compiled(x)
        assert math.isclose(value, score(x) + first**2)
        by_first = 5.0 / first if first > 0 else 0.0
        np.testing.assert_allclose(
            slope, [by_first + 2 * first, math.log(first) if first > 0 else -100.0]
        )
    assert compiled.cache_info().misses == 2
