"""Each pass on its own: the text before, the text after, and what it must leave alone."""

from __future__ import annotations

import numpy as np
import pytest

from gradof.errors import TargetError
from gradof.ir.core import Graph
from gradof.ir.parser import parse_graph
from gradof.ir.verify import verify
from gradof.passes.eliminate_dead_code import eliminate_dead_code_in
from gradof.passes.pipeline import PASSES, run_passes
from gradof.passes.purity import is_constant, is_pure, is_view

HEAD = "graph f(%x : f64[2,3], %y : f64[2,3]):\n"


def after(name: str, body: str) -> Graph:
    """The graph of `body` after one pass, which says truly whether it changed anything."""
    graph = parse_graph(HEAD + body)
    before = str(graph)
    changed = PASSES[name](graph)
    verify(graph)
    assert changed == (str(graph) != before)
    assert not PASSES[name](graph), "a second run finds nothing left to do"
    return graph


def becomes(name: str, body: str, want: str) -> None:
    assert str(after(name, body)) == str(parse_graph(HEAD + want))


def stays(name: str, body: str) -> None:
    becomes(name, body, body)


# --- canonicalize -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "node",
    [
        "%z : f64[2,3] = cast[dtype=f64](%x)",
        "%z : f64[2,3] = reshape[shape=(2, 3)](%x)",
        "%z : f64[2,3] = permute[dims=(0, 1)](%x)",
        "%z : f64[2,3] = expand[shape=(2, 3)](%x)",
        "%z : f64[2,3] = sum_to[shape=(2, 3)](%x)",
        "%z : f64[2,3] = alias(%x)",
        "%n : f64[2,3] = neg(%x)\n  %z : f64[2,3] = neg(%n)",
        "%n : f64[3,2] = permute[dims=(1, 0)](%x)\n  %z : f64[2,3] = permute[dims=(1, 0)](%n)",
        "%n : f64[6] = reshape[shape=(6,)](%x)\n  %z : f64[2,3] = reshape[shape=(2, 3)](%n)",
        "%n : float = Constant[value=1.0]()\n  %z : f64[2,3] = mul(%x, %n)",
        "%n : float = Constant[value=1.0]()\n  %z : f64[2,3] = div(%x, %n)",
        '%s : f64[] = full[dtype=f64, shape=(), device="cpu", value=1.0]()\n'
        "  %n : f64[2,3] = expand[shape=(2, 3)](%s)\n  %z : f64[2,3] = mul(%n, %x)",
    ],
)
def test_canonicalize_drops_what_passes_its_operand_on(node: str) -> None:
    graph = after("canonicalize", f"{node}\n  %r : f64[2,3] = sin(%z)\n  return (%r)")
    run_passes(graph, ["eliminate-dead-code"])
    assert [n.kind for n in graph.nodes()] == ["sin"]
    assert next(iter(graph.nodes())).inputs == (graph.inputs[0],)


def test_canonicalize_computes_what_is_uniform_in_its_dtype() -> None:
    graph = parse_graph("""graph f(%x : f32[4]):
      %c : float = Constant[value=0.1]()
      %n : int = Constant[value=3]()
      %a : f32[4] = full[dtype=f32, shape=(4,), device="cpu", value=0.7]()
      %b : f32[4] = mul(%a, %c)
      %d : f32[4] = neg(%b)
      %e : f32[4] = div(%d, %n)
      %g : f32[4] = add(%e, %a)
      %y : f32[4] = mul(%g, %x)
      return (%y)""")
    run_passes(graph, ["canonicalize", "eliminate-dead-code"])
    number, product = graph.nodes()
    a, c = np.float32(0.7), np.float32(0.1)
    assert number.attrs["value"] == float(-(a * c) / np.float32(3) + a)
    assert product.kind == "mul" and set(product.inputs) == {number.output, graph.inputs[0]}


