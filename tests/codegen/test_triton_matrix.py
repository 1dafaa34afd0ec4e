"""Ops, gradients and workloads as kernels: all of them interpreted, a sample compiled to PTX.

`python -m tests.codegen.triton_matrix` compiles all, and writes what stands in docs/coverage.md.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from gradof.testing.coverage_page import page, triton_section, with_triton
from tests.codegen import triton_ops, triton_page
from tests.codegen.triton_process import run
from tests.sample import all_and, only

pytest.importorskip("triton", reason="triton is not installed: pip install gradof[triton]")
SECTION = triton_section(triton_page.PAGE.read_text())
# values of ops are run by test_triton_ops; what else is left out is run by triton_matrix alone
RUN = r"op df (f32|bf16) |workload [^,]|workload, long rows (?!.* b?f16$)"
EVERY = 20  # one of so many kernels is compiled, for one of the architectures


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    return interpret(tmp_path_factory, 1)


def interpret(
    tmp_path_factory: pytest.TempPathFactory, cases: int
) -> tuple[dict[str, Any], Path]:
    folder = tmp_path_factory.mktemp("triton")
    file = folder / "kernels"
    more = (str(file), RUN)
    return run("triton_matrix", "interpret", folder, *more, interpret=True, **only(cases)), file


@pytest.fixture(scope="module", params=all_and(16))
def some(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    if request.param == 1:
        return request.getfixturevalue("interpreted")
    return interpret(tmp_path_factory, request.param)


def test_graphs_equal_numpy_or_eager(some: tuple[dict[str, Any], Path]) -> None:
    found, _ = some
    assert {k: v for k, v in found.items() if not isinstance(v, int)} == {}
    idle = {k for k, v in found.items() if v == 0}
    copies = {f"op df {d} add[]" for d in ("f32", "bf16")} | {"op df f32 cast[dtype=f32]"}
    # zeros are filled in, not computed
    steps = ("floor", "ceil", "trunc", "round", "sign", "floor_divide", "trunc_divide")
    fills = {f"op df {d} {step}[]" for d in ("f32", "bf16") for step in steps}
    fills.add("op df f32 spacing[]")
    assert idle == (copies | fills) & found.keys() and len(found) > 15


@pytest.mark.long
def test_a_sample_compiles_to_ptx(
    interpreted: tuple[dict[str, Any], Path], tmp_path: Path
) -> None:
    file = str(interpreted[1])
    result = run("triton_matrix", "sample", tmp_path, file, str(EVERY), interpret=False)
    assert min(result["kernels"]) > 5
    assert result["wrong"] == {}


@pytest.mark.long
def test_the_page_says_what_ran(interpreted: tuple[dict[str, Any], Path]) -> None:
    assert "\n".join(triton_page.ops_lines()) in SECTION, "write the section again"
    values = len(list(triton_ops.cases()))
    assert f"| ops, value | {values} | {values} |" in SECTION
    ran = [row for row in triton_page.rows(interpreted[0]) if not row.startswith("| ops")]
    assert len(ran) == 4
    for row in ran[:3]:  # all of the fourth would take too long here
        _, title, programs, kernels, _ = row.split("|")
        found = re.search(rf"^\|{title}\| (\d+) \| (\d+) \|$", SECTION, re.M)
        assert found is not None and int(found[1]) == int(programs)
        assert abs(int(found[2]) - int(kernels)) <= 0.1 * int(kernels), "write the section again"


def test_reasons_name_ops_without_an_expression() -> None:
    found = triton_page.without()
    for why, names in triton_page.WITHOUT.items():
        assert sorted(names) == found[why]


def test_the_section_is_kept_when_the_page_is_written_again() -> None:
    text = page([], [], SECTION)
    assert triton_section(text) == SECTION
    assert with_triton(text, SECTION) == text
    assert triton_section(with_triton(text, "")) == ""
