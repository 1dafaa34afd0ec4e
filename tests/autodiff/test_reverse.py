"""The reverse, construct by construct: which nodes df has, what it captures, and its numbers."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from gradof.autodiff.differentiate import differentiate, show_reverse
from gradof.autodiff.zeros import specialize_autograd_zero
from gradof.codegen.host.evaluate import interpret
from gradof.errors import DifferentiationError
from gradof.ir.core import Graph
from gradof.ir.parser import parse_graph
from gradof.ir.verify import verify
from gradof.testing.filecheck import FileCheck
from tests.autodiff.run import gradients, grads_of

LINEAR = """graph linear(%x : f64[4,3], %w : f64[3,2], %b : f64[2]):
  %xw : f64[4,2] = mm(%x, %w)
  %y : f64[4,2] = add(%xw, %b)
  return (%y)"""
TWO_OUTPUTS = """graph two(%x : f64[3], %y : f64[3]):
  %xy : f64[3] = mul(%x, %y)
  %a : f64[3] = sin(%xy)
  %b : f64[3] = exp(%y)
  return (%a, %b)"""
X = np.array([0.5, -1.25, 2.0])
Y = np.array([1.5, 0.25, -0.75])
G = np.array([1.0, -2.0, 0.5])


def kinds(graph: Graph) -> list[str]:
    return [node.kind for node in graph.walk()]


# --- repeated and unused ------------------------------------------------------------------------


def test_a_value_used_twice_by_one_node() -> None:
    graph = parse_graph("graph f(%x : f64[3]): %y : f64[3] = mul(%x, %x) return (%y)")
    gradient = differentiate(graph)
    FileCheck(gradient.df).check("GradOf[name='mul'](%dy)").count("= mul(", 2, exactly=True)
    FileCheck(gradient.df).count("AutogradAdd", 1, exactly=True)
    assert gradient.df_input_captured_inputs == [0]
    np.testing.assert_array_equal(gradients(gradient, [X], {0: G})[0], 2 * X * G)


def test_an_output_returned_twice_adds_its_cotangents() -> None:
    graph = parse_graph("graph f(%x : f64[3]): %y : f64[3] = sin(%x) return (%y, %x, %y)")
    gradient = differentiate(graph)
    assert gradient.df_input_vjps == [0, 1, 2]
    assert gradient.f_real_outputs == len(gradient.f.outputs) == 3
    got = gradients(gradient, [X], {0: G, 1: 3 * G, 2: 10 * G})[0]
    np.testing.assert_allclose(got, 11 * G * np.cos(X) + 3 * G, rtol=1e-14)
    np.testing.assert_array_equal(gradients(gradient, [X], {1: G})[0], G)


def test_an_output_captured_is_captured_once_and_as_its_first() -> None:
    graph = parse_graph("graph f(%x : f64[3]): %y : f64[3] = exp(%x) return (%y, %y)")
    gradient = differentiate(graph)
    assert gradient.df_input_captured_outputs == [0] and len(gradient.f.outputs) == 2


def test_an_unused_input_has_no_gradient_output() -> None:
    graph = parse_graph("""graph f(%u : f64[3], %x : f64[3], %n : i64[3]):
      %dead : f64[3] = exp(%u)
      %sign : bool[3] = gt(%u, %x)
      %y : f64[3] = sin(%x)
      return (%y, %sign)""")
    gradient = differentiate(graph)
    assert (gradient.df_output_vjps, gradient.df_input_vjps) == ([1], [0])
    assert "exp" not in kinds(gradient.f)
    got = gradients(gradient, [Y, X, np.arange(3)], {0: G})
    np.testing.assert_allclose(got[1], G * np.cos(X), rtol=1e-14)


def test_an_output_that_needs_no_gradient_has_no_cotangent() -> None:
    gradient = differentiate(parse_graph(TWO_OUTPUTS), [True, False])
    # 0 is a; 2 is the temporary xy, which a's rule reads; b, output 1, needs no gradient.
    assert gradient.df_input_vjps == [0, 2] and gradient.df_output_vjps == [0]


def test_an_output_without_cotangent_contributes_nothing() -> None:
    got = grads_of(parse_graph(TWO_OUTPUTS), [X, Y], {0: G})
    np.testing.assert_allclose(got[0], G * np.cos(X * Y) * Y, rtol=1e-14)
    np.testing.assert_allclose(got[1], G * np.cos(X * Y) * X, rtol=1e-14)


def test_an_input_returned_as_it_is() -> None:
    gradient = differentiate(parse_graph("graph f(%x : f64[3], %y : f64[3]): return (%y, %x, %y)"))
    assert len(gradient.f.outputs) == 3 and gradient.df_output_vjps == [0, 1]
    got = gradients(gradient, [X, Y], {0: G, 1: X, 2: Y})
    np.testing.assert_array_equal(got[0], X)
    np.testing.assert_array_equal(got[1], G + Y)


def test_nothing_requires_grad() -> None:
    gradient = differentiate(parse_graph(TWO_OUTPUTS), [False, False])
    assert not gradient.df.inputs and not gradient.df.outputs and not kinds(gradient.df)
    assert len(gradient.f.outputs) == 2


# --- flags --------------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", list(product([True, False], repeat=3)))
def test_linear_computes_only_what_is_asked(flags: tuple[bool, ...]) -> None:
    gradient = differentiate(parse_graph(LINEAR), flags)
    assert gradient.df_output_vjps == [i for i, flag in enumerate(flags) if flag]
    assert kinds(gradient.df).count("mm") == flags[0] + flags[1]
    captured = [i for i in (0, 1) if flags[1 - i]]  # dx reads w, dw reads x
    assert gradient.df_input_captured_inputs == captured
    assert gradient.f_real_outputs == len(gradient.f.outputs) == 1
    if not any(flags):
        return
    rng = np.random.default_rng(0)
    x, w, b, g = (rng.normal(size=s) for s in [(4, 3), (3, 2), (2,), (4, 2)])
    got = gradients(gradient, [x, w, b], {0: g})
    want = [g @ w.T, x.T @ g, g.sum(axis=0)]
    for i, grad in got.items():
        np.testing.assert_allclose(grad, want[i], rtol=1e-12)


def test_a_flag_on_an_integer_asks_for_nothing() -> None:
    graph = parse_graph("""graph f(%x : f64[3], %n : i64[3]):
      %c : f64[3] = cast[dtype=f64](%n)
      %y : f64[3] = mul(%x, %c)
      return (%y)""")
    assert differentiate(graph, [True, True]).df_output_vjps == [0]
    assert str(differentiate(graph)) == str(differentiate(graph, [True, True]))


def test_wrong_flags_are_refused() -> None:
    with pytest.raises(DifferentiationError, match="linear has 3 inputs, but 2 requires_grad"):
        differentiate(parse_graph(LINEAR), [True, False])


def test_a_gradof_is_refused_until_it_is_lowered() -> None:
    df = differentiate(parse_graph(LINEAR)).df
    with pytest.raises(DifferentiationError, match="GradOf cannot be differentiated") as caught:
        differentiate(df)
    assert "specialize_autograd_zero" in str(caught.value)


# --- undefined cotangents -----------------------------------------------------------------------


@pytest.mark.parametrize("mask", list(product([True, False], repeat=4)))
def test_every_mask_folds_away(mask: tuple[bool, ...]) -> None:
    """The cotangents of a and b, and of the temporaries xy (read by cos); b is an output."""
    gradient = differentiate(parse_graph(TWO_OUTPUTS))
    assert gradient.df_input_vjps == [0, 1, 2]
    flags = mask[:3]
    wanted = (True, mask[3])
    special = specialize_autograd_zero(gradient.df, flags, wanted)
    verify(special.graph)
    assert not set(kinds(special.graph)) & {"AutogradZero", "AutogradAdd", "GradOf"}
    reaches = (flags[0] or flags[2], mask[3] and any(flags))
    assert special.outputs == [i for i in (0, 1) if reaches[i]]
    given = [G if flag else np.zeros(3) for flag in flags]
    arguments = [*given, X, Y, X * Y, np.exp(Y)]
    order = gradient.df_input_captured_inputs, gradient.df_input_captured_outputs
    assert order == ([0, 1], [2, 1])  # in the order of f's nodes
    dxy = given[0] * np.cos(X * Y) + given[2]
    want = [dxy * Y, dxy * X + given[1] * np.exp(Y)]
    got = interpret(special.graph, [arguments[i] for i in special.inputs])
    for i, grad in zip(special.outputs, got, strict=True):
        np.testing.assert_allclose(grad, want[i], rtol=1e-13)


def test_undefined_cotangents_leave_no_operation_behind() -> None:
    gradient = differentiate(parse_graph(TWO_OUTPUTS))
    special = specialize_autograd_zero(gradient.df, [False, True, False])
    assert kinds(special.graph) == ["mul"] and special.outputs == [1]
    # positions of the one defined cotangent, and of the capture that is read for it
    assert special.inputs == [1, 6]


def test_an_integer_output_of_a_node_has_no_cotangent() -> None:
    graph = parse_graph("""graph f(%x : f64[3]):
      %v : f64[3], %i : i64[3] = sort[dim=0, descending=False, stable=True](%x)
      return (%v, %i)""")
    gradient = differentiate(graph)
    assert gradient.df_input_vjps == [0]
    np.testing.assert_array_equal(gradients(gradient, [X], {0: G})[0], G[np.argsort(np.argsort(X))])


def test_masks_of_a_wrong_length_are_refused() -> None:
    df = differentiate(parse_graph(TWO_OUTPUTS)).df
    with pytest.raises(DifferentiationError, match="fewer than 20 inputs"):
        specialize_autograd_zero(df, [True] * 20)
    with pytest.raises(DifferentiationError, match="df has 2 outputs, not 1"):
        specialize_autograd_zero(df, [True] * 3, [True])


# --- what is captured ---------------------------------------------------------------------------


def test_a_size_is_recomputed_where_its_array_is_saved_anyway() -> None:
    text = """graph f(%x : f64[*]):
      %e : f64[*] = {op}(%x)
      %s : f64[*] = sum[dims=None, keepdims=False](%e)
      return (%s)"""
    saved = differentiate(parse_graph(text.format(op="exp")))
    assert "size" not in kinds(saved.f) and "size" in kinds(saved.df)
    assert [str(v.type) for v in saved.f.outputs] == ["f64[*]", "f64[*]"]
    other = differentiate(parse_graph(text.format(op="sin")))
    assert "size" in kinds(other.f) and "size" not in kinds(other.df)
    assert [str(v.type) for v in other.f.outputs] == ["f64[*]", "size"]
    x = np.arange(6.0).reshape(2, 3)
    got = [gradients(g, [x], {0: np.array(2.0)})[0] for g in (saved, other)]
    np.testing.assert_allclose(got[0], 2 * np.exp(x), rtol=1e-14)
    np.testing.assert_allclose(got[1], 2 * np.cos(x), rtol=1e-14)


def test_a_view_is_taken_again_and_its_base_is_saved() -> None:
    graph = parse_graph("""graph f(%x : f64[2,3], %w : f64[2,3]):
      %s : f64[2,3] = sin(%x)
      %t : f64[3,2] = permute[dims=(1, 0)](%s)
      %r : f64[6] = reshape[shape=(6,)](%t)
      %k : f64[6] = reshape[shape=(6,)](%w)
      %y : f64[6] = mul(%r, %k)
      return (%y)""")
    gradient = differentiate(graph)
    assert gradient.df_input_captured_inputs == [0, 1]  # x for cos, w for k
    assert [v.hint for v in gradient.f.outputs] == ["y", "s"]
    assert kinds(gradient.df)[:3].count("GradOf") == 0
    rng = np.random.default_rng(3)
    x, w, g = rng.normal(size=(2, 3)), rng.normal(size=(2, 3)), rng.normal(size=6)
    got = gradients(gradient, [x, w], {0: g})
    back = (g * w.reshape(6)).reshape(3, 2).T
    np.testing.assert_allclose(got[0], back * np.cos(x), rtol=1e-13)
    np.testing.assert_allclose(got[1], (g * np.sin(x).T.reshape(6)).reshape(2, 3), rtol=1e-13)


def test_a_view_that_is_an_output_is_captured_as_that_output() -> None:
    graph = parse_graph("""graph f(%x : f64[2,3]):
      %s : f64[2,3] = exp(%x)
      %t : f64[3,2] = permute[dims=(1, 0)](%s)
      %y : f64[3,2] = mul(%t, %t)
      return (%y, %t)""")
    gradient = differentiate(graph)
    # exp(x) is the temporary; the permuted one is output 1, so it needs no second copy.
    assert gradient.df_input_captured_outputs == [2, 1]


def test_constants_are_made_anew_not_captured() -> None:
    graph = parse_graph("""graph f(%x : f64[3]):
      %c : float = Constant[value=3.0]()
      %k : f64[3] = full[dtype=f64, shape=(3,), device='cpu', value=2.0]()
      %a : f64[3] = mul(%x, %c)
      %b : f64[3] = mul(%a, %k)
      return (%b)""")
    gradient = differentiate(graph)
    assert gradient.df_input_captured_inputs == gradient.df_input_captured_outputs == []
    assert kinds(gradient.df)[:2] == ["Constant", "full"] or kinds(gradient.df)[:2] == [
        "full", "Constant",
    ]
    np.testing.assert_array_equal(gradients(gradient, [X], {0: G})[0], 6 * G)


def test_detach_cuts_and_leaves_no_trace() -> None:
    graph = parse_graph("""graph f(%x : f64[3]):
      %e : f64[3] = exp(%x)
      %c : f64[3] = detach(%e)
      %y : f64[3] = mul(%c, %x)
      return (%y)""")
    gradient = differentiate(graph)
    assert kinds(gradient.df).count("GradOf") == 1
    np.testing.assert_allclose(gradients(gradient, [X], {0: G})[0], G * np.exp(X), rtol=1e-14)
    cut = differentiate(parse_graph("graph f(%x : f64[3]): %c : f64[3] = detach(%x) return (%c)"))
    assert cut.df_input_vjps == cut.df_output_vjps == []


def test_equal_values_have_one_gradient_whichever_path_they_take() -> None:
    """The value that is saved was written twice, and the first time it was cut off."""
    graph = parse_graph("""graph f(%x : f64[3], %y : f64[3]):
      %first : f64[3] = mul(%x, %y)
      %c : f64[3] = detach(%first)
      %again : f64[3] = mul(%x, %y)
      %s : f64[3] = sin(%again)
      %r : f64[3] = mul(%s, %c)
      return (%r)""")
    gradient = differentiate(graph)
    temporaries = [v.hint for v in gradient.f.outputs[1:]]
    with_cotangent = [gradient.f.outputs[i].hint for i in gradient.df_input_vjps[1:]]
    assert "first" in temporaries and "first" in with_cotangent
    assert kinds(gradient.f).count("mul") == 2


def test_the_graph_itself_is_left_as_it_was() -> None:
    graph = parse_graph(TWO_OUTPUTS)
    before = str(graph)
    differentiate(graph)
    show_reverse(graph)
    specialize_autograd_zero(differentiate(graph).df, [True, False, False])
    assert str(graph) == before


def test_the_text_is_the_same_every_time() -> None:
    text = """graph f(%x : f64[*], %y : f64[*]):
      %a : f64[*] = exp(%x)
      %s : f64[*] = sum[dims=None, keepdims=False](%a)
      %b : f64[*] = exp(%y)
      %t : f64[*] = sum[dims=None, keepdims=False](%b)
      %r : f64[*] = mul(%s, %t)
      return (%r)"""
    texts = {str(differentiate(parse_graph(text))) for _ in range(20)}
    assert len(texts) == 1
