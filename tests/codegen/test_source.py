"""The emitted text: goldens, names, literals, errors before anything runs, lines in tracebacks."""

from __future__ import annotations

import gc
import linecache
import math
import traceback
from collections.abc import Callable

import numpy as np
import pytest

from gradof.autodiff.differentiate import differentiate
from gradof.autodiff.zeros import specialize_autograd_zero
from gradof.codegen import compile_graph
from gradof.errors import CodegenError
from gradof.ir.attrs import Dense
from gradof.ir.builder import Builder
from gradof.ir.core import Graph, Loc
from gradof.ir.parser import parse_graph
from gradof.ir.types import F32, F64, TensorType
from gradof.passes.expand_composites import expand_composites
from gradof.passes.pipeline import CLEAN_UP, run_passes

pytestmark = pytest.mark.usefixtures("op_by_op")

MLP = """graph loss(%x : f32[4,3], %w : f32[3,2], %b : f32[2], %y : f32[4,2]):
  %p : float = Constant[value=2.0]()
  %n : float = Constant[value=8.0]()
  %xw : f32[4,2] = mm(%x, %w)  # mlp.py:7
  %z : f32[4,2] = add(%xw, %b)  # mlp.py:7
  %h : f32[4,2] = tanh(%z)  # mlp.py:7
  %d : f32[4,2] = sub(%h, %y)  # mlp.py:8
  %s : f32[4,2] = pow(%d, %p)  # mlp.py:8
  %t : f32[] = sum[dims=(0, 1), keepdims=False](%s)  # mlp.py:8
  %l : f32[] = div(%t, %n)  # mlp.py:8
  return (%l)
"""
VIEWS = """graph views(%x : f64[2,3], %s : f64[]):
  %t : f64[3,2] = permute[dims=(1, 0)](%x)
  %e : f64[4,3,2] = expand[shape=(4, 3, 2)](%t)
  %k : f64[2,3] = sin(%x)
  %kt : f64[3,2] = permute[dims=(1, 0)](%k)
  %first : f64[1,3] = slice[dim=0, start=0, stop=1, step=1](%k)
  %u : f64[] = exp(%s)
  return (%x, %t, %e, %kt, %first, %kt, %u)
"""
LITERALS = """graph literals(%x : f64[2], %class : f64[2], %np : f64[2], %t0 : f64[2]):
  %a : float = Constant[value=-inf]()
  %b : float = Constant[value=nan]()
  %c : float = Constant[value=-0.5]()
  %i : int = Constant[value=3]()
  %0 : f64[2] = maximum(%x, %a)
  %1 : f64[2] = add(%0, %b)
  %2 : f64[2] = mul(%1, %c)
  %3 : f64[2] = pow(%2, %i)
  %4 : bool[2] = gt(%class, %np)
  %5 : f64[2] = where(%4, %3, %t0)
  %w : f32[] = cast[dtype=f32](%c)
  %pad : f64[4] = pad[pads=((1, 1),), value=-inf](%5)
  return (%pad, %w)
"""


def prepared(text: str) -> Graph:
    graph = parse_graph(text)
    expand_composites(graph)
    run_passes(graph, CLEAN_UP)
    return graph


@pytest.mark.parametrize("text", [MLP, VIEWS, LITERALS], ids=["mlp", "views", "literals"])
def test_text(text: str, golden: Callable[..., None]) -> None:
    golden(compile_graph(parse_graph(text)).source)


def test_text_of_a_gradient(golden: Callable[..., None]) -> None:
    gradient = differentiate(parse_graph(MLP), [False, True, True, False])
    golden(compile_graph(gradient.f).source, "f")
    flags = (True,) * len(gradient.df_input_vjps)
    wanted = (True,) * len(gradient.df.outputs)
    df = specialize_autograd_zero(gradient.df, flags, wanted).graph
    golden(compile_graph(prepared(str(df))).source, "df")


def test_text_where_torch_owns_the_arrays(golden: Callable[..., None]) -> None:
    golden(compile_graph(parse_graph(MLP), library="torch").source)


def test_large_dead_arrays_are_deleted(golden: Callable[..., None]) -> None:
    text = """graph running(%x : f64[100,100]):
      %a : f64[100,100] = cumsum[dim=0](%x)
      %v : f64[100,100] = permute[dims=(1, 0)](%a)
      %b : f64[100,100] = cumsum[dim=0](%v)
      %c : f64[100] = sum[dims=(0,), keepdims=False](%b)
      %d : f64[100] = sin(%c)
      return (%d)"""
    golden(compile_graph(parse_graph(text)).source)


def test_constant_arrays_are_bound_under_their_names() -> None:
    graph = Graph("f")
    x = graph.block.add_param(TensorType(F64, (2,)), "x")
    builder = Builder(graph.block)
    table = builder.constant(Dense.of(np.array([1.0, 2.0])))
    table.hint = "table"
    other = builder.constant(Dense.of(np.array([3.0, 4.0])))
    graph.set_outputs([builder.emit("mul", builder.emit("add", x, table), other), table])
    run = compile_graph(graph)
    assert "np.add(x, table)" in run.source and ", c0, out=" in run.source
    y, first = run(np.ones(2))
    np.testing.assert_array_equal(y, [6.0, 12.0])
    first[:] = 0.0  # a copy: the constant stays
    np.testing.assert_array_equal(run(np.ones(2))[1], [1.0, 2.0])


def test_literals_keep_their_values() -> None:
    run = compile_graph(parse_graph(LITERALS))
    x, one, two = np.zeros(2), np.ones(2), np.full(2, 2.0)
    padded, weak = run(x, two, one, one)  # class > np, so the nan branch
    np.testing.assert_array_equal(padded, [-np.inf, np.nan, np.nan, -np.inf])
    assert (weak.dtype, weak.item()) == (np.float32, -0.5)
    np.testing.assert_array_equal(run(x, one, two, one)[0][1:3], [1.0, 1.0])


