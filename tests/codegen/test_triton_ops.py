"""Every op with a Triton expression, on every dtype, without a GPU."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.codegen import triton_ops
from tests.codegen.triton_process import run
from tests.sample import every, only, part

pytest.importorskip("triton", reason="triton is not installed: pip install 'gradof[triton]'")


@every(10)
def test_interpreted_ops_equal_numpy(cases: int, tmp_path: Path) -> None:
    found = run("triton_ops", "interpret", tmp_path, interpret=True, **only(cases))
    assert len(found) == len(part(triton_ops.cases(), cases))
    assert {k: v for k, v in found.items() if v != "ok"} == {}


@every(12)
def test_functions_triton_does_not_have_are_right_to_4_ulps(cases: int, tmp_path: Path) -> None:
    found = run("triton_ops", "accuracy", tmp_path, interpret=True, **only(cases))
    assert len(found) == 2 * len(part(triton_ops.ACCURATE, cases))
    assert {k: v for k, v in found.items() if not v <= 4} == {}


@pytest.mark.long
def test_all_ops_compile_to_ptx(tmp_path: Path) -> None:
    found = run("triton_ops", "ptx", tmp_path, interpret=False)
    per_dtype = Counter(dtype.name for _, dtype, _ in triton_ops.cases())
    assert found == per_dtype
