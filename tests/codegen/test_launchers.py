"""Launchers of exported files: sizes, memory and index types that no test can afford to run."""

from __future__ import annotations

import ast

import pytest

from gradof.codegen.export.launchers import Launcher, functions_of, write_launcher
from gradof.codegen.fusion.fuse import fuse
from gradof.codegen.loops.ir import LoopNest
from gradof.codegen.loops.lower import schedule
from gradof.codegen.triton.interpreted import in_triton
from gradof.codegen.triton.split_reductions import take_totals
from gradof.errors import CodegenError
from gradof.ir.parser import parse_graph


def nest_of(text: str) -> LoopNest:
    (node,) = [n for n in fuse(parse_graph(text), in_triton, lambda group: True).nodes()
               if n.kind == "FusionGroup"]  # fmt: skip
    return schedule(node, "kernel")


def total(n: int, m: int) -> Launcher:
    """Of all products of two vectors, which are small."""
    parts = take_totals(nest_of(
        f"graph f(%x : f32[{n},1], %w : f32[1,{m}]):\n %p : f32[{n},{m}] = mul(%x, %w)\n"
        f" %s : f32[] = sum[dims=(0, 1), keepdims=False](%p)\n return (%s)"
    ))  # fmt: skip
    assert parts is not None and parts.second is None
    return write_launcher(parts.first, "total", ["x", "w"], ["s"])


def test_positions_are_counted_in_int64_where_they_are_many() -> None:
    assert "INDEX=tl.int64" in total(1 << 16, 1 << 16).source  # elements lie close together
    assert "INDEX=index_type(x, w)" in total(1 << 15, 1 << 15).source


def test_sizes_that_nothing_reads_are_left_out() -> None:
    launcher = total(64, 48)
    (kernel,) = (text for name, text in launcher.kernels.items() if name == "total_kernel")
    (definition,) = ast.parse(kernel).body
    assert isinstance(definition, ast.FunctionDef)
    arguments = [a.arg for a in definition.args.args]
    assert {"x_ptr", "w_ptr", "s_parts_ptr", "n1", "n_rows", "BR"} <= set(arguments)
    assert "n0" not in arguments and "n_columns" not in arguments and "TILES" not in arguments
    ast.parse(launcher.source)
    assert "n0, n1 = x.shape[0], w.shape[1]" not in launcher.source
    assert "    n_rows = n0 * n1" in launcher.source.splitlines()


def test_what_is_no_function_is_no_kernel() -> None:
    with pytest.raises(CodegenError, match="a statement that is no function"):
        functions_of("import triton\nimport triton.language as tl\nfrom x import libdevice\n")