def test_canonicalize_computes_nothing_that_is_not_finite_or_has_another_shape() -> None:
    stays(
        "canonicalize",
        """%0 : float = Constant[value=0.0]()
        %a : f64[3] = full[dtype=f64, shape=(3,), device="cpu", value=1.0]()
        %b : f64[2,1] = full[dtype=f64, shape=(2, 1), device="cpu", value=1.5]()
        %1 : int = Constant[value=1000000000000000000000]()
        %c : f64[3] = div(%a, %0)
        %d : f64[2,3] = add(%a, %b)
        %e : f64[3] = mul(%a, %1)
        return (%c, %d, %e)""",
    )


def test_canonicalize_leaves_broadcasting_to_the_op() -> None:
    graph = after(
        "canonicalize",
        """%s : f64[] = sum[dims=(0, 1), keepdims=False](%x)
        %a : f64[1,1] = reshape[shape=(1, 1)](%s)
        %b : f64[2,3] = expand[shape=(2, 3)](%a)
        %z : f64[2,3] = sub(%b, %x)
        return (%z)""",
    )
    run_passes(graph, ["eliminate-dead-code"])
    total, difference = graph.nodes()
    assert difference.inputs == (total.output, graph.inputs[0])


def test_canonicalize_keeps_an_expand_that_makes_the_shape() -> None:
    stays(
        "canonicalize",
        """%s : f64[] = sum[dims=(0, 1), keepdims=False](%x)
        %b : f64[2,3] = expand[shape=(2, 3)](%s)
        %z : f64[2,3] = sin(%b)
        return (%z)""",
    )


def test_canonicalize_folds_views_of_views() -> None:
    becomes(
        "canonicalize",
        """%a : f64[3,2] = reshape[shape=(3, 2)](%x)
        %b : f64[6] = reshape[shape=(6,)](%a)
        return (%a, %b)""",
        """%a : f64[3,2] = reshape[shape=(3, 2)](%x)
        %b : f64[6] = reshape[shape=(6,)](%x)
        return (%a, %b)""",
    )


def test_canonicalize_keeps_one_of_two_detachments() -> None:
    graph = parse_graph(HEAD + """%a : f64[2,3] = detach(%x)
      %b : f64[2,3] = detach(%a)
      %c : f64[2,3] = detach(%b)
      return (%c)""")
    run_passes(graph, ["canonicalize", "eliminate-dead-code"])
    (node,) = graph.nodes()
    assert node.kind == "detach" and node.inputs == (graph.inputs[0],)


def test_canonicalize_composes_permutations_in_their_order() -> None:
    graph = parse_graph("""graph f(%x : f64[2,3,4]):
      %a : f64[3,4,2] = permute[dims=(1, 2, 0)](%x)
      %b : f64[4,3,2] = permute[dims=(1, 0, 2)](%a)
      return (%b)""")
    run_passes(graph, ["canonicalize", "eliminate-dead-code"])
    (node,) = graph.nodes()
    assert node.attrs["dims"] == (2, 1, 0)


@pytest.mark.parametrize(
    "body",
    [
        "%z : f32[2,3] = cast[dtype=f32](%x)\n  return (%z)",
        "%z : f64[3,2] = reshape[shape=(3, 2)](%x)\n  return (%z)",
        "%z : f64[2,3] = copy(%x)\n  return (%z)",  # a fresh array, as the caller asked
        "%z : f64[2,3] = detach(%x)\n  return (%z)",  # cuts the gradient
        "%z : f64[2,3] = sin(%x)\n  %w : f64[2,3] = neg(%z)\n  return (%w)",
        "%f : f32[2,3] = cast[dtype=f32](%x)\n  %z : f64[2,3] = cast[dtype=f64](%f)\n  return (%z)",
    ],
)
def test_canonicalize_leaves_what_changes_a_bit(body: str) -> None:
    stays("canonicalize", body)


def test_canonicalize_leaves_a_square_transpose() -> None:
    text = "graph f(%x : f64[3,3]): %t : f64[3,3] = permute[dims=(1, 0)](%x) return (%t)"
    graph = parse_graph(text)
    assert not PASSES["canonicalize"](graph) and graph == parse_graph(text)


