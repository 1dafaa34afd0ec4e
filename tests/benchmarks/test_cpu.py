"""The CPU benchmark runs, compares gradients before it times them, and writes what it measured."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a module of the benchmarks' folder."""
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module


def test_a_quick_run_of_the_small_workloads() -> None:
    done = subprocess.run(
        [sys.executable, str(FOLDER / "cpu.py"), "--quick", "--only", "chain 16x16"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "chain 16x16" in done.stdout and "best peer / gradof" in done.stdout
    assert "does not run" not in done.stdout, done.stdout


def test_every_workload_has_gradients_of_the_right_shapes(module: Any) -> None:
    """On its own inputs, cut down; the names are distinct."""
    workloads = module("workloads").WORKLOADS
    assert len({w.name for w in workloads}) == len(workloads)
    for w in workloads:
        assert w.torch is not None or w.array is not None
        arrays = w.make(np.random.default_rng(0))
        assert all(arrays[i].dtype.kind == "f" for i in w.argnums), w.name


def test_the_page_is_written_between_its_markers(module: Any, tmp_path: Path) -> None:
    report = module("report")
    (tmp_path / "performance.md").write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    row = report.Row(
        "w", "fused", {"gradof": 1e-3, "eager": 3e-3, "jax": 2e-3}, {"gradof": 5e-4}, 5e-4,
        {"gradof": (0.1, 1e6), "eager": (0.01, 4e6)},
    )  # fmt: skip
    made = report.Report("machine", [row], [(200, 0.5)])
    made.chart = lambda path: path.write_text("svg")
    made.write(tmp_path)
    text = (tmp_path / "performance.md").read_text()
    assert text.startswith("before") and text.rstrip().endswith("after") and "old" not in text
    assert "| w | 1.00 ms |" in text and "| 2.00 | - | - | 0.50 |" in text
    assert "0.25" in text, "peak memory over eager's"
    assert "fused: geometric mean of best peer / gradof 2.00, least 2.00" in text


def test_a_fresh_process_measures_time_and_memory(module: Any) -> None:
    seconds, peak = module("fresh").fresh("gradof tiles", "chain 16x16")
    assert seconds > 0 and peak >= 0
