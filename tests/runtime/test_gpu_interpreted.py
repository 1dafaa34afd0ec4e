"""The tests for a GPU on a CPU, in triton's interpreter: programs, workloads, and a few ops.

All of them run there with `GRADOF_BACKEND=triton TRITON_INTERPRET=1 python -m pytest tests/gpu`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="triton is not installed: pip install 'gradof[triton]'")
ROOT = Path(__file__).parents[2]
OPS = (
    "softmax_with_dtype nn_functional_group_norm cumsum linalg_lu_factor fft_rfft index_put "
    "pow-f32 masked_fill nn_functional_embedding nn_functional_conv2d"
).split()


def run(path: str, *args: str, cache: Path) -> str:
    environment = {
        **os.environ, "GRADOF_BACKEND": "triton", "TRITON_INTERPRET": "1",
        "TRITON_CACHE_DIR": str(cache),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", path, *args],
        env=environment, cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    return done.stdout.strip().splitlines()[-1]


def passed(line: str) -> int:
    found = re.match(r"(\d+) passed", line)
    assert found is not None, line
    return int(found[1])


@pytest.mark.long
def test_programs(tmp_path: Path) -> None:
    assert passed(run("tests/gpu/test_programs.py", cache=tmp_path)) >= 18


@pytest.mark.parametrize(
    ("chosen", "least"),
    [("edges or (strided and float16)", 26), pytest.param("new_shapes", 1, marks=pytest.mark.long)],
)
def test_workloads(chosen: str, least: int, tmp_path: Path) -> None:
    assert passed(run("tests/gpu/test_workloads.py", "-k", chosen, cache=tmp_path)) >= least


@pytest.mark.long
def test_ops(tmp_path: Path) -> None:
    pytest.importorskip("expecttest", reason="torch's table of ops needs expecttest")
    assert passed(run("tests/gpu/test_ops.py", "-k", " or ".join(OPS), cache=tmp_path)) >= 14


def test_what_needs_a_device_is_skipped_aloud(tmp_path: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    line = run("tests/gpu/test_device.py", cache=tmp_path)
    assert re.match(r"\d+ skipped", line), line
