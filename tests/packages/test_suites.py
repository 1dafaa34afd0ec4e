"""The plugin that holds what a package's tests call beside eager, on a package made for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

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


@pytest.mark.parametrize("mistaken", [False, True])
def test_each_kind_of_call_is_compared_once(tmp_path: Path, mistaken: bool) -> None:
    tests = tmp_path / "tests"  # of the name of ours
    tests.mkdir()
    (tests / "__init__.py").touch()
    (tests / "test_layers.py").write_text(_TESTS)
    (tmp_path / "tiny_layers.py").write_text(_PACKAGE)
    if mistaken:
        (tests / "conftest.py").write_text(_MISTAKEN)
    root = Path(__file__).resolve().parents[2]
    ran = subprocess.run(
        [sys.executable, "-P", "-m", "pytest", "-p", "tests.packages.beside", "-q",
         "-p", "no:cacheprovider", "tests"],
        cwd=tmp_path, check=False, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(root), "SUITE_PATH": str(tmp_path),
             "SUITE_OF": "tiny_layers", "SUITE_ROWS": str(tmp_path / "rows"),
             "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    rows = [json.loads(line) for line in (tmp_path / "rows").read_text().splitlines()]
    found = {row["name"].partition(":")[2]: row for row in rows}
    assert len(rows) == 3
    if mistaken:
        assert all(row["status"] == "wrong" and "is off by" in row["reason"] for row in rows)
        return
    assert {name: row["status"] for name, row in found.items()} == {
        "Layer": "equal", "scaled": "equal", "told": "fallback"
    }  # fmt: skip
    assert found["Layer"]["backward_runs"] >= 3 and "print is called" in found["told"]["reason"]