def test_canonicalize_leaves_unknown_shapes() -> None:
    text = """graph f(%x : f64[*], %y : f64[*]):
      %s : size = size(%y)
      %t : f64[*] = _grad_sum_to_size(%x, %s)
      %c : f64[*] = cast[dtype=f64](%t)
      return (%c)"""
    graph = parse_graph(text)
    assert not PASSES["canonicalize"](graph) and graph == parse_graph(text)


# --- common-subexpression -----------------------------------------------------------------------


def test_cse_merges_equal_nodes_and_then_their_users() -> None:
    becomes(
        "common-subexpression",
        """%a : f64[2,3] = exp(%x)
        %b : f64[2,3] = exp(%x)
        %c : f64[2,3] = mul(%a, %y)
        %d : f64[2,3] = mul(%b, %y)
        %r : f64[2,3] = add(%c, %d)
        return (%r, %d)""",
        """%a : f64[2,3] = exp(%x)
        %c : f64[2,3] = mul(%a, %y)
        %r : f64[2,3] = add(%c, %c)
        return (%r, %c)""",
    )


@pytest.mark.parametrize(
    "pair",
    [
        ("exp(%x)", "exp(%y)"),
        ("sub(%x, %y)", "sub(%y, %x)"),
        ("cumsum[dim=0](%x)", "cumsum[dim=1](%x)"),
        ("full[dtype=f64, shape=(2, 3), device='cpu', value=0.0]()",
         "full[dtype=f64, shape=(2, 3), device='cpu', value=-0.0]()"),
        ("full[dtype=f64, shape=(2, 3), device='cpu', value=1.0]()",
         "full[dtype=f64, shape=(2, 3), device='cpu', value=1]()"),
    ],
)  # fmt: skip
def test_cse_tells_apart(pair: tuple[str, str]) -> None:
    stays(
        "common-subexpression",
        f"%a : f64[2,3] = {pair[0]}\n  %b : f64[2,3] = {pair[1]}\n  return (%a, %b)",
    )


def test_cse_merges_nan_with_nan() -> None:
    node = "full[dtype=f64, shape=(2, 3), device='cpu', value=nan]()"
    graph = after(
        "common-subexpression",
        f"%a : f64[2,3] = {node}\n  %b : f64[2,3] = {node}\n  return (%a, %b)",
    )
    assert len(graph.block) == 1


def test_cse_keeps_to_its_block() -> None:
    """A value of the forward read in a GradOf would have to be saved."""
    stays(
        "common-subexpression",
        """%a : f64[2,3] = exp(%x)
        %d : f64[2,3] = GradOf[name='exp'](%y)
          block():
            %e : f64[2,3] = exp(%x)
            %m : f64[2,3] = mul(%y, %e)
            -> (%m)
        return (%d, %a)""",
    )


def test_random_draws_are_neither_merged_nor_dropped() -> None:
    draw = "uniform[low=0.0, high=1.0, shape=(2, 3), dtype=f64, device='cpu']()"
    body = f"""%a : f64[2,3] = {draw}
      %b : f64[2,3] = {draw}
      %dead : f64[2,3] = {draw}
      %r : f64[2,3] = sub(%a, %b)
      return (%r)"""
    for name in PASSES:
        stays(name, body)


# --- constant-pooling ---------------------------------------------------------------------------


def test_pooling_keeps_one_of_each_at_the_top() -> None:
    becomes(
        "constant-pooling",
        """%a : f64[2,3] = exp(%x)
        %c : float = Constant[value=2.0]()
        %b : f64[2,3] = mul(%a, %c)
        %d : float = Constant[value=2.0]()
        %e : f64[2,3] = mul(%b, %d)
        %i : int = Constant[value=2]()
        %r : f64[2,3] = mul(%e, %i)
        return (%r)""",
        """%c : float = Constant[value=2.0]()
        %i : int = Constant[value=2]()
        %a : f64[2,3] = exp(%x)
        %b : f64[2,3] = mul(%a, %c)
        %e : f64[2,3] = mul(%b, %c)
        %r : f64[2,3] = mul(%e, %i)
        return (%r)""",
    )


