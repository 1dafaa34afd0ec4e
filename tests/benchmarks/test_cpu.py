"""The CPU benchmark runs, compares gradients before it times them, and writes what it measured."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


def test_a_quick_run_of_the_small_workloads() -> None:
    done = subprocess.run(
        [sys.executable, str(FOLDER / "cpu.py"), "--quick", "--only", "chain 16x16"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "chain 16x16" in done.stdout and "best peer / gradof" in done.stdout
    assert "does not run" not in done.stdout, done.stdout


def workloads() -> list[str]:
    tree = ast.parse((FOLDER / "workloads.py").read_text(encoding="utf-8"))
    calls = (n for n in ast.walk(tree) if isinstance(n, ast.Call))
    return [
        str(c.args[0].value)
        for c in calls
        if isinstance(c.func, ast.Name) and c.func.id == "Workload"
        and isinstance(c.args[0], ast.Constant)
    ]  # fmt: skip


def cut(arrays: list[Any]) -> list[Any]:
    """Fewer rows, so that about 2**17 elements stay: fused still, and quick."""
    n = arrays[0].shape[0] if arrays[0].ndim else 0
    rows = min(n, max(1, (1 << 17) * n // max(1, arrays[0].size)))
    small = rows < n
    return [a[:rows] if small and a.ndim and a.shape[0] == n else a for a in arrays]


@pytest.mark.cases(6)
@pytest.mark.parametrize("name", workloads())
def test_every_side_has_the_same_gradient(name: str, module: Any) -> None:
    """`checked` compares each side with the first, and leaves out a side only if it cannot run."""
    (w,) = (w for w in module("workloads").WORKLOADS if w.name == name)
    runs = module("cpu").checked(w, cut(w.make(np.random.default_rng(0))), quick=True)
    assert set(module("sides").BACKENDS) <= set(runs)
    assert "eager" in runs or w.torch is None


def test_every_workload_of_the_list_is_tried(module: Any) -> None:
    assert workloads() == [w.name for w in module("workloads").WORKLOADS]


def test_another_gradient_stops_the_benchmark(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = module("cpu")
    (w,) = (w for w in module("workloads").WORKLOADS if w.name == "chain 16x16")
    made = {"eager": lambda: lambda: [np.ones(2)], "jax": lambda: lambda: [np.array([1.0, 1.1])]}
    monkeypatch.setattr(cpu, "sides", lambda w, arrays: made)
    with pytest.raises(SystemExit, match="jax has another gradient"):
        cpu.checked(w, [], quick=True)


def test_forward_and_backward_alone_are_those_of_the_whole(module: Any) -> None:
    sides = module("sides")
    (w,) = (w for w in module("workloads").WORKLOADS if w.name == "chain 16x16")
    arrays = w.make(np.random.default_rng(0))
    whole = sides.sides(w, arrays)["eager"]()()
    split = sides.backwards(w, arrays, ["gradof", "eager", "jax"])
    assert set(split) == {"gradof", "eager"}
    for forward, backward in split.values():
        for mine, other in zip(backward(forward()), whole, strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-5)


def test_the_page_is_written_between_its_markers(module: Any, tmp_path: Path) -> None:
    report = module("report")
    (tmp_path / "performance.md").write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    row = report.Row(
        "w", "fused", {"gradof": 1e-3, "gradof tiles": 2e-3, "eager": 3e-3, "jax": 2e-3},
        {"gradof": 5e-4},
        {"eager": 7e-4}, 5e-4,
        {"gradof": (0.1, 1e6), "eager": (0.01, 4e6)},
    )  # fmt: skip
    made = report.Report("machine", [row], [(200, 0.5)], 4e-6)
    made.chart = lambda path: path.write_text("svg")
    made.write(tmp_path)
    text = (tmp_path / "performance.md").read_text()
    assert text.startswith("before") and text.rstrip().endswith("after") and "old" not in text
    assert "| w | 1.00 ms |" in text and "| 2.00 | - | - | - | - | 0.50 |" in text
    assert "700 µs" in text and "ten arrays: 4 µs" in text
    assert "0.25" in text, "peak memory over eager's"
    assert "fused: geometric mean of best peer / gradof 2.00, least 2.00" in text
    assert "numpy tiles, fused: geometric mean of eager / tiles 1.50, least 1.50" in text


def test_a_fresh_process_measures_time_and_memory(module: Any) -> None:
    seconds, peak = module("fresh").fresh("gradof tiles", "chain 16x16")
    assert seconds > 0 and peak >= 0
