"""torch's distributed modules around ours and ours around them: parameters as one process's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
STEPS, BATCHES = 4, 2  # of distributed_runs.py
COMPILED = {"_fsdp_inside": 5}  # how many modules are compiled by themselves, where not one


@pytest.fixture(scope="module")
def rows() -> dict[str, Any]:
    """What the two processes found, by the way it was done."""
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
        str(Path(__file__).with_name("distributed_runs.py")),
    ]  # fmt: skip
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    found = map(json.loads, filter(lambda line: line[:1] == "{", done.stdout.splitlines()))
    return {row["way"]: row for row in found}


@pytest.mark.parametrize(
    "way", ["_ddp_around", "_ddp_inside", "_ddp_inside_unused", "_fsdp_of_blocks", "_fsdp_of_ours",
            "_fsdp_inside"],
)  # fmt: skip
def test_two_processes_end_with_the_parameters_of_one(way: str, rows: dict[str, Any]) -> None:
    row, compiled = rows[way], COMPILED.get(way, 1)
    assert row["apart"] < 1e-14 and row["same_names"]
    assert row["backwards"] == STEPS * BATCHES * compiled, "gradof's own df ran"
    assert row["traces"] == compiled
