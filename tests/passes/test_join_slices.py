"""Slices put back together: the same numbers, by one op."""

from __future__ import annotations

import numpy as np
import pytest

from gradof.codegen import compile_graph
from gradof.ir.clone import clone_graph
from gradof.ir.parser import parse_graph
from gradof.ir.verify import verify
from gradof.passes.join_slices import join_slices

NESTED = """graph f(%x : f32[2,3]):
 %a : f32[2,7] = unslice[shape=(2, 7), dim=1, start=1, stop=4, step=1](%x)
 %y : f32[5,7] = unslice[shape=(5, 7), dim=0, start=2, stop=4, step=1](%a)
 return (%y)"""
THRICE = """graph f(%x : f32[2,3]):
 %a : f32[2,7] = unslice[shape=(2, 7), dim=1, start=1, stop=4, step=1](%x)
 %b : f32[5,7] = unslice[shape=(5, 7), dim=0, start=2, stop=4, step=1](%a)
 %y : f32[5,8] = unslice[shape=(5, 8), dim=1, start=1, stop=8, step=1](%b)
 return (%y)"""
CHUNKS = """graph f(%x : f32[4,2], %y : f32[4,3], %z : f32[4,1]):
 %a : f32[4,6] = unslice[shape=(4, 6), dim=1, start=3, stop=6, step=1](%y)
 %b : f32[4,6] = unslice[shape=(4, 6), dim=1, start=1, stop=3, step=1](%x)
 %c : f32[4,6] = unslice[shape=(4, 6), dim=1, start=0, stop=1, step=1](%z)
 %d : f32[4,6] = add(%a, %b)
 %s : f32[4,6] = add(%d, %c)
 %t : f32[4,6] = tanh(%s)
 return (%t)"""
OVERLAP = CHUNKS.replace("start=1, stop=3", "start=2, stop=4")
GAP = CHUNKS.replace("start=0, stop=1", "start=3, stop=4")
STEPPED = NESTED.replace("stop=4, step=1](%x)", "stop=7, step=2](%x)")
READ_TWICE = NESTED.replace("return (%y)", "return (%y, %a)")
OTHER_TERM = CHUNKS.replace("%s : f32[4,6] = add(%d, %c)", "%s : f32[4,6] = add(%d, %d)")
OTHER_DIM = """graph f(%x : f32[2,4], %y : f32[4,2]):
 %a : f32[4,4] = unslice[shape=(4, 4), dim=0, start=0, stop=2, step=1](%x)
 %b : f32[4,4] = unslice[shape=(4, 4), dim=1, start=2, stop=4, step=1](%y)
 %s : f32[4,4] = add(%a, %b)
 return (%s)"""


def kinds(text: str) -> list[str]:
    graph = parse_graph(text)
    join_slices(graph)
    return [node.kind for node in graph.nodes()]


@pytest.mark.parametrize(
    "text, expected",
    [(NESTED, ["pad"]), (THRICE, ["pad"]), (CHUNKS, ["cat", "tanh"])],
)
def test_joined(text: str, expected: list[str]) -> None:
    assert kinds(text) == expected


@pytest.mark.parametrize(
    "text", [OVERLAP, GAP, STEPPED, READ_TWICE, OTHER_TERM, OTHER_DIM]
)
def test_left_alone(text: str) -> None:
    graph = parse_graph(text)
    assert not join_slices(graph) and graph == parse_graph(text)


@pytest.mark.parametrize("text", [NESTED, THRICE, CHUNKS])
def test_the_same_numbers(text: str) -> None:
    graph = parse_graph(text)
    joined = clone_graph(graph)
    assert join_slices(joined) and not join_slices(joined)
    verify(joined)
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(v.type.shape).astype(np.float32) for v in graph.inputs]  # type: ignore[union-attr]
    before = compile_graph(graph, backend="numpy")(*given)
    after = compile_graph(joined, backend="numpy")(*given)
    for a, b in zip(before, after, strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_user_line_and_name_stay() -> None:
    graph = parse_graph(CHUNKS)
    join_slices(graph)
    assert next(iter(graph.nodes())).output.hint == "s"


def test_a_sum_of_one_of_several_results_is_left() -> None:
    graph = parse_graph("""graph f(%x : f32[4], %g : f32[2]):
      %u : f32[4] = unslice[shape=(4,), dim=0, start=0, stop=2, step=1](%g)
      %a : f32[4], %b : i64[4] = sort[dim=0, descending=False, stable=False](%x)
      %s : f32[4] = add(%u, %a)
      return (%s)""")
    assert not join_slices(graph)


def test_a_slice_of_one_of_several_results_is_left() -> None:
    graph = parse_graph("""graph f(%x : f32[2]):
      %a : f32[2], %b : i64[2] = sort[dim=0, descending=False, stable=False](%x)
      %u : f32[4] = unslice[shape=(4,), dim=0, start=0, stop=2, step=1](%a)
      return (%u)""")
    assert not join_slices(graph)
