"""Plain arrays are taken into the trace where traced values are written to them."""

from __future__ import annotations

import subprocess
import sys

FIRST = """
import numpy as np, gradof

def f(x):
    view = np.linspace(0.0, 1.0, 4).reshape(2, 2)
    view[0] = x[:2]
    return np.sum(view**2)

assert gradof.grad(f)(np.ones(3)).tolist() == [2.0, 2.0, 0.0]
"""


def test_the_first_function_of_a_process_adopts_them() -> None:
    """Python 3.12 tells of instructions only where a frame has asked before `sys.settrace`."""
    subprocess.run([sys.executable, "-c", FIRST], check=True)
