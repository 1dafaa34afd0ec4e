"""Sections of scipy's tutorial and numpy's guide: value and gradient, of every one."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradof
from tests.programs import sequences_notebooks
from tests.programs.test_numpy_programs import NAMES, X, _parsed, differences

PROGRAMS = _parsed(sequences_notebooks.PROGRAMS)
# A fit by scipy's differences is right to about 1e-8, and its difference by a short step is not.
FITS = {  # solved to a tolerance, which differences over a short step would show
    "optimize: least squares of a decay", "optimize: curve_fit", "optimize: an inner minimum",
}  # fmt: skip


def made(name: str) -> Callable[[Any], Any]:
    module = types.ModuleType("a_notebook")
    vars(module).update(NAMES)
    exec(compile(PROGRAMS[name], f"{name}.py", "exec"), vars(module))
    f: Callable[[Any], Any] = vars(module)["f"]
    return f


@pytest.mark.cases(12)
@pytest.mark.parametrize("name", PROGRAMS)
def test_value_and_gradient(name: str) -> None:
    fn = made(name)
    compiled = gradof.value_and_grad(fn)
    for _ in range(2):
        value, gradient = compiled(X)
        np.testing.assert_allclose(value, fn(X.copy()), rtol=1e-9)
        step = 1e-3 if name in FITS else 1e-6
        np.testing.assert_allclose(gradient, differences(fn, step), rtol=1e-4, atol=1e-5)
    assert compiled.cache_info().misses <= 2


def test_there_are_sixty_and_none_is_refused() -> None:
    assert len(PROGRAMS) >= 60
