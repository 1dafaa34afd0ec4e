"""Programs of scientists' notebooks that nobody tuned for: value, gradient, and what changes them.

The gradient is compared with differences; so is the second derivative, in `make long`.
"""

from __future__ import annotations

import sys
import types
import warnings
from typing import Any

import numpy as np
import pytest

import gradof
from gradof.errors import RetraceWarning
from tests.programs import (
    sequences_science_1,
    sequences_science_2,
    sequences_science_3,
    sequences_science_4,
    sequences_science_5,
)
from tests.programs.test_numpy_programs import X, _parsed, differences

PROGRAMS = {
    name: text
    for texts in (
        sequences_science_1, sequences_science_2, sequences_science_3, sequences_science_4,
        sequences_science_5,
    )
    for name, text in _parsed(texts.PROGRAMS).items()
}  # fmt: skip
# They read lists that grow at each call, which is another trace.
GROWING = {"prints, warnings and errors", "progress every few steps"}
# The differences of what is computed until a tolerance is met are right to that tolerance.
ROUGH = {
    "levenberg and marquardt by hand", "a fit by its gradient, of which the next step makes use",
    "a fit of a fit: minimize with a jac by hand",  # on processors where BFGS stops a step early
}  # fmt: skip


def made(name: str) -> types.ModuleType:
    module = types.ModuleType("a_notebook")
    sys.modules["a_notebook"] = module  # dataclasses ask for it
    exec(compile(PROGRAMS[name], f"{name}.py", "exec"), vars(module))
    return module


@pytest.mark.cases(9)
@pytest.mark.parametrize("name", PROGRAMS)
def test_value_and_gradient(name: str) -> None:
    module, step = made(name), 1e-3 if name in ROUGH else 1e-6
    compiled = gradof.value_and_grad(module.f)
    if name in GROWING:  # the third for one list is told; which of two lists it is, is by chance
        warnings.simplefilter("ignore", RetraceWarning)
    for x in (X, X * [1.05, 0.97, 1.02], X):
        _compare(compiled, module.f, x, step)
    assert compiled.cache_info().misses <= 3 or name in GROWING
    if hasattr(module, "change"):
        module.change()
        _compare(compiled, module.f, X, step)


def _compare(compiled: Any, f: Any, x: Any, step: float) -> None:
    value, gradient = compiled(x)
    np.testing.assert_allclose(value, f(x.copy()), rtol=1e-9)
    columns = [(f(x + d) - f(x - d)) / (2 * step) for d in np.eye(3) * step]
    np.testing.assert_allclose(gradient, columns, rtol=1e-4, atol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("name", PROGRAMS)
def test_second_derivatives(name: str) -> None:
    step = 1e-4 if name in ROUGH else 1e-6
    if name in GROWING:
        warnings.simplefilter("ignore", RetraceWarning)
    gradient, hessian = gradof.grad(made(name).f), gradof.hessian(made(name).f)
    np.testing.assert_allclose(hessian(X), differences(gradient, step), rtol=1e-3, atol=1e-4)


def test_there_are_as_many_as_promised() -> None:
    assert len(PROGRAMS) >= 60
