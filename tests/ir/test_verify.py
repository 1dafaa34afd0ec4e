"""The verifier finds each kind of breakage, and shows the node, its line and its neighbours."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings

from gradof.errors import VerifyError
from gradof.ir.core import Graph, Loc, Node, Use
from gradof.ir.parser import parse_graph
from gradof.ir.types import F32, F64, TensorType
from gradof.ir.verify import verify
from tests.strategies import Case, graphs

TEXT = """graph f(%x : f32[3], %w : f32[3]):
  %a : f32[3] = sin(%x)  # m.py:1
  %b : f32[3] = cos(%a)  # m.py:2
  %c : f32[3] = mul(%b, %w)  # m.py:3
  %d : f32[3] = GradOf[name='mul'](%c)  # m.py:4
    block():
      %e : f32[3] = mul(%c, %w)  # m.py:5
      -> (%e)
  %g : f32[3] = tanh(%d)  # m.py:6
  %h : f32[3] = neg(%g)  # m.py:7
  return (%h)
"""
T = TensorType(F32, (3,))


def at(graph: Graph, line: int) -> Node:
    (node,) = [n for n in graph.walk() if n.loc == Loc("m.py", line)]
    return node


def used_before_defined(g: Graph) -> None:
    at(g, 1).move_before(at(g, 3))


def used_outside_its_block(g: Graph) -> None:
    at(g, 6).replace_input(0, at(g, 5).output)


def from_another_graph(g: Graph) -> None:
    at(g, 3).replace_input(1, parse_graph(TEXT).inputs[1])


def returned_from_another_graph(g: Graph) -> None:
    g.set_outputs([parse_graph(TEXT).inputs[1]])


def wrong_type(g: Graph) -> None:
    at(g, 3).output.type = TensorType(F32, (4,))


def wrong_dtype(g: Graph) -> None:
    g.inputs[1].type = TensorType(F64, (3,))


def wrong_block_type(g: Graph) -> None:
    at(g, 4).output.type = TensorType(F32, ())


def stale_use(g: Graph) -> None:
    at(g, 2).output._uses[Use(at(g, 1), 0)] = None


def use_past_the_end(g: Graph) -> None:
    at(g, 2).output._uses[Use(at(g, 1), 7)] = None


def stale_use_of_a_param(g: Graph) -> None:
    g.inputs[0]._uses[Use(at(g, 7), 0)] = None


def use_by_an_erased_node(g: Graph) -> None:
    Node("tanh", [at(g, 3).output])


def missing_use(g: Graph) -> None:
    at(g, 3).output._uses.clear()


def missing_use_of_a_result(g: Graph) -> None:
    at(g, 7).output._uses.clear()


def unknown_op(g: Graph) -> None:
    at(g, 3).kind = "mull"


def wrong_attributes(g: Graph) -> None:
    at(g, 3).attrs["alpha"] = 1


def too_many_operands(g: Graph) -> None:
    at(g, 3).add_input(g.inputs[0])


def too_many_outputs(g: Graph) -> None:
    at(g, 3).add_output(T)


def forgotten_block(g: Graph) -> None:
    at(g, 3).block = at(g, 4).blocks[0]


def output_of_another(g: Graph) -> None:
    at(g, 3).output.node = at(g, 2)


def wrong_output_index(g: Graph) -> None:
    at(g, 3).output.index = 1


def orphaned_block(g: Graph) -> None:
    at(g, 4).blocks[0].owner = at(g, 3)


def wrong_param_index(g: Graph) -> None:
    g.inputs[1].index = 0


@pytest.mark.parametrize(
    ("damage", "line", "match"),
    [
        (used_before_defined, 2, "operand 0 of cos is used before it is defined"),
        (used_outside_its_block, 6, "operand 0 of tanh is used before it is defined"),
        (from_another_graph, 3, "operand 1 of mul is used before it is defined"),
        (returned_from_another_graph, None, "operand 0 of return is used before"),
        (wrong_type, 3, r"mul should have the result types \(f32\[3\]\)"),
        (wrong_dtype, 3, "operands of dtypes f32 and f64; insert a cast"),
        (wrong_block_type, 4, r"GradOf should have the result types \(f32\[3\]\)"),
        (stale_use, 2, "output 0 of cos has a stale use"),
        (use_past_the_end, 2, "output 0 of cos has a stale use"),
        (stale_use_of_a_param, None, "input 0 of the block is stale"),
        (use_by_an_erased_node, 3, "output 0 of mul has a stale use"),
        (missing_use, 4, "operand 0 of GradOf is missing in its use list"),
        (missing_use_of_a_result, None, "operand 0 of return is missing"),
        (unknown_op, 3, "unknown op 'mull'"),
        (wrong_attributes, 3, "takes the attributes"),
        (too_many_operands, 3, r"takes \(a, b\), got 3"),
        (too_many_outputs, 3, "should have the result types"),
        (forgotten_block, 3, "does not know its block"),
        (output_of_another, 3, "output 0 of mul does not know its node"),
        (wrong_output_index, 3, "output 0 of mul does not know its node"),
        (orphaned_block, 4, "a block of GradOf does not know its node"),
        (wrong_param_index, None, "input 1 of the block is stale"),
    ],
)
def test_breakage(damage: Callable[[Graph], None], line: int | None, match: str) -> None:
    graph = parse_graph(TEXT)
    verify(graph)
    damage(graph)
    with pytest.raises(VerifyError, match=match) as caught:
        verify(graph)
    marked = [text for text in caught.value.message.splitlines() if text.startswith("> ")]
    assert len(marked) == 1
    if line is None:
        assert caught.value.loc is None and marked[0].startswith("> return")
    else:
        assert str(caught.value.loc) == f"m.py:{line}"
        assert marked[0].endswith(f"# m.py:{line}")


def test_the_message_shows_the_neighbours() -> None:
    graph = parse_graph(TEXT)
    at(graph, 4).output.hint = None
    at(graph, 6).output.type = TensorType(F32, ())
    with pytest.raises(VerifyError) as caught:
        verify(graph)
    assert str(caught.value) == """tanh should have the result types (f32[3])
  %c : f32[3] = mul(%b, %w)  # m.py:3
  %0 : f32[3] = GradOf[name='mul'](%c)  # m.py:4
  %e : f32[3] = mul(%c, %w)  # m.py:5
