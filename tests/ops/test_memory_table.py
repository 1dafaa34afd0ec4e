"""No op takes more memory than four times eager's and 64 MB: a process that measures each."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak is Linux's to say")
@pytest.mark.parametrize(
    ("start", "step"),
    [(7, 120), *(pytest.param(k, 8, marks=pytest.mark.long) for k in range(8))],
)
def test_peaks_beside_eagers(start: int, step: int) -> None:
    done = subprocess.run(
        [sys.executable, "benchmarks/memory_of_ops.py", str(start), str(step)], cwd=ROOT,
        capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "MALLOC_MMAP_THRESHOLD_": "65536"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[:2000] + done.stderr
    assert int(done.stdout.splitlines()[-1].split()[0]) >= (3 if step > 100 else 10)
