"""Random graphs through the passes of every target: after each, the numbers of the interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from gradof.autodiff.compose import pullback_graph
from gradof.codegen.host.evaluate import interpret
from gradof.codegen.targets.choose import all_targets
from gradof.codegen.targets.passes import GRAPH_PASSES
from gradof.codegen.targets.target import Target
from gradof.ir.clone import clone_graph, inline
from gradof.ir.core import Graph
from gradof.ir.parser import parse_graph
from gradof.ir.verify import verify
from gradof.passes.pipeline import PREPARE, run_passes
from tests.strategies import Array, Case, graphs

TARGETS = {target.name: target for target in all_targets()}
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


def without_groups(graph: Graph) -> Graph:
    """The graph with the nodes of its groups where they stand."""
    graph = clone_graph(graph)
    for node in list(graph.nodes()):
        if node.kind == "FusionGroup":
            results = inline(node.blocks[0], node.inputs, graph.block, node)
            for old, new in zip(node.outputs, results, strict=True):
                old.replace_all_uses_with(new)
            node.erase()
    return graph


def through(graph: Graph, inputs: list[Array], target: Target) -> None:
    """Each pass of a target, in its order."""
    want = interpret(graph, inputs)
    graph = clone_graph(graph)
    run_passes(graph, PREPARE)
    for name in target.passes:
        each = GRAPH_PASSES[name]
        result = each.run(graph, target) if each.applies(graph, target) else False
        graph = result if isinstance(result, Graph) else graph
        verify(graph)
        assert parse_graph(str(graph)) == graph
        for a, b in zip(interpret(without_groups(graph), inputs), want, strict=True):
            assert a.shape == b.shape and a.dtype == b.dtype, name
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-11, err_msg=name)


def forwards_and_back(case: Case, target: Target) -> None:
    """A graph and its pullback, as both are compiled."""
    through(case.graph, case.inputs, target)
    wanted, outputs = range(len(case.inputs)), range(len(case.graph.outputs))
    rng = np.random.default_rng(1)
    seeds = [rng.standard_normal(v.type.shape) for v in case.graph.outputs]  # type: ignore[union-attr]
    through(pullback_graph(case.graph, wanted, outputs), [*case.inputs, *seeds], target)


@pytest.mark.parametrize("name", TARGETS)
@given(case=graphs())
@settings(max_examples=12, suppress_health_check=SLOW)
def test_a_few_graphs(name: str, case: Case) -> None:
    forwards_and_back(case, TARGETS[name])


@pytest.mark.long
@pytest.mark.parametrize("name", TARGETS)
@given(case=graphs(max_nodes=25))
@settings(max_examples=1500, suppress_health_check=SLOW)
def test_many_graphs(name: str, case: Case) -> None:
    forwards_and_back(case, TARGETS[name])