> %g : f32[] = tanh(%0)  # m.py:6
  %h : f32[3] = neg(%g)  # m.py:7
  return(%h)
  at m.py:6
  hint: with GRADOF_CHECK=1 graphs are verified after each pass: that names the one at fault"""


def test_the_return_of_an_inner_block_is_shown_at_its_node() -> None:
    graph = parse_graph(TEXT)
    at(graph, 4).blocks[0].returns.set_inputs([at(graph, 7).output])
    with pytest.raises(VerifyError) as caught:
        verify(graph)
    assert "> %d : f32[3] = GradOf" in caught.value.message


def test_an_unused_block_value_does_not_leak_between_blocks() -> None:
    graph = parse_graph("""graph f(%x : f32[3]):
      %y : f32[3] = GradOf[name='a'](%x)
        block():
          %i : f32[3] = tanh(%x)
          -> (%i)
      %z : f32[3] = GradOf[name='b'](%x)
        block():
          %j : f32[3] = tanh(%i)
          -> (%j)
      return (%y, %z)""")
    with pytest.raises(VerifyError, match="operand 0 of tanh is used before it is defined"):
        verify(graph)


@settings(max_examples=40)
@given(graphs())
def test_one_wrong_type_in_any_graph_is_found(case: Case) -> None:
    verify(case.graph)
    for node in case.graph.nodes():
        if node.kind == "Constant":
            continue
        right = node.output.type
        node.output.type = TensorType(F32, (7, 7, 7))
        with pytest.raises(VerifyError):
            verify(case.graph)
        node.output.type = right
    verify(case.graph)
