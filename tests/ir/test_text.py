"""Printing and parsing: each is the other's inverse, and malformed text is refused at its place."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from gradof.errors import ParseError
from gradof.ir.attrs import Attr, Dense, format_attr, same_attr
from gradof.ir.clone import clone_graph
from gradof.ir.core import Graph, Loc, Node
from gradof.ir.parser import parse_graph
from gradof.ir.printer import print_graph
from gradof.ir.types import F32, F64, ScalarType, TensorType
from gradof.ir.verify import verify
from tests.strategies import Case, attrs, graphs, texts


@settings(max_examples=80)
@given(texts())
def test_any_graph_round_trips(graph: Graph) -> None:
    text = str(graph)
    again = parse_graph(text)
    assert again == graph
    assert str(again) == text
    assert clone_graph(graph) == graph


@settings(max_examples=60)
@given(graphs(dtypes=(F32, F64)))
def test_valid_graphs_round_trip_and_stay_valid(case: Case) -> None:
    verify(case.graph)
    again = parse_graph(str(case.graph))
    verify(again)
    assert again == case.graph


@settings(max_examples=200)
@given(attrs())
def test_any_attribute_round_trips(value: Attr) -> None:
    node = parse_graph(f"graph f(): k[a={format_attr(value)}]() return ()").block._head
    assert same_attr(node.attrs["a"], value)


def test_a_difference_of_one_detail_is_a_difference() -> None:
    text = """graph f(%x : f32[3]):
      %y : f32[3] = pow[a=1](%x, %x)  # m.py:3
      return (%y)"""
    base = parse_graph(text)
    for old, new in [
        ("graph f", "graph g"), ("pow", "mul"), ("a=1", "a=1.0"), ("a=1", "a=True"), ("a=1", "b=1"),
        ("m.py:3", "m.py:4"), ("(%x, %x)", "(%x)"), ("%y", "%z"), ("%x", "%w"),
        ("return (%y)", "return (%x)"), ("return (%y)", "return (%y, %y)"), ("f32", "f64"),
        ("f32[3]", "f32[*]"), ("f32[3]", "f32[3]@cuda:0"), ("a=1", "a=(1,)"),
    ]:  # fmt: skip
        changed = parse_graph(text.replace(old, new))
        assert changed != base, (old, new)
    assert parse_graph("graph f(): k[a=0.0]() return ()") != parse_graph(
        "graph f(): k[a=-0.0]() return ()"
    )
    assert parse_graph("graph f(): k[a=nan]() return ()") == parse_graph(
        "graph f(): k[a=nan]() return ()"
    )


def test_names() -> None:
    graph = Graph("f")
    tensor = TensorType(F32, ())
    values = [graph.block.add_param(tensor, hint) for hint in ("x", None, "x", "x", "y", None)]
    graph.set_outputs(values)
    assert print_graph(graph).splitlines()[-1] == "  return (%x, %0, %x.1, %x.2, %y, %1)"


def test_the_whole_text() -> None:
    graph = Graph("f")
    x = graph.block.add_param(TensorType(F32, (3,)), "x")
    outer = graph.block.append(Node("GradOf", [x], {"name": "mul"}, Loc("m.py", 7)))
    inner = outer.add_block()
    half = inner.append(Node("Constant", [], {"value": 0.5})).add_output(ScalarType("float"))
    product = inner.append(Node("mul", [x, half]))
    inner.returns.set_inputs([product.add_output(TensorType(F32, (3,)), "x")])
    graph.set_outputs([outer.add_output(TensorType(F32, (3,)), "dx")])
    text = """graph f(%x : f32[3]):
  %dx : f32[3] = GradOf[name='mul'](%x)  # m.py:7
    block():
      %0 : float = Constant[value=0.5]()
      %x.1 : f32[3] = mul(%x, %0)
      -> (%x.1)
  return (%dx)
