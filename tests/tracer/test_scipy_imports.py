"""A trace loads no part of scipy, and catches the calls of the parts that the function loads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_HEAD = """
import sys
import numpy as np
import gradof
x = np.array([0.3, 0.7, 1.1])
def parts():
    return {m.split(".")[1] for m in sys.modules if m.startswith("scipy.")}
def check(f):
    slope = [(f(x + 1e-6 * e) - f(x - 1e-6 * e)) / 2e-6 for e in np.eye(3)]
    np.testing.assert_allclose(gradient, slope, rtol=1e-7)
"""
PROGRAMS = {
    "the whole library, for the first time": """
def f(x):
    from scipy.special import gammaln, logsumexp
    return logsumexp(x) + np.sum(gammaln(x))
gradient = gradof.grad(f)(x)
check(f)
""",
    "a part that is loaded where it is named": """
import scipy
def f(x):
    a = np.tril(np.outer(x, x)) + np.eye(3)
    return np.sum(scipy.linalg.solve_triangular(a, x, lower=True))
gradient = gradof.grad(f)(x)
assert "linalg" in parts() and "special" not in parts()
check(f)
""",
    "a part, after another one": """
import scipy.linalg
gradof.grad(lambda x: np.sum(x ** 2))(x)
assert not parts() & {"signal", "stats", "optimize"}
def f(x):
    from scipy import fft
    return np.sum(fft.dct(x)[1:] ** 2)
gradient = gradof.grad(f)(x)
assert not parts() & {"signal", "stats", "optimize"}
check(f)
""",
    "none": """
gradof.grad(lambda x: np.sum(x ** 2))(x)
assert "scipy" not in sys.modules and "gradof.tracer.scipy.adaptors" not in sys.modules
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_a_function_imports(name: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", _HEAD + PROGRAMS[name]], cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
