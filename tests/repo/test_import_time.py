"""`import gradof` is light: its own time is under 150 ms, and it loads nothing heavy."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "sympy", "scipy", "rich", "click", "triton", "llvmlite")
BUDGET_MS = 150
RUNS = 5  # the fastest counts: another process may have held the core during the others


def own_time_ms() -> float:
    """Cumulative time of `import gradof`, less that of the numpy within it."""
    run = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", "import gradof"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )
    lines = re.findall(r"^import time: +\d+ \| +(\d+) \| *(\S+)$", run.stderr, re.MULTILINE)
    cumulative = {name: int(microseconds) for microseconds, name in lines}
    return (cumulative["gradof"] - cumulative.get("numpy", 0)) / 1000


def test_import_is_fast() -> None:
    fastest = min(own_time_ms() for _ in range(RUNS))
    assert fastest < BUDGET_MS, f"import gradof took {fastest:.0f} ms of its own"


@pytest.mark.parametrize(
    "statement",
    ["import gradof", "import gradof; [getattr(gradof, name) for name in gradof.__all__]"],
    ids=["import", "every public name"],
)
def test_import_loads_nothing_heavy(statement: str) -> None:
    code = f"{statement}\nimport sys\nprint(sorted(sys.modules.keys() & {set(HEAVY)!r}))"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "[]"
