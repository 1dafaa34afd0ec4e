"""Slices of elementwise results, and sums of concatenations: moved, and the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from gradof.codegen import compile_graph
from gradof.ir.clone import clone_graph
from gradof.ir.parser import parse_graph
from gradof.ir.types import TensorType
from gradof.ir.verify import verify
from gradof.passes.hoist_slices import hoist_slices
from gradof.testing import check

GATES = """graph f(%x : f64[64,1024], %b : f64[1024], %s : f64[64,1]):
 %h : f64[64,1024] = add(%x, %b)
 %g : f64[64,1024] = mul(%h, %s)
 %p : f64[64,512] = slice[dim=1, start=512, stop=1024, step=1](%g)
 %q : f64[64,256] = slice[dim=1, start=0, stop=256, step=1](%g)
 %y : f64[64,512] = tanh(%p)
 return (%y, %q)"""
SUM = """graph f(%x : f64[64,512], %y : f64[64,1024]):
 %c : f64[64,1536] = cat[dim=1](%x, %y)
 %s : f64[1536] = sum[dims=(0,), keepdims=False](%c)
 %t : f64[1,1536] = sum[dims=(0,), keepdims=True](%c)
 return (%s, %t, %c)"""
DEEP = """graph f(%x : f64[8,64,128], %y : f64[8,64,64]):
 %c : f64[8,64,192] = cat[dim=2](%x, %y)
 %s : f64[192] = sum[dims=(0, 1), keepdims=False](%c)
 return (%s)"""
OVERLAP = GATES.replace("start=0, stop=256", "start=300, stop=556")
READ_TWICE = GATES.replace("return (%y, %q)", "return (%y, %q, %g)")
TWO_DIMS = GATES.replace("%q : f64[64,256] = slice[dim=1, start=0, stop=256, step=1]",
                         "%q : f64[32,1024] = slice[dim=0, start=0, stop=32, step=1]")  # fmt: skip
SMALL = GATES.replace("64,", "4,")
ACROSS = """graph f(%x : f64[64,512], %y : f64[64,1024]):
 %c : f64[64,1536] = cat[dim=1](%x, %y)
 %s : f64[64] = sum[dims=(1,), keepdims=False](%c)
 return (%s)"""


@pytest.mark.parametrize("text, kinds", [
    (GATES, ["slice", "slice", "add", "mul", "slice", "slice", "add", "mul", "tanh"]),
    (SUM, ["cat", "sum", "sum", "cat", "sum", "sum", "cat"]),
    (DEEP, ["cat", "sum", "sum", "cat"]),
])  # fmt: skip
def test_moved(text: str, kinds: list[str]) -> None:
    graph = parse_graph(text)
    moved = clone_graph(graph)
    assert hoist_slices(moved)
    verify(moved)
    assert sorted(n.kind for n in moved.nodes()) == sorted(kinds)
    rng = np.random.default_rng(3)
    arrays = [rng.standard_normal(v.type.shape) for v in graph.inputs
              if isinstance(v.type, TensorType) and v.type.shape is not None]  # fmt: skip
    for got, want in zip(
        compile_graph(moved)(*arrays), compile_graph(graph, backend="numpy")(*arrays), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("text", [OVERLAP, READ_TWICE, TWO_DIMS, SMALL, ACROSS])
def test_left_alone(text: str) -> None:
    graph = parse_graph(text)
    assert not hoist_slices(graph) and graph == parse_graph(text)


def _cell(x: Any, w: Any, b: Any, c: Any) -> Any:
    i, f, g = (x @ w + b).chunk(3, dim=1)
    return torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gates_of_a_cell(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    shapes = ((64, 32), (32, 768), (768,), (64, 256))
    args = tuple(torch.randn(s, dtype=dtype) / 4.0 for s in shapes)
    assert check(lambda *a: _cell(*a).square().mean(), args).ok
