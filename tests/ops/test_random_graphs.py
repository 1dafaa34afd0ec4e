"""Random graphs: the reverse, and the reverse of the reverse, against finite differences."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings

from gradof.autodiff.compose import pullback_graph
from gradof.autodiff.differentiate import differentiate
from gradof.ir.parser import parse_graph
from gradof.ir.types import F32, F64
from gradof.ir.verify import verify
from tests.ops.reference import evaluate
from tests.ops.test_elementwise import check_differences
from tests.strategies import Case, graphs

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


@settings(max_examples=30, suppress_health_check=SLOW)
@given(graphs())
def test_gradients_to_second_order(case: Case) -> None:
    before = [a.copy() for a in case.inputs]
    wrt = list(range(len(case.inputs)))
    first = check_differences(case.graph, case.inputs, wrt)
    rng = np.random.default_rng(9)
    seeds = [rng.standard_normal(v.type.shape) for v in case.graph.outputs]  # type: ignore[union-attr]
    check_differences(first, [*case.inputs, *seeds], wrt)
    for array, copy in zip(case.inputs, before, strict=True):
        np.testing.assert_array_equal(array, copy)


@settings(max_examples=30, suppress_health_check=SLOW)
@given(graphs(dtypes=(F32, F64)))
def test_f_and_df_are_valid_print_and_keep_their_layout(case: Case) -> None:
    text = str(case.graph)
    gradient = differentiate(case.graph)
    assert str(case.graph) == text, "differentiate works on a copy"
    for part in (gradient.f, gradient.df):
        verify(part)
        assert parse_graph(str(part)) == part
    f, df, real = gradient.f, gradient.df, gradient.f_real_outputs
    assert real == len(case.graph.outputs)
    assert len(df.inputs) == sum(map(len, (
        gradient.df_input_vjps, gradient.df_input_captured_inputs,
        gradient.df_input_captured_outputs)))  # fmt: skip
    assert len(df.outputs) == len(gradient.df_output_vjps)
    for value, i in zip(df.outputs, gradient.df_output_vjps, strict=True):
        assert value.type == f.inputs[i].type
    outputs = [*gradient.df_input_vjps, *gradient.df_input_captured_outputs]
    assert all(0 <= i < len(f.outputs) for i in outputs)
    have, want = evaluate(f, *case.inputs)[:real], evaluate(case.graph, *case.inputs)
    for h, w in zip(have, want, strict=True):
        np.testing.assert_array_equal(h, w)


@settings(max_examples=30, suppress_health_check=SLOW)
@given(graphs(dtypes=(F32,)))
def test_gradients_in_single_precision_are_those_in_double(case: Case) -> None:
    wide = parse_graph(str(case.graph).replace("f32", "f64"))
    wrt, outputs = range(len(case.inputs)), range(len(case.graph.outputs))
    inputs = [a.astype(np.float64) for a in case.inputs]
    seeds = [np.ones(v.type.shape or ()) for v in wide.outputs]  # type: ignore[union-attr]
    want = evaluate(pullback_graph(wide, wrt, outputs), *inputs, *seeds)
    have = evaluate(pullback_graph(case.graph, wrt, outputs), *case.inputs,
                    *(s.astype(np.float32) for s in seeds))  # fmt: skip
    for h, w in zip(have, want, strict=True):
        assert h.dtype == np.float32
        scale = np.abs(w).max(initial=1.0)
        np.testing.assert_allclose(h, w, rtol=1e-3, atol=1e-4 * scale)
