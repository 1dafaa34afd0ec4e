"""Graphs with loops mean what they mean unrolled: values, gradients, second derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gradof.autodiff.compose import pullback_graph
from gradof.codegen import compile_graph
from gradof.codegen.host.evaluate import interpret
from gradof.ir.clone import clone_graph
from gradof.ir.core import Graph
from gradof.ir.parser import parse_graph
from gradof.ir.types import TensorType
from gradof.ir.verify import verify
from gradof.passes.pipeline import PREPARE, run_passes
from gradof.passes.unroll_loops import unroll_loops
from tests.loops.texts import ALL, with_steps

Array = NDArray[Any]


def inputs_of(graph: Graph, count: int) -> list[Array]:
    rng = np.random.default_rng(3)
    found = []
    for value in graph.inputs:
        assert isinstance(value.type, TensorType) and value.type.shape is not None
        whole = value.type.dtype.kind == "int"
        found.append(
            np.array(count if value.hint == "n" else 0) if whole
            else rng.uniform(-1, 1, value.type.shape)
        )  # fmt: skip
    return found


def unrolled(graph: Graph) -> Graph:
    copy = clone_graph(graph)
    unroll_loops(copy)
    verify(copy)
    assert "Loop" not in {node.kind for node in copy.walk()}
    return copy


def close(have: Any, want: Any) -> None:
    assert len(have) == len(want)
    for h, w in zip(have, want, strict=True):
        assert h.dtype == w.dtype and h.shape == w.shape
        np.testing.assert_allclose(h, w, rtol=1e-11, atol=1e-12)


def check_run(graph: Graph, inputs: list[Array], want: Any) -> None:
    """The interpreter and emitted code for both libraries; inputs stay as they were."""
    close(interpret(graph, inputs), want)
    prepared = clone_graph(graph)
    run_passes(prepared, PREPARE)
    for library in ("numpy", "torch"):
        given = [a.copy() for a in inputs]
        results = compile_graph(prepared, library=library)(*given)
        close(results, want)
        for array, kept in zip(given, inputs, strict=True):
            np.testing.assert_array_equal(array, kept)
        for k, result in enumerate(results):
            others = [*given, *results[:k]]
            assert result.flags.writeable
            assert not any(np.may_share_memory(result, other) for other in others)


def pulled_back(graph: Graph) -> Graph:
    wrt = [i for i, v in enumerate(graph.inputs) if v.type.dtype.is_inexact]  # type: ignore[union-attr]
    outputs = [i for i, v in enumerate(graph.outputs) if v.type.dtype.is_inexact]  # type: ignore[union-attr]
    result = pullback_graph(graph, wrt, outputs)
    verify(result)
    assert not {n.kind for n in result.walk()} & {"GradOf", "AutogradZero", "AutogradAdd"}
    return result


@pytest.mark.parametrize("steps", [0, 1, 4])
@pytest.mark.parametrize("name", ALL)
def test_a_loop_is_its_steps(name: str, steps: int) -> None:
    graph = parse_graph(with_steps(ALL[name], steps))
    verify(graph)
    assert parse_graph(str(graph)) == graph
    plain = unrolled(graph)
    inputs = inputs_of(graph, min(2, steps))
    check_run(graph, inputs, interpret(plain, inputs))
    first, want = pulled_back(graph), pulled_back(plain)
    assert parse_graph(str(first)) == first
    rng = np.random.default_rng(5)
    given = [*inputs, *(_like(v, rng) for v in first.inputs[len(inputs) :])]
    check_run(first, given, interpret(want, given))
    second, want = pulled_back(first), pulled_back(want)
    given += [_like(v, rng) for v in second.inputs[len(given) :]]
    check_run(second, given, interpret(want, given))
    if steps:
        assert "Loop" in {node.kind for node in second.walk()}


def _like(value: Any, rng: np.random.Generator) -> Array:
    made: Array = rng.standard_normal(value.type.shape)
    return np.asarray(made)
