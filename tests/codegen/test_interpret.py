"""The reference evaluator: gradient blocks, symbolic zeros, sizes, composites, refusals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from gradof.autodiff.compose import pullback_graph
from gradof.autodiff.differentiate import differentiate
from gradof.autodiff.zeros import specialize_autograd_zero
from gradof.codegen import compile_graph
from gradof.codegen.host.evaluate import ZERO, interpret
from gradof.errors import CodegenError
from gradof.ir.core import Node
from gradof.ir.parser import parse_graph
from gradof.passes.expand_composites import expand_composites
from gradof.passes.pipeline import CLEAN_UP, run_passes
from tests.strategies import Case, graphs

pytestmark = pytest.mark.usefixtures("op_by_op")

ZERO_TEXT = "AutogradZero[dtype=f64, shape=(2,), device='cpu']()"


def test_values_and_what_observe_sees() -> None:
    graph = parse_graph("""graph f(%x : f64[2]):
      %c : float = Constant[value=2.0]()
      %y : f64[2] = mul(%x, %c)
      %s : f64[] = sum[dims=(0,), keepdims=False](%y)
      return (%s, %x)""")
    seen: list[tuple[str, Any]] = []

    def observe(node: Node, results: Sequence[Any]) -> None:
        seen.append((node.kind, *(np.array(r).tolist() for r in results)))

    x = np.array([1.0, 2.0])
    s, again = interpret(graph, [x], observe=observe)
    assert seen == [("Constant", 2.0), ("mul", [2.0, 4.0]), ("sum", 6.0)]
    assert type(s) is np.ndarray and s.item() == 6.0
    assert not np.shares_memory(again, x)


def gradof_text(*zeros: bool) -> str:
    """A block of two incoming gradients, each symbolically zero or not."""
    names = ["%z" if zero else f"%g{i}" for i, zero in enumerate(zeros)]
    return f"""graph f(%g0 : f64[2], %g1 : f64[2]):
      %z : f64[2] = {ZERO_TEXT}
      %d : f64[2] = GradOf[name='pair']({", ".join(names)})
        block():
          %a : f64[2] = exp({names[0]})
          %b : f64[2] = add(%a, {names[1]})
          -> (%b)
      %sum : f64[2] = AutogradAdd(%d, %g0)
      return (%d, %sum)"""


@pytest.mark.parametrize("zeros", [(False, False), (True, False), (False, True), (True, True)])
def test_a_gradient_block_runs_unless_all_that_comes_in_is_zero(zeros: tuple[bool, bool]) -> None:
    g = [np.array([1.0, 2.0]), np.array([3.0, 4.0])]
    ran: list[str] = []
    d, total = interpret(
        parse_graph(gradof_text(*zeros)), g, observe=lambda node, _: ran.append(node.kind)
    )
    first, second = (np.zeros(2) if zero else x for zero, x in zip(zeros, g, strict=True))
    want = np.zeros(2) if all(zeros) else np.exp(first) + second
    np.testing.assert_array_equal(d, want)
    np.testing.assert_array_equal(total, want + g[0])
    assert ("exp" in ran) != all(zeros)


def test_an_input_may_be_zero_and_a_zero_output_is_made_real() -> None:
    graph = parse_graph("""graph f(%x : f32[2], %y : f32[2]):
      %s : f32[2] = AutogradAdd(%x, %y)
      %t : f32[2] = neg(%s)
      return (%s, %t)""")
    s, t = interpret(graph, [ZERO, ZERO])
    for result in (s, t):
        assert result.dtype == np.float32
        np.testing.assert_array_equal(result, np.zeros(2))
    one = np.ones(2, np.float32)
    np.testing.assert_array_equal(interpret(graph, [ZERO, one])[1], -one)


SIZES = """graph f(%x : f64[*], %y : f64[*], %g : f64[*]):
  %z : f64[*] = mul(%x, %y)
  %sx : size = size(%x)
  %sz : size = size(%z)
  %n : size = _size_if_not_equal(%sx, %sz)
  %p : f64[*] = mul(%g, %y)
  %dx : f64[*] = _grad_sum_to_size(%p, %n)
  %e : f64[*] = expand_to_size(%dx, %sz)
  return (%dx, %e)"""


@pytest.mark.parametrize("shape", [(3, 4), (4,), (3, 1), (1, 1), ()])
def test_sizes_known_at_run_time(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    x, y, g = rng.random(shape), rng.random((3, 4)), rng.random((3, 4))
    graph = parse_graph(SIZES)
    want = g * y
    lead = tuple(range(2 - len(shape)))
    want = want.sum(lead) if lead else want
    want = want.sum(tuple(i for i, n in enumerate(shape) if n == 1), keepdims=True)
    for dx, e in (interpret(graph, [x, y, g]), compile_graph(graph)(x, y, g)):
        assert dx.shape == shape and e.shape == (3, 4) and e.flags.writeable
        np.testing.assert_allclose(dx, want, rtol=1e-13)
        np.testing.assert_array_equal(e, np.broadcast_to(dx, (3, 4)))
        assert not np.shares_memory(dx, e)


def test_composites_are_expanded_as_they_are_met() -> None:
    graph = parse_graph("""graph f(%x : f64[2,3]):
      %y : f64[2,3] = softmax[dim=1](%x)
      %l : f64[2,3] = log_softmax[dim=1](%x)
      %m : f64[] = mean[dims=(0, 1), keepdims=False](%y)
      return (%y, %l, %m)""")
    x = np.random.default_rng(0).random((2, 3))
    y, log, m = interpret(graph, [x])
    e = np.exp(x)
    np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=1e-13)
    np.testing.assert_allclose(log, np.log(y), rtol=1e-12)
    np.testing.assert_allclose(m, y.mean(), rtol=1e-13)


@settings(max_examples=60)
@given(graphs(max_nodes=8))
def test_df_gives_the_same_with_blocks_and_without(case: Case) -> None:
    """df with its GradOf blocks, interpreted, and df specialised, emitted."""
    gradient = differentiate(case.graph)
    run_passes(gradient.f, ("expand-composites",))
    forward = interpret(gradient.f, case.inputs)
    rng = np.random.default_rng(0)
    seeds = [rng.random(v.type.shape) for v in gradient.df.inputs[: len(gradient.df_input_vjps)]]  # type: ignore[union-attr]  # shapes of tensors
    captured = [*(case.inputs[i] for i in gradient.df_input_captured_inputs),
                *(forward[i] for i in gradient.df_input_captured_outputs)]  # fmt: skip
    want = interpret(gradient.df, [*seeds, *captured])
    special = specialize_autograd_zero(
        gradient.df, (True,) * len(seeds), (True,) * len(gradient.df.outputs)
    )
    expand_composites(special.graph)
    run_passes(special.graph, CLEAN_UP)
    given_inputs = [[*seeds, *captured][i] for i in special.inputs]
    have = compile_graph(special.graph)(*given_inputs)
    for i, result in zip(special.outputs, have, strict=True):
        np.testing.assert_allclose(result, want[i], rtol=1e-10, atol=1e-10)
    dropped = set(range(len(want))) - set(special.outputs)
    for i in dropped:
        assert not want[i].any()


def test_torch_runs_what_is_torch_s() -> None:
    graph = parse_graph("""graph f(%x : f32[2,2], %w : f32[2,2]):
      %h : f32[2,2] = mm(%x, %w)
      %y : f32[2,2] = sigmoid(%h)
      return (%y)""")
    import torch

    x, w = np.random.default_rng(0).random((2, 2, 2)).astype(np.float32)
    want = torch.sigmoid(torch.from_numpy(x) @ torch.from_numpy(w)).numpy()
    with torch.autocast("cpu"):  # what autocast does is in the graph; it is not done again
        results = [interpret(graph, [x, w], library="torch"),
                   compile_graph(graph, library="torch")(x, w)]  # fmt: skip
    for (result,) in results:
        assert result.dtype == np.float32
        np.testing.assert_array_equal(result, want)


def test_gradients_of_a_pullback() -> None:
    graph = parse_graph("graph f(%x : f64[3]): %y : f64[3] = tanh(%x) return (%y)")
    pullback = pullback_graph(graph, [0], [0])
    x, g = np.array([0.1, 0.2, 0.3]), np.ones(3)
    for (result,) in (interpret(pullback, [x, g]), compile_graph(pullback)(x, g)):
        np.testing.assert_allclose(result, 1 - np.tanh(x) ** 2, rtol=1e-13)


@pytest.mark.parametrize(
    ("text", "inputs", "message"),
    [
        ("graph f(%x : f32[2]): %y : f32[2] = tanh(%x) return (%y)", 2, "f takes 1 inputs, got 2"),
        ("graph f(%x : f32[2]): %y : f32[2] = what(%x)  # a.py:3\nreturn (%y)", 1, "what cannot"),
        ("graph f(%x : f32[2]): %z : f32[*] = AutogradZero[dtype=f32, shape=None, device='cpu']()"
         "\n%y : f32[*] = tanh(%z)  # a.py:3\nreturn (%y)", 1, "symbolic zero of unknown shape"),
    ],
)  # fmt: skip
def test_refusals(text: str, inputs: int, message: str) -> None:
    with pytest.raises(CodegenError, match=message):
        interpret(parse_graph(text), [np.ones(2, np.float32)] * inputs)