"""
    assert str(graph) == text
    assert print_graph(graph, locs=False) == text.replace("  # m.py:7", "")
    assert parse_graph(text) == graph


def test_dense_is_little_endian_contiguous_and_a_copy() -> None:
    array = np.arange(6.0).reshape(2, 3)
    dense = Dense.of(array.T)
    array[:] = 0
    assert dense.numpy().tolist() == [[0, 3], [1, 4], [2, 5]]
    big = Dense.of(np.array([1.0, 2.0], ">f4"))
    assert big.numpy().tolist() == [1.0, 2.0]
    assert big == Dense.of(np.array([1.0, 2.0], "<f4"))


def node(text: str) -> str:
    return f"graph f(%x : f32[3]):\n  {text}\n  return (%x)"


@pytest.mark.parametrize(
    ("text", "line", "column", "match"),
    [
        ("", 1, 1, "expected 'graph', found 'end of text'"),
        ("grph f(): return ()", 1, 1, "expected 'graph', found 'grph'"),
        ("graph (): return ()", 1, 7, "the graph's name"),
        ("graph f) return ()", 1, 8, r"expected '\('"),
        ("graph f() return ()", 1, 11, "expected ':'"),
        ("graph f(x : f32[3]): return ()", 1, 9, "a value such as %x"),
        ("graph f(%x f32[3]): return ()", 1, 12, "expected ':'"),
        ("graph f(%x : f33[3]): return ()", 1, 14, "unknown type 'f33'"),
        ("graph f(%x : f32): return ()", 1, 17, r"expected '\['"),
        ("graph f(%x : f32[a]): return ()", 1, 18, "a size"),
        ("graph f(%x : f32[-1]): return ()", 1, 18, "whole number"),
        ("graph f(%x : f32[1.5]): return ()", 1, 18, "whole number"),
        ("graph f(%x : f32[3]@): return ()", 1, 21, "a device"),
        ("graph f(%x : f32[3] %y : f32[3]): return ()", 1, 21, r"expected '\)'"),
        ("graph f(%x : f32[3],\n        %x : f32[3]): return ()", 2, 9, "%x is defined twice"),
        ("graph f():", 1, 11, "the end of the text"),
        ("graph f(): return ()\nmore", 2, 1, "expected end of text"),
        ("graph f(%x : f32[3]):\n  return (%y)", 2, 11, "%y is used before it is defined"),
        (node("%y : f32[3] tanh(%x)"), 2, 15, "expected '='"),
        (node("%y : f32[3] = 3(%x)"), 2, 17, "the name of an op"),
        (node("%y : f32[3] = tanh(%z)"), 2, 22, "%z is used before it is defined"),
        (node("%y : f32[3] = tanh(%y)"), 2, 22, "%y is used before it is defined"),
        (node("%x : f32[3] = tanh(%x)"), 2, 3, "%x is defined twice"),
        (node("%y : f32[3] = tanh %x"), 2, 22, r"expected '\('"),
        (node("%y : f32[3] = tanh(%x"), 3, 3, r"expected '\)'"),
        (node("%y : f32[3] = k[=1](%x)"), 2, 19, "the name of an attribute"),
        (node("%y : f32[3] = k[a 1](%x)"), 2, 21, "expected '='"),
        (node("%y : f32[3] = k[a=1, a=2](%x)"), 2, 24, "attribute a is given twice"),
        (node("%y : f32[3] = k[a=](%x)"), 2, 21, "an attribute value"),
        (node("%y : f32[3] = k[a=f23](%x)"), 2, 21, "an attribute value, found 'f23'"),
        (node("%y : f32[3] = k[a=(1 2)](%x)"), 2, 24, "imaginary part"),
        (node("%y : f32[3] = k[a=(1+2)](%x)"), 2, 24, "imaginary part"),
        (node("%y : f32[3] = k[a=(1+-2j)](%x)"), 2, 24, "imaginary part"),
        (node("%y : f32[3] = k[a=(1, 2+3j)](%x)"), 2, 26, r"expected '\)'"),
        (node("%y : f32[3] = k[a='open](%x)"), 2, 21, "unexpected character"),
        (node("%y : f32[3] = k[a=1;](%x)"), 2, 22, "unexpected character ';'"),
        (node("%y : f32[3] = k[a=dense<f32[*]>[]](%x)"), 2, 27, "a known shape"),
        (node("%y : f32[3] = k[a=dense<float>[]](%x)"), 2, 27, "a known shape"),
        (node("%y : f32[3] = k[a=dense<bf16[1]>[1.0]](%x)"), 2, 27, "bf16"),
        (node("%y : f32[3] = k[a=dense<f32[2]>[1.0]](%x)"), 2, 34, "needs 8 bytes, found 4"),
        (node("%y : f32[3] = k[a=dense<f32[1]>['a']](%x)"), 2, 35, "an element of dtype f32"),
        (node("%y : f32[3] = k[a=dense<i32[1]>[1.5]](%x)"), 2, 35, "an element of dtype i32"),
        (node("%y : f32[3] = k[a=dense<f32[1]>[True]](%x)"), 2, 35, "an element of dtype f32"),
        (node("%y : f32[3] = k[a=dense<i8[1]>[300]](%x)"), 2, 34, "out of the range of i8"),
        (node("%y : f32[3] = k[a=dense<f32[1]>\"AAA*\"](%x)"), 2, 34, "not base64"),
        (node("%y : f32[3] = k[a=dense<f32[1]>\"AAAA\"](%x)"), 2, 34, "needs 4 bytes, found 3"),
        (node("%y : f32[3] = GradOf(%x)\n    block(:\n"), 3, 11, "a value such as %x"),
        (node("%y : f32[3] = GradOf(%x)\n    block():\n    return ()"), 4, 5,
         "expected a node or '->', found 'return'"),
        (node("%y : f32[3] = tanh(%x) $"), 2, 26, r"unexpected character '\$'"),
    ],
)  # fmt: skip
def test_malformed_text(text: str, line: int, column: int, match: str) -> None:
    with pytest.raises(ParseError, match=match) as caught:
        parse_graph(text, "some.ir")
    assert (caught.value.line, caught.value.column) == (line, column)
    assert f"at some.ir:{line}:{column}" in str(caught.value)


BROKEN = {
    "tuples in tuples": ("graph f(%x : f32[1]):\n %y : f32[1] = op[a=" + "(" * 5_000, "nested"),
    "blocks in blocks": (
        "graph f(%x : f32[1]):\n" + " op() block():\n" * 5_000, "nested"
    ),
    "a number of 6000 digits": (
        "graph f(%x : f32[1]):\n %y : f32[1] = op[a=" + "9" * 6_000 + "](%x)", "6000 digits"
    ),
    "a size of 6000 digits": ("graph f(%x : f32[" + "9" * 6_000 + "]):", "6000 digits"),
    "no character": (
        "graph f(%x : f32[1]):\n %y : f32[1] = op[a='\\UFFFFFFFF'](%x)", "no character"
    ),
    "a line of 6000 digits": ("graph f():\n op() # a.py:" + "9" * 6_000, "expected a node"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_what_python_cannot_read_is_refused_at_its_place(name: str) -> None:
    text, message = BROKEN[name]
    with pytest.raises(ParseError, match=message) as caught:
        parse_graph(text)
    assert caught.value.line >= 1 and caught.value.column >= 1


def test_nesting_within_reason() -> None:
    deep = "graph f(%x : f32[1]):\n op[a=" + "(" * 50 + "1," + ")" * 50 + "]()\n return (%x)"
    assert parse_graph(str(parse_graph(deep))) == parse_graph(deep)
