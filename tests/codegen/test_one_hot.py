"""Gathers of what is computed by cells, as cells of what is gathered."""

from __future__ import annotations

import pytest

from gradof import tuning
from gradof.codegen.triton.graph.one_hot import pick_from_memory
from gradof.ir.parser import parse_graph


@pytest.mark.parametrize(("length", "is_picked"), [
    (1, True), (tuning.PICKED_OPS, True), (tuning.PICKED_OPS + 1, False), (3000, False),
])  # fmt: skip
def test_few_ops_above_are_picked_and_many_are_no_recursion(length: int, is_picked: bool) -> None:
    """As those of a loss over a sequence, step after step."""
    lines = [
        "graph chain(%x : f32[6,23], %t : i64[6]):",
        "  %i : i64[6] = in_range[size=23, wraps=True, error='index'](%t)",
        "  %j : i64[6,1] = reshape[shape=(6, 1)](%i)",
    ]
    before = "%x"
    for k in range(length):
        lines.append(f"  %{k} : f32[6,23] = sin({before})")
        before = f"%{k}"
    lines.append(f"  %{length} : f32[6,1] = gather[dim=1]({before}, %j)")
    graph = parse_graph("\n".join([*lines, f"  return (%{length})"]))
    pick_from_memory(graph)
    node = graph.outputs[0].node
    assert node is not None and node.kind == ("sin" if is_picked else "gather")