def test_pooling_tells_zeros_and_kinds_apart() -> None:
    graph = after(
        "constant-pooling",
        """%a : float = Constant[value=0.0]()
        %b : float = Constant[value=-0.0]()
        %c : int = Constant[value=0]()
        %d : bool = Constant[value=False]()
        %e : float = Constant[value=nan]()
        %f : float = Constant[value=nan]()
        return (%a, %b, %c, %d, %e, %f)""",
    )
    assert len(graph.block) == 5 and graph.outputs[4] is graph.outputs[5]


def test_pooling_lifts_out_of_blocks() -> None:
    becomes(
        "constant-pooling",
        """%d : f64[2,3] = GradOf[name='mul'](%y)
          block():
            %c : float = Constant[value=2.0]()
            %m : f64[2,3] = mul(%y, %c)
            -> (%m)
        return (%d)""",
        """%c : float = Constant[value=2.0]()
        %d : f64[2,3] = GradOf[name='mul'](%y)
          block():
            %m : f64[2,3] = mul(%y, %c)
            -> (%m)
        return (%d)""",
    )


# --- eliminate-dead-code ------------------------------------------------------------------------


def test_dead_chains_go_whole() -> None:
    becomes(
        "eliminate-dead-code",
        """%a : f64[2,3] = exp(%x)
        %b : f64[2,3] = sin(%a)
        %c : f64[2,3] = cos(%b)
        %r : f64[2,3] = tanh(%a)
        return (%r)""",
        """%a : f64[2,3] = exp(%x)
        %r : f64[2,3] = tanh(%a)
        return (%r)""",
    )


def test_dead_outputs_of_a_gradof_go_with_their_part_of_the_body() -> None:
    becomes(
        "eliminate-dead-code",
        """%p : f64[2,3], %q : f64[2,3] = GradOf[name='mul'](%y)
          block():
            %a : f64[2,3] = mul(%y, %x)
            %b : f64[2,3] = exp(%y)
            -> (%a, %b)
        return (%q)""",
        """%q : f64[2,3] = GradOf[name='mul'](%y)
          block():
            %b : f64[2,3] = exp(%y)
            -> (%b)
        return (%q)""",
    )


def test_dead_values_are_reported() -> None:
    graph = parse_graph(HEAD + """%a : f64[2,3] = exp(%x)
        %p : f64[2,3], %q : f64[2,3] = GradOf[name='mul'](%y)
          block():
            %b : f64[2,3] = sin(%y)
            -> (%b, %y)
        return (%q)""")
    gone: list[str | None] = []
    assert eliminate_dead_code_in(graph.block, lambda value: gone.append(value.hint))
    assert sorted(str(hint) for hint in gone) == ["a", "b", "p"]


# --- expand-composites --------------------------------------------------------------------------


def test_composites_become_primitives_under_their_name_and_line() -> None:
    graph = after("expand-composites", "%s : f64[2,3] = softmax[dim=1](%x)  # m.py:3\n return (%s)")
    assert "softmax" not in [node.kind for node in graph.nodes()]
    assert {str(node.loc) for node in graph.nodes()} == {"m.py:3"}
    assert graph.outputs[0].hint == "s"


def test_a_graph_of_primitives_stays() -> None:
    stays("expand-composites", "%s : f64[2,3] = exp(%x)\n return (%s)")


# --- the pipeline -------------------------------------------------------------------------------


def test_unknown_passes_are_refused() -> None:
    with pytest.raises(TargetError, match="unknown pass 'inline-everything'") as caught:
        run_passes(parse_graph(HEAD + "return (%x)"), ["canonicalize", "inline-everything"])
    assert "common-subexpression" in str(caught.value)


def test_purity() -> None:
    graph = parse_graph(HEAD + """%c : float = Constant[value=2.0]()
        %t : f64[3,2] = permute[dims=(1, 0)](%x)
        %e : f64[3,2] = mul(%t, %c)
        return (%e)""")
    constant, view, plain = graph.nodes()
    assert [is_pure(n) for n in graph.nodes()] == [True] * 3
    assert [is_constant(n) for n in graph.nodes()] == [True, False, False]
    assert [is_view(n) for n in (constant, view, plain)] == [False, True, False]
