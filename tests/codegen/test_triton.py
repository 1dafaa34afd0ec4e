"""Triton kernels without a GPU: run by triton's interpreter, and compiled to PTX."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gradof.codegen.triton.emit import Form, emit_triton, form_of
from gradof.codegen.triton.ops import expression
from gradof.errors import CodegenError
from gradof.ir.types import BF16, F32, F64, I64
from tests.codegen import triton_cases
from tests.codegen import triton_device as device
from tests.codegen.triton_process import run
from tests.sample import every, only, part

pytest.importorskip("triton", reason="triton is not installed: pip install 'gradof[triton]'")
LONG = pytest.mark.long
CAPABILITIES = (pytest.param("80", marks=LONG), "90", pytest.param("100", marks=LONG))


@every(13)
def test_interpreted_kernels_equal_the_reference(cases: int, tmp_path: Path) -> None:
    found = run("triton_cases", "interpret", tmp_path, interpret=True, **only(cases))
    assert set(found) == set(part(triton_cases.NAMES, cases))
    assert {k: v for k, v in found.items() if v != "ok"} == {}


@pytest.mark.parametrize("capability", CAPABILITIES)
@every(24)
def test_kernels_compile_to_ptx(cases: int, capability: str, tmp_path: Path) -> None:
    found = run("triton_cases", capability, tmp_path, interpret=False, **only(cases))
    assert set(found) == set(part(triton_cases.NAMES, cases))
    assert {k: v for k, v in found.items() if v != "ok"} == {}


@every(13)
def test_half_precision_is_as_near_to_float64_as_rounding_after_every_op(
    cases: int, tmp_path: Path
) -> None:
    found = run("triton_half", "interpret", tmp_path, interpret=True, **only(cases))
    assert len(found) == len(part(range(15), cases))
    assert {k: v for k, v in found.items() if v != "ok"} == {}


@pytest.mark.parametrize("how", ["interpret", "90", pytest.param("80", marks=LONG)])
@every(13)
def test_what_is_rewritten_for_a_device(cases: int, how: str, tmp_path: Path) -> None:
    found = run("triton_device", how, tmp_path, interpret=how == "interpret", **only(cases))
    assert set(found) == set(part(device.GRAPHS, cases))
    assert {k: v for k, v in found.items() if v != "ok"} == {}


@LONG
@pytest.mark.parametrize("capability", ("80", "90", "100"))
def test_half_precision_is_summed_in_float32(capability: str, tmp_path: Path) -> None:
    found = run("triton_half", capability, tmp_path, interpret=False)
    assert len(found) == 14
    assert {k: v for k, v in found.items() if v != "ok"} == {}


def test_source_has_the_users_names() -> None:
    (nest,) = triton_cases.nests("rms norm")
    text = emit_triton(nest, "persistent")
    assert "x = tl.load(" in text
    assert "# in0: x : f32" in text


@pytest.mark.parametrize("name", ["rms norm", "softmax", "folds", "views and masks"])
def test_source(name: str, golden: Callable[..., None]) -> None:
    (nest,) = triton_cases.nests(name)
    forms: tuple[Form, ...] = (form_of(nest),)
    for form in forms if forms == ("pointwise",) else (*forms, "looped"):
        golden(emit_triton(nest, form), f"{name.replace(' ', '_')}_{form}")


def test_ops_without_an_expression_are_refused() -> None:
    with pytest.raises(CodegenError, match="i0e of f32"):
        expression("i0e", F32, ["x"], [F32], {})
    with pytest.raises(CodegenError, match="exp of i64"):
        expression("exp", I64, ["x"], [I64], {})
    with pytest.raises(CodegenError, match="nextafter of bf16, bf16"):  # float32 has other bits
        expression("nextafter", BF16, ["x", "y"], [BF16, BF16], {})
    assert expression("exp", F64, ["x"], [F64], {}) == "tl.exp(x)"
