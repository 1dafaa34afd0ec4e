"""Triton kernels without a GPU: run by triton's interpreter, and compiled to PTX."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gradof.codegen.gpu.emit_triton import Form, emit_triton, form_of
from gradof.codegen.gpu.ops import expression
from gradof.errors import CodegenError
from gradof.ir.types import F32, F64, I64
from tests.codegen import triton_cases as cases

pytest.importorskip("triton", reason="triton is not installed: pip install 'gradof[triton]'")


def run(part: str, interpret: bool, folder: Path) -> dict[str, str]:
    """A part of triton_cases in a process of its own: what is interpreted is decided at import."""
    environment = {**os.environ, "TRITON_CACHE_DIR": str(folder), "TRITON_DEFAULT_FP_FUSION": "1"}
    environment.pop("TRITON_INTERPRET", None)
    if interpret:
        environment["TRITON_INTERPRET"] = "1"
    done = subprocess.run(
        [sys.executable, "-m", "tests.codegen.triton_cases", part], env=environment,
        cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_interpreted_kernels_equal_the_reference(tmp_path: Path) -> None:
    found = run("interpret", True, tmp_path)
    assert set(found) == set(cases.NAMES)
    assert {k: v for k, v in found.items() if v != "ok"} == {}


@pytest.mark.parametrize("capability", ["80", "90", "100"])
def test_kernels_compile_to_ptx(capability: str, tmp_path: Path) -> None:
    found = run(capability, False, tmp_path)
    assert set(found) == set(cases.NAMES)
    assert {k: v for k, v in found.items() if v != "ok"} == {}


def test_source_has_the_users_names() -> None:
    (nest,) = cases.nests("rms norm")
    text = emit_triton(nest, "persistent")
    assert "x = tl.load(" in text
    assert "# in0: x : f32" in text


@pytest.mark.parametrize("name", ["rms norm", "folds", "views and masks"])
def test_source(name: str, golden: Callable[..., None]) -> None:
    (nest,) = cases.nests(name)
    forms: tuple[Form, ...] = (form_of(nest),)
    for form in forms if forms == ("pointwise",) else (*forms, "looped"):
        golden(emit_triton(nest, form), f"{name.replace(' ', '_')}_{form}")


def test_ops_without_an_expression_are_refused() -> None:
    with pytest.raises(CodegenError, match="atan2 of f32, f32"):
        expression("atan2", F32, ["x", "y"], [F32, F32], {})
    with pytest.raises(CodegenError, match="exp of i64"):
        expression("exp", I64, ["x"], [I64], {})
    assert expression("exp", F64, ["x"], [F64], {}) == "tl.exp(x)"
