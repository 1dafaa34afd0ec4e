"""Sections of scipy's tutorial and numpy's guide: value and gradient, or a refusal with a line."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradof
from gradof.errors import GradofError
from tests.programs import sequences_notebooks
from tests.programs.test_numpy_programs import NAMES, X, _parsed, differences

PROGRAMS = _parsed(sequences_notebooks.PROGRAMS)
# What is known to be refused; a mend takes its name out.
REFUSED = {
    "optimize: least squares of a decay", "optimize: curve_fit", "optimize: assignment",
    "interpolate: radial basis functions", "interpolate: a smoothing spline's derivative",
    "stats: kernel density",
}  # fmt: skip


def made(name: str) -> Callable[[Any], Any]:
    module = types.ModuleType("a_notebook")
    vars(module).update(NAMES)
    exec(compile(PROGRAMS[name], f"{name}.py", "exec"), vars(module))
    f: Callable[[Any], Any] = vars(module)["f"]
    return f


@pytest.mark.cases(20)
@pytest.mark.parametrize("name", [n for n in PROGRAMS if n not in REFUSED])
def test_value_and_gradient(name: str) -> None:
    fn = made(name)
    compiled = gradof.value_and_grad(fn)
    for _ in range(2):
        value, gradient = compiled(X)
        np.testing.assert_allclose(value, fn(X.copy()), rtol=1e-9)
        np.testing.assert_allclose(gradient, differences(fn), rtol=1e-4, atol=1e-5)
    assert compiled.cache_info().misses <= 2


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_is_refused_is_told_with_the_users_line(name: str) -> None:
    with pytest.raises(GradofError) as caught:
        gradof.grad(made(name))(X)
    assert f"{name}.py:" in str(caught.value) and caught.value.hint


def test_there_are_sixty_and_a_tenth_is_refused_at_most() -> None:
    assert len(PROGRAMS) >= 60 and 10 * len(REFUSED) <= len(PROGRAMS)
