"""f and df through Triton's interpreter, from tensors to gradients."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gradof.codegen import compile_graph
from gradof.errors import CodegenError
from gradof.ir.parser import parse_graph
from tests.runtime import triton_workloads
from tests.sample import every, only, part

pytest.importorskip("triton", reason="triton is not installed: pip install 'gradof[triton]'")


@every(12)
def test_workloads_equal_eager_to_second_order(cases: int, tmp_path: Path) -> None:
    environment = {
        **os.environ, "GRADOF_BACKEND": "triton", "TRITON_INTERPRET": "1",
        "TRITON_CACHE_DIR": str(tmp_path), **only(cases),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "tests.runtime.triton_workloads"], env=environment,
        cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    runs = json.loads(done.stdout.splitlines()[-1])
    assert len(runs) == 6 * len(part(triton_workloads.WORKLOADS, cases))
    assert all(count >= 2 for count in runs.values()), runs  # f and df at least


def test_without_the_interpreter_it_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    graph = parse_graph("graph f(%x : f32[3]):\n %y : f32[3] = tanh(%x)\n return (%y)")
    with pytest.raises(CodegenError, match="interpreter only"):
        compile_graph(graph, backend="triton")
