"""Random graphs through random orders of passes: no number may change, and no text be lost.

Everything runs in float64. The gradients of the same graphs are held to central differences,
and so are those of their pullbacks, which are second derivatives.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from gradof.autodiff.compose import pullback_graph
from gradof.autodiff.differentiate import differentiate, show_reverse
from gradof.autodiff.zeros import specialize_autograd_zero
from gradof.codegen import compile_graph
from gradof.codegen.host.evaluate import interpret
from gradof.ir.clone import clone_graph
from gradof.ir.core import Graph, Node
from gradof.ir.parser import parse_graph
from gradof.ir.verify import verify
from gradof.passes.pipeline import PASSES, run_passes
from tests.autodiff.run import Array, df_arguments, gradients, run_f
from tests.strategies import Case, graphs

ORDERS = st.lists(st.sampled_from(sorted(PASSES)), max_size=8)
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


def round_trips(graph: Graph) -> None:
    verify(graph)
    again = parse_graph(str(graph))
    assert again == graph and str(again) == str(graph)


def same(got: Sequence[Array], want: Sequence[Array], exact: bool = True) -> None:
    assert [a.shape for a in got] == [a.shape for a in want]
    for a, b in zip(got, want, strict=True):
        if exact:
            np.testing.assert_array_equal(a, b)
        else:
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


def seeds_for(case: Case, outputs: Sequence[int], seed: int) -> dict[int, Array]:
    rng = np.random.default_rng(seed)
    values = interpret(differentiate(case.graph).f, case.inputs)  # temporaries included
    return {i: rng.normal(size=values[i].shape) for i in outputs}


@given(graphs(), ORDERS)
@settings(max_examples=120, suppress_health_check=SLOW)
def test_any_order_of_passes_leaves_the_numbers(case: Case, order: list[str]) -> None:
    want = interpret(case.graph, case.inputs)
    graph = clone_graph(case.graph)
    for name in order:
        run_passes(graph, [name])
        round_trips(graph)
        assert [v.type for v in graph.outputs] == [v.type for v in case.graph.outputs]
        # Passes drop, merge and move nodes; they reorder no sum, so not a bit may change.
        same(interpret(graph, case.inputs), want)


@given(graphs(), ORDERS)
@settings(max_examples=60, suppress_health_check=SLOW)
def test_passes_leave_the_gradient_graph_too(case: Case, order: list[str]) -> None:
    """The same for df with its GradOf blocks and symbolic zeros."""
    gradient = differentiate(case.graph)
    seeds = seeds_for(case, gradient.df_input_vjps[1:], 1)  # the first is undefined
    values = run_f(gradient, case.inputs)
    arguments = df_arguments(gradient, case.inputs, values, seeds)
    want = interpret(gradient.df, arguments)
    df = clone_graph(gradient.df)
    for name in order:
        run_passes(df, [name])
        round_trips(df)
        same(interpret(df, arguments), want)


@given(graphs())
@settings(max_examples=60, suppress_health_check=SLOW)
def test_passes_settle(case: Case) -> None:
    """Run in turn until none changes anything, which then none does."""
    graph = clone_graph(case.graph)
    for _ in range(20):
        if not run_passes(graph, sorted(PASSES)):
            break
    else:
        raise AssertionError(f"still changing:\n{graph}")
    text = str(graph)
    for name in PASSES:
        assert not PASSES[name](graph) and str(graph) == text


@given(graphs())
@settings(max_examples=60, suppress_health_check=SLOW)
def test_f_df_and_the_reverse_block_print_and_parse(case: Case) -> None:
    gradient = differentiate(case.graph)
    for graph in (gradient.f, gradient.df, show_reverse(case.graph)):
        round_trips(graph)
    f_values = run_f(gradient, case.inputs)[: gradient.f_real_outputs]
    same(f_values, interpret(case.graph, case.inputs))


@given(graphs(), st.data())
@settings(max_examples=60, suppress_health_check=SLOW)
def test_emitted_code_equals_the_interpreter(case: Case, data: st.DataObject) -> None:
    gradient = differentiate(case.graph)
    got = compile_graph(gradient.f)(*case.inputs)
    same(got, interpret(gradient.f, case.inputs), exact=False)
    defined = data.draw(st.lists(st.booleans(), min_size=len(gradient.df_input_vjps),
                                 max_size=len(gradient.df_input_vjps)))  # fmt: skip
    special = specialize_autograd_zero(gradient.df, defined)
    round_trips(special.graph)
    rng = np.random.default_rng(5)
    values = run_f(gradient, case.inputs)
    seeds = {i: rng.normal(size=np.shape(values[i]))
             for i, flag in zip(gradient.df_input_vjps, defined, strict=True) if flag}  # fmt: skip
    arguments = df_arguments(gradient, case.inputs, values, seeds)
    kept = [np.array(arguments[i]) for i in special.inputs]
    want = interpret(special.graph, kept)
    before = [a.copy() for a in kept]
    same(compile_graph(special.graph)(*kept), want, exact=False)
    same(kept, before)  # inputs are left alone
    # and it is df: the outputs that were folded away are zero
    whole = dict(enumerate(interpret(gradient.df, arguments)))
    for i, grad in zip(special.outputs, want, strict=True):
        np.testing.assert_allclose(grad, whole.pop(i), rtol=1e-10, atol=1e-12)
    assert not any(grad.any() for grad in whole.values())


def central(
    case: Case, seeds: dict[int, Array], directions: Sequence[Array]
) -> tuple[float, float]:
    """The derivative of sum(seed * output) along the directions, and what it may be off by."""

    def total(h: float) -> float:
        moved = [x + h * d for x, d in zip(case.inputs, directions, strict=True)]
        values = interpret(case.graph, moved)
        return float(sum((values[i] * s).sum() for i, s in seeds.items()))

    coarse, fine = ((total(h) - total(-h)) / (2 * h) for h in (2e-4, 1e-4))
    better = (4 * fine - coarse) / 3  # Richardson: the error of order h**2 is gone
    return better, 1e-7 + 1e-7 * abs(better) + 0.1 * abs(fine - coarse)


def holds_to_differences(case: Case, seed: int) -> None:
    """Skip points where a comparison could tip within the steps; check all inputs at once."""
    assume(margin(case) > 0.02)
    gradient = differentiate(case.graph)
    seeds = seeds_for(case, gradient.df_input_vjps, seed)
    got = gradients(gradient, case.inputs, seeds)
    rng = np.random.default_rng(seed + 1)
    directions = [rng.normal(size=x.shape) for x in case.inputs]
    along = sum(float((got[i] * directions[i]).sum()) for i in got)
    # f with its temporaries, which have cotangents as the outputs do
    want, slack = central(Case(gradient.f, case.inputs), seeds, directions)
    assert abs(along - want) <= slack, f"{along} is not {want} ± {slack}\n{case}"


def margin(case: Case) -> float:
    """How far the closest comparison of two different values is from tipping."""
    known = dict(zip(case.graph.inputs, case.inputs, strict=True))
    distances = [np.inf]

    def see(node: Node, results: Sequence[Array]) -> None:
        known.update(zip(node.outputs, results, strict=True))
        if node.kind == "gt" and node.inputs[0] is not node.inputs[1]:
            a, b = (np.asarray(known[v]) for v in node.inputs)
            distances.append(float(np.abs(a - b).min(initial=np.inf)))
        if node.kind == "amax":
            ordered = np.sort(np.asarray(known[node.inputs[0]]).ravel())
            distances.append(float(np.diff(ordered).min(initial=np.inf)))

    interpret(case.graph, case.inputs, observe=see)
    return min(distances)


@given(graphs(zero=False), st.integers(0, 1000))
@settings(max_examples=100, suppress_health_check=SLOW)
def test_df_of_random_graphs_equals_differences(case: Case, seed: int) -> None:
    holds_to_differences(case, seed)


@given(graphs(zero=False, max_nodes=6), st.integers(0, 1000))
@settings(max_examples=60, suppress_health_check=SLOW)
def test_second_derivatives_of_random_graphs_equal_differences(case: Case, seed: int) -> None:
    """The pullback is a graph as any other: of the inputs and of a cotangent."""
    assume(margin(case) > 0.02)
    twice = pullback_graph(case.graph, range(len(case.inputs)), [0])
    round_trips(twice)
    (cotangent,) = seeds_for(case, [0], seed).values()
    holds_to_differences(Case(twice, [*case.inputs, cotangent]), seed + 2)
