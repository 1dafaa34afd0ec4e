"""The benchmark of single functions: gradients are eager's, before anything is timed."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tests.benchmarks.conftest import FOLDER

SCRIPT = str(FOLDER / "ops.py")


@pytest.mark.long
def test_every_function_has_eagers_gradients(module: Any) -> None:
    ops = module("ops")
    for name in ops.FUNCTIONS:
        mine, eager = ops.measure(name, rounds=1)
        assert mine > 0 and eager > 0, name


def test_a_table_of_some_functions() -> None:
    done = subprocess.run([sys.executable, SCRIPT, "gather", "tril"], capture_output=True,
                          text=True, check=True)  # fmt: skip
    assert "eager / gradof" in done.stdout and "tril" in done.stdout
    assert done.stdout.rstrip().splitlines()[-1].startswith("2 functions: geometric mean")


def test_an_unknown_function_is_told() -> None:
    done = subprocess.run([sys.executable, SCRIPT, "sinn"], capture_output=True, text=True)
    assert done.returncode == 1 and "no such function: sinn" in done.stderr


def test_a_wrong_gradient_is_not_timed(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ops = module("ops")
    right = ops.gradof.differentiate
    monkeypatch.setattr(ops.gradof, "differentiate", lambda f: right(lambda x, y: f(x, y) * 1.01))
    with pytest.raises(AssertionError):
        ops.measure("tanh", rounds=1)
