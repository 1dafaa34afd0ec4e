"""Nests without rows taken apart: the parts together are the nest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gradof.codegen.fusion.fuse import fuse
from gradof.codegen.loops.interpret import run_nest
from gradof.codegen.loops.ir import LoopNest
from gradof.codegen.loops.lower import schedule
from gradof.codegen.triton.interpreted import in_triton
from gradof.codegen.triton.shared_rows import share_rows
from gradof.codegen.triton.split_reductions import Totals, take_totals
from gradof.ir.attrs import to_numpy_dtype
from gradof.ir.parser import parse_graph
from tests.codegen.triton_cases import TOTALS


def nest_of(name: str) -> LoopNest:
    graph = fuse(parse_graph(TOTALS[name]), in_triton, lambda group: True)
    (node,) = [n for n in graph.nodes() if n.kind == "FusionGroup"]
    return schedule(node)


def in_parts(nest: LoopNest, arrays: list[Any]) -> tuple[list[Any], int]:
    """The outputs, and how many nests made them."""
    parts = take_totals(nest) or share_rows(nest)
    if parts is None:
        return run_nest(nest, arrays), 1
    first = run_nest(parts.first, arrays)
    if parts.second is None:
        return [first[k] for k in parts.made], 1
    pool = [*arrays, *first]
    second, count = in_parts(parts.second, [pool[k] for k in parts.given])
    found = [*first, *second]
    return [found[k] for k in parts.made], 1 + count


# nests for each: a total that is stored as it is needs no second one
@pytest.mark.parametrize(("name", "count"), [
    ("total and mean", 2), ("vector softmax", 3), ("norm", 2), ("sum alone", 1),
    ("stored twice", 2), ("squared error", 1),
])  # fmt: skip
def test_parts_make_the_outputs_of_the_nest(name: str, count: int) -> None:
    nest = nest_of(name)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(b.shape).astype(to_numpy_dtype(b.dtype)) for b in nest.inputs]
    have, nests = in_parts(nest, arrays)
    assert nests == count
    for a, b in zip(have, run_nest(nest, arrays), strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_the_first_part_has_the_columns_as_rows_and_folds() -> None:
    parts = take_totals(nest_of("vector softmax"))
    assert isinstance(parts, Totals)
    assert parts.first.rows == len(parts.first.sizes) == 1
    assert [i.op for i in parts.first.body] == ["load", "fold"]
    assert parts.second is not None and parts.second.stages == 2


def test_rows_and_columns_of_a_squared_error_are_rows() -> None:
    parts = take_totals(nest_of("squared error"))
    assert isinstance(parts, Totals)
    assert parts.first.rows == len(parts.first.sizes) == 2
    assert not any(i.op == "reduce" for i in parts.first.body)


@pytest.mark.parametrize("text", [
    "graph f(%x : f64[4,5]):\n %y : f64[4,1] = amax[dims=(1,), keepdims=True](%x)\n"
    " %z : f64[] = sum[dims=(0, 1), keepdims=False](%y)\n return (%z)",
    "graph f(%x : f64[4,5]):\n %y : f64[] = sum[dims=(0, 1), keepdims=False](%x)\n"
    " %z : f64[4,1] = sum[dims=(1,), keepdims=True](%x)\n return (%y, %z)",
    "graph f(%x : f64[4,5]):\n %y : f64[4,1] = sum[dims=(1,), keepdims=True](%x)\n return (%y)",
    "graph f(%x : f64[4]):\n %y : f64[4] = exp(%x)\n return (%y)",
])  # fmt: skip
def test_rows_that_matter_and_cells_alone_are_left_as_they_are(text: str) -> None:
    for node in fuse(parse_graph(text), in_triton, lambda group: True).nodes():
        assert node.kind == "FusionGroup" and take_totals(schedule(node)) is None


CHANNELS = """graph f(%x : f64[4,6,5,3], %w : f64[6,1,1]):
 %s : f64[1,6,1,1] = sum[dims=(0, 2, 3), keepdims=True](%x)
 %n : float = Constant[value=60.0]()
 %m : f64[1,6,1,1] = div(%s, %n)
 %c : f64[4,6,5,3] = sub(%x, %m)
 %q : f64[4,6,5,3] = mul(%c, %c)
 %v : f64[1,6,1,1] = sum[dims=(0, 2, 3), keepdims=True](%q)
 %r : f64[1,6,1,1] = rsqrt(%v)
 %z : f64[4,6,5,3] = mul(%c, %r)
 %y : f64[4,6,5,3] = mul(%z, %w)
 return (%y, %m, %r, %s)
"""


def test_few_rows_are_shared_out_stage_by_stage() -> None:
    graph = fuse(parse_graph(CHANNELS), in_triton, lambda group: True)
    (node,) = [n for n in graph.nodes() if n.kind == "FusionGroup"]
    nest = schedule(node)
    assert nest.n_rows == 6 and nest.n_columns == 60
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(b.shape) for b in nest.inputs]
    have, nests = in_parts(nest, arrays)
    assert nests == 3  # the sum, the sum of squares, and what reads both
    for a, b in zip(have, run_nest(nest, arrays), strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-12)
    parts = share_rows(nest)
    assert parts is not None and parts.second is not None
    assert parts.first.n_rows == 60 and not any(i.op == "reduce" for i in parts.first.body)
