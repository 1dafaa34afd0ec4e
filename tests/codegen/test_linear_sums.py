"""Sums over long rows taken apart: the numbers stay, and none waits for another one's row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'gradof[torch]'")

from gradof import tuning  # noqa: E402
from gradof.codegen.host.evaluate import interpret  # noqa: E402
from gradof.codegen.targets.choose import all_targets  # noqa: E402
from gradof.codegen.targets.passes import GRAPH_PASSES  # noqa: E402
from gradof.codegen.triton.graph.linear_sums import split_linear_sums  # noqa: E402
from gradof.codegen.triton.graph.one_hot import shape_of  # noqa: E402
from gradof.ir.clone import clone_graph  # noqa: E402
from gradof.ir.core import Graph, Node  # noqa: E402
from gradof.ir.parser import parse_graph  # noqa: E402
from gradof.ir.verify import verify  # noqa: E402
from gradof.runtime.plan import GraphPlan, RunCounts  # noqa: E402
from gradof.tracer.torch.tracer import trace_torch  # noqa: E402

F = torch.nn.functional
TARGET = next(t for t in all_targets() if t.name == "triton")
NORMS = {
    "group": lambda x, w, b: F.group_norm(x, 2, w, b),
    "batch": lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
    "instance": lambda x, w, b: F.instance_norm(x, weight=w, bias=b),
}  # fmt: skip


@pytest.fixture(autouse=True)
def long_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of 33 cells are long."""
    monkeypatch.setattr(tuning, "ROW_BLOCK", 32)
    monkeypatch.setattr(tuning, "SPLIT_CELLS", 4)


def graphs_of(name: str, dtype: Any) -> tuple[Graph, Graph]:
    """f and df of a norm of images."""
    args = [torch.randn(s, dtype=dtype, requires_grad=True) for s in ((3, 4, 5, 6), (4,), (4,))]
    plan = GraphPlan(trace_torch(NORMS[name], tuple(args), {}).graph, "torch", RunCounts())
    gradient = plan.gradient([True] * 3)
    defined = tuple(k < gradient.real_outputs for k in gradient.output_vjps)
    return gradient.f.prepared, gradient.df(defined, (True,) * 3).plan.prepared


def passed(graph: Graph) -> Graph:
    """The graph after the device's passes, the last one before sums of few rows are split."""
    graph = clone_graph(graph)
    for name in TARGET.passes[: TARGET.passes.index("split-sums")]:
        GRAPH_PASSES[name].run(graph, TARGET)
        verify(graph)
    return graph


def long_sums(graph: Graph) -> list[Node]:
    """The sums that read all of x."""
    return [n for n in graph.nodes() if n.kind == "sum" and np.prod(shape_of(n.inputs[0])) == 360]


@pytest.mark.parametrize("name", NORMS)
def test_sums_of_a_norm(name: str) -> None:
    rng = np.random.default_rng(3)
    for graph, stages in zip(graphs_of(name, torch.float64), (2, 1), strict=True):
        inputs = [rng.standard_normal(shape_of(v)) for v in graph.inputs]
        after = passed(graph)
        for a, b in zip(interpret(after, inputs), interpret(graph, inputs), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
        longest = max(depth(n, {}) for n in long_sums(after))
        if name != "instance":  # whose rows have no part that is short enough, or nothing to leave
            assert longest == stages, str(after)


def depth(node: Node, known: dict[Node, int]) -> int:
    """How many sums that read all of x are on a path to a node, itself counted."""
    if node not in known:
        above = max((depth(v.node, known) for v in node.inputs if v.node is not None), default=0)
        reads = node.kind == "sum" and np.prod(shape_of(node.inputs[0])) == 360
        known[node] = above + bool(reads)
    return known[node]


@pytest.mark.parametrize("name", ["group", "batch"])
def test_a_mean_far_from_zero_does_not_cancel(name: str) -> None:
    rng = np.random.default_rng(3)
    given = [1e3 + rng.standard_normal((3, 4, 5, 6)), *rng.standard_normal((2, 4))]
    given = [a.astype(np.float32) for a in given]
    graph, exact = (graphs_of(name, d)[0] for d in (torch.float32, torch.float64))
    right = interpret(exact, [a.astype(np.float64) for a in given])
    for mine, plain, want in zip(
        interpret(passed(graph), given), interpret(graph, given), right, strict=True
    ):
        rounding = 16 * 2.0**-23 * float(np.abs(want).max())
        assert np.abs(mine - want).max() <= 2 * np.abs(plain - want).max() + rounding


def test_what_is_left_as_it_is() -> None:
    text = """graph f(%x : f32[4,40], %w : f32[1,40], %m : f32[4,1], %h : f16[4,40]):
  %a : f32[4,40] = mul(%x, %w)
  %s : f32[4,1] = sum[dims=(1,), keepdims=True](%a)
  %t : f32[4,1] = sum[dims=(1,), keepdims=True](%x)
  %u : f16[4,1] = sum[dims=(1,), keepdims=True](%h)
  %v : f32[1,40] = sum[dims=(0,), keepdims=True](%a)
  return (%s, %t, %u, %v)"""
    graph = parse_graph(text)
    split_linear_sums(graph)
    assert graph == parse_graph(text)