@pytest.mark.parametrize("name", ["mm", "np", "lambda", "my loss", "1st", "größe", "x\u00b2", ""])
def test_any_graph_name_and_hint_becomes_an_identifier(name: str) -> None:
    graph = Graph(name or "f")
    a = graph.block.add_param(TensorType(F32, (2, 2)), name)
    b = graph.block.add_param(TensorType(F32, (2, 2)), name)
    y = Builder(graph.block, loc=Loc("odd\nname.py", 3)).emit("mm", a, b)
    y.hint = name
    graph.set_outputs([y])
    x = np.arange(4, dtype=np.float32).reshape(2, 2)
    for run in (compile_graph(graph), compile_graph(graph, library="torch")):
        np.testing.assert_array_equal(run(x, x + 1)[0], x @ (x + 1))


def test_names_equal_to_python_stay_apart() -> None:
    graph = Graph("f")
    ligature = graph.block.add_param(TensorType(F64, ()), "\ufb01")  # one identifier with "fi"
    plain = graph.block.add_param(TensorType(F64, ()), "fi")
    graph.set_outputs([Builder(graph.block).emit("sub", ligature, plain)])
    assert compile_graph(graph)(np.array(3.0), np.array(1.0))[0].item() == 2.0


def test_complex_literals_are_exact() -> None:
    from gradof.codegen.lowering.numpy import literal

    for value in (complex(math.nan, math.inf), complex(-0.0, 1.0), complex(1.5, -math.inf)):
        again = eval(literal(value), {"np": np})
        assert repr(again) == repr(value)


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("%y : f32[3] = softmax[dim=0](%x)  # m.py:4", "softmax cannot be emitted"),
        ("%y : f32[3] = AutogradZero[dtype=f32, shape=(3,), device='cpu']()  # m.py:4",
         "AutogradZero cannot be emitted"),
        ("%y : f32[3] = no_such_op(%x)  # m.py:4", "no_such_op cannot be emitted"),
        ("%y : f32[3] = full[dtype=f32, shape=(3,), device='cuda:0', value=1.0]()  # m.py:4",
         "no_error"),
    ],
)  # fmt: skip
def test_what_cannot_be_emitted_is_refused_at_its_line(body: str, message: str) -> None:
    if message == "no_error":
        body, message = body.replace("%y : f32[3]", "%y : f32[3]@cuda:0"), "not on cuda:0"
    graph = parse_graph(f"graph f(%x : f32[3]):\n{body}\nreturn (%y)")
    with pytest.raises(CodegenError, match=message) as caught:
        compile_graph(graph)
    assert str(caught.value.loc) == "m.py:4"
    assert caught.value.hint


def test_gradient_blocks_are_refused() -> None:
    df = differentiate(parse_graph("graph f(%x : f32[3]): %y : f32[3] = tanh(%x) return (%y)")).df
    assert any(node.kind == "GradOf" for node in df.nodes())
    with pytest.raises(CodegenError, match="GradOf cannot be emitted"):
        compile_graph(df)


def test_a_wrong_number_of_arrays_is_refused() -> None:
    run = compile_graph(parse_graph(MLP))
    with pytest.raises(CodegenError, match="loss takes 4 arrays, got 1"):
        run(np.ones(3))


# --- lines and warnings -------------------------------------------------------------------------


def test_a_traceback_shows_the_generated_line() -> None:
    run = compile_graph(parse_graph(MLP))
    with pytest.raises(ValueError, match="matmul") as caught:
        run(np.ones((4, 5)), np.ones((3, 2)), np.ones(2), np.ones((4, 2)))
    text = "".join(traceback.format_exception(caught.value))
    assert f'File "{run.filename}", line 3, in loss' in text
    assert "xw = np.matmul(x, w)  # mlp.py:7" in text
    linecache.checkcache()
    assert linecache.getline(run.filename, 3).strip() == "xw = np.matmul(x, w)  # mlp.py:7"


def test_file_names_are_stable_and_texts_are_let_go() -> None:
    text = "graph only_here(%x : f64[3]): %y : f64[3] = tanh(%x) return (%y)"
    first, second = compile_graph(parse_graph(text)), compile_graph(parse_graph(text))
    name = first.filename
    assert name == second.filename and name.startswith("<gradof only_here ")
    other = compile_graph(parse_graph(text.replace("tanh", "sinh")))
    assert other.filename != name
    del first
    gc.collect()
    assert name in linecache.cache
    del second
    gc.collect()
    assert name not in linecache.cache
    assert other.filename in linecache.cache


def test_floating_point_warnings_are_silent_and_settings_kept() -> None:
    run = compile_graph(parse_graph(
        "graph f(%x : f64[2]): %y : f64[2] = log(%x) %z : f64[2] = div(%x, %y) return (%y, %z)"
    ))  # fmt: skip
    before = np.geterr()
    with np.errstate(all="raise"):
        y, _ = run(np.array([0.0, -1.0]))
    np.testing.assert_array_equal(y, [-np.inf, np.nan])
    assert np.geterr() == before


@pytest.mark.parametrize(
    "call", ["sum(%x)", "sum[dims=(0,)](%x)", "sum[dims=(0,), keepdims=False, more=1](%x)",
             "add(%x)", "permute[order=(0,)](%x)"],
)  # fmt: skip
def test_calls_that_do_not_fit_their_op(call: str) -> None:
    graph = parse_graph(f"graph f(%x : f32[2]):\n %y : f32[2] = {call}\n return (%y)")
    with pytest.raises(CodegenError, match="takes"):
        compile_graph(graph)
