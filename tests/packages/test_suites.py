"""The plugin that holds what a package's tests call beside eager, on a package made for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_PACKAGE = """
import torch

def scaled(x, by=2.0):
    return (x * by).sin()

def told(x):
    print("told")
    return x * 2

class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(3))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return scaled(x * self.w * self.calls)
"""
_TESTS = """
import tiny_layers
import torch
from tiny_layers import scaled

def test_them():
    layer = tiny_layers.Layer()
    for _ in range(2):
        assert layer(torch.ones(3)).shape == scaled(torch.ones(3)).shape
    assert tiny_layers.told(torch.ones(2)).tolist() == [2.0, 2.0] and layer.calls == 2
"""


_ARRAYS = """
import numpy as np

def scaled(x, by=2.0):
    return np.sin(np.asarray(x) * by)

def text(x):
    return {x[0]: np.sum(x)}

class Layer:
    def __init__(self):
        self.w, self.calls = np.ones(3), 0

    def apply(self, x):
        self.calls += 1
        self.w[0] = x[0]
        return np.float64(x) * self.w.sum()
"""
_ARRAY_TESTS = """
import numpy as np
import tiny_arrays
from tiny_arrays import scaled

def test_them():
    layer = tiny_arrays.Layer()
    for _ in range(2):
        assert layer.apply(np.arange(3.0) + 1).shape == scaled(np.ones(3)).shape
    assert tiny_arrays.text(np.ones(2)) == {1.0: 2.0} and layer.calls == 2
"""


_MISTAKEN = """
import gradof

real = gradof.differentiate

class Mistaken:
    def __init__(self, thing):
        self.compiled = real(thing)
        self.cache_info = self.compiled.cache_info

    def __call__(self, x):
        return self.compiled(x * 1.01)

gradof.differentiate = Mistaken
"""


def _rows(folder: Path, package: str, text: str, tests: str, mistaken: bool, plugin: str) -> Any:
    """The rows of a package made for it, by name."""
    there = folder / "tests"  # of the name of ours
    there.mkdir()
    (there / "__init__.py").touch()
    (there / "test_layers.py").write_text(tests)
    (folder / f"{package}.py").write_text(text)
    if mistaken:
        (there / "conftest.py").write_text(_MISTAKEN)
    root = Path(__file__).resolve().parents[2]
    ran = subprocess.run(
        [sys.executable, "-P", "-m", "pytest", "-p", f"tests.packages.{plugin}", "-q",
         "-p", "no:cacheprovider", "tests"],
        cwd=folder, check=False, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(root), "SUITE_PATH": str(folder),
             "SUITE_OF": package, "SUITE_ROWS": str(folder / "rows"),
             "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    rows = [json.loads(line) for line in (folder / "rows").read_text().splitlines()]
    assert len(rows) == 3
    return {row["name"].partition(":")[2]: row for row in rows}


@pytest.mark.parametrize("mistaken", [False, True])
def test_each_kind_of_call_is_compared_once(tmp_path: Path, mistaken: bool) -> None:
    found = _rows(tmp_path, "tiny_layers", _PACKAGE, _TESTS, mistaken, "beside")
    if mistaken:
        assert all(r["status"] == "wrong" and "is off by" in r["reason"] for r in found.values())
        return
    assert {name: row["status"] for name, row in found.items()} == {
        "Layer": "equal", "scaled": "equal", "told": "fallback"
    }  # fmt: skip
    assert found["Layer"]["backward_runs"] >= 3 and "print is called" in found["told"]["reason"]


@pytest.mark.parametrize("mistaken", [False, True])
def test_functions_of_arrays_are_compared_with_plain_numpy(tmp_path: Path, mistaken: bool) -> None:
    found = _rows(tmp_path, "tiny_arrays", _ARRAYS, _ARRAY_TESTS, mistaken, "beside_numpy")
    assert found["text"]["status"] == "refused" and "key of a dict" in found["text"]["reason"]
    for name in ("Layer.apply", "scaled"):
        assert found[name]["status"] == ("wrong" if mistaken else "equal"), found
