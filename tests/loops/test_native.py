"""Loops within native functions of whole graphs, beside the same graphs op by op."""

from __future__ import annotations

import numpy as np
import pytest

from gradof.codegen import compile_graph
from gradof.codegen.host.evaluate import interpret
from gradof.codegen.machine.engine import vector_bits
from gradof.codegen.whole.function import WholeExecutable, cells, is_long
from gradof.ir.core import Graph
from gradof.ir.parser import parse_graph
from gradof.ir.types import TensorType

pytestmark = pytest.mark.skipif(not vector_bits(), reason="no native code here")

# What is small is in registers, and in memory where a loop over an array reads it: for all steps.
SMALL_CONSTANT = """graph f(%n0 : f32[1,2], %c0 : f32[6,2], %x : f32[3,6,2]):
  %n : f32[1,2] = sin(%n0)
  %y : f32[6,2] = Loop[steps=3, backwards=False, counted=False, constants=1, carried=1](%n, %c0, %x)
    block(%t : i64[], %m : f32[1,2], %c : f32[6,2], %r : f32[6,2]):
      %a : f32[6,2] = add(%m, %r)
      %part : f32[5,2] = slice[dim=0, start=1, stop=6, step=1](%a)
      %first : f32[1,2] = slice[dim=0, start=0, stop=1, step=1](%c)
      %b : f32[6,2] = cat[dim=0](%first, %part)
      %d : f32[6,2] = cat[dim=0](%part, %first)
      %next : f32[6,2] = mul(%b, %d)
      -> (%next)
  return (%y)
"""


def native_is_right(graph: Graph) -> None:
    rng = np.random.default_rng(0)
    arrays = []
    for value in graph.inputs:
        assert isinstance(value.type, TensorType) and value.type.shape is not None
        arrays.append(rng.standard_normal(value.type.shape).astype(np.float32))
    compiled = compile_graph(graph)
    assert isinstance(compiled, WholeExecutable)
    for found, want in zip(compiled(*arrays), interpret(graph, arrays), strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-5)


def test_a_small_constant_is_there_at_every_step() -> None:
    native_is_right(parse_graph(SMALL_CONSTANT))


def test_others_run_python_while_a_long_loop_runs() -> None:
    text = SMALL_CONSTANT.replace("steps=3", "steps=N").replace("[3,6,2]", "[N,6,2]")
    short, long = (parse_graph(text.replace("N", str(n))) for n in (3, 10_000))
    assert not is_long(cells(short.block, {})) and is_long(cells(long.block, {}))
