"""What is computed again: where it stands, how often, and how much is held meanwhile."""

from __future__ import annotations

import numpy as np
import pytest

from gradof.autodiff.differentiate import differentiate
from gradof.autodiff.gradient import Gradient
from gradof.autodiff.zeros import specialize_autograd_zero
from gradof.ir.core import Graph, Value
from gradof.ir.parser import parse_graph
from gradof.ir.types import TensorType
from gradof.passes.pipeline import CLEAN_UP, run_passes
from tests.autodiff.run import gradients, run_f

LAYERS = 16
BUDGETS = [1.0, 0.9, 0.75, 0.5, 0.4, 0.25, 0.1, 0.0]
UNIT = 8 * 5 * 5


def chain(layers: int = LAYERS) -> Graph:
    """h = tanh(h @ w), over and over; every value has UNIT bytes."""
    weights = ", ".join(f"%w{k} : f64[5,5]" for k in range(layers))
    lines = "\n".join(
        f"%z{k} : f64[5,5] = mm(%h{k}, %w{k})\n%h{k + 1} : f64[5,5] = tanh(%z{k})"
        for k in range(layers)
    )
    return parse_graph(f"graph f(%h0 : f64[5,5], {weights}):\n{lines}\nreturn (%h{layers})")


def plain_df(gradient: Gradient) -> Graph:
    """df for the cotangents of the real outputs, as it would be emitted."""
    defined = [i < gradient.f_real_outputs for i in gradient.df_input_vjps]
    graph = specialize_autograd_zero(gradient.df, defined).graph
    run_passes(graph, CLEAN_UP)
    return graph


def held(graph: Graph) -> int:
    """The most bytes of node results alive at once, results of the graph aside."""
    nodes = list(graph.nodes())
    source: dict[Value, Value] = {}
    last: dict[Value, int] = {}
    for at, node in enumerate(nodes):
        if node.kind in ("again", "permute"):
            source[node.output] = source.get(node.inputs[0], node.inputs[0])
        last.update({source.get(v, v): at for v in node.inputs})
    live, most = set[Value](), 0
    for at, node in enumerate(nodes):
        live |= {v for v in node.outputs if v not in source and v in last}
        most = max(most, sum(v.type.nbytes for v in live if isinstance(v.type, TensorType)))
        live -= {v for v in live if last[v] == at}
    return most


def saved(gradient: Gradient) -> int:
    return len(gradient.f.outputs) - gradient.f_real_outputs


def test_the_peak_falls_with_the_budget() -> None:
    peaks, kept = [], []
    for budget in BUDGETS:
        gradient = differentiate(chain(), memory_budget=budget)
        kept.append(saved(gradient))
        peaks.append(saved(gradient) * UNIT + held(plain_df(gradient)))
    assert kept[0] == LAYERS - 1 and kept[-1] == 0
    assert kept == sorted(kept, reverse=True)
    assert peaks == sorted(peaks, reverse=True)
    assert peaks[-1] <= peaks[0] / 2


def test_halving_computes_a_chain_log_times() -> None:
    df = plain_df(differentiate(chain(), memory_budget=0.0))
    products = sum(node.kind == "mm" for node in df.walk())
    assert products > 3 * LAYERS, "each once for the value, twice for the gradient"
    assert products <= (2 + np.log2(LAYERS)) * LAYERS


@pytest.mark.parametrize("budget", BUDGETS)
def test_numbers(budget: float) -> None:
    rng = np.random.default_rng(5)
    inputs = [rng.normal(size=(5, 5)) for _ in range(5)]
    graph = chain(4)
    want = gradients(differentiate(graph), inputs, {0: np.cos(np.arange(25.0)).reshape(5, 5)})
    gradient = differentiate(graph, memory_budget=budget)
    value = run_f(differentiate(graph), inputs)[0]
    np.testing.assert_array_equal(run_f(gradient, inputs)[0], value)
    got = gradients(gradient, inputs, {0: np.cos(np.arange(25.0)).reshape(5, 5)})
    assert got.keys() == want.keys()
    for i, grad in want.items():
        np.testing.assert_allclose(got[i], grad, rtol=1e-13, atol=1e-15)
