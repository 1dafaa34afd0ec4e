"""f, df and the reverse block of five small graphs as text; the numpy source of two of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gradof.autodiff.differentiate import differentiate, show_reverse
from gradof.autodiff.zeros import specialize_autograd_zero
from gradof.codegen import compile_graph
from gradof.ir.core import Graph
from gradof.ir.parser import parse_graph
from gradof.ir.verify import verify

Golden = Callable[..., None]

GRAPHS = {
    "mlp": """graph loss(%x : f32[4,3], %w : f32[3,2], %b : f32[2], %y : f32[4,2]):
      %p : float = Constant[value=2.0]()
      %xw : f32[4,2] = mm(%x, %w)  # mlp.py:7
      %z : f32[4,2] = add(%xw, %b)  # mlp.py:7
      %h : f32[4,2] = tanh(%z)  # mlp.py:7
      %d : f32[4,2] = sub(%h, %y)  # mlp.py:8
      %s : f32[4,2] = pow(%d, %p)  # mlp.py:8
      %l : f32[] = sum[dims=(0, 1), keepdims=False](%s)  # mlp.py:8
      return (%l)""",
    "softmax": """graph softmax(%x : f64[2,5]):
      %m : f64[2,1] = amax[dims=(1,), keepdims=True](%x)  # s.py:2
      %c : f64[2,1] = detach(%m)  # s.py:2
      %z : f64[2,5] = sub(%x, %c)  # s.py:3
      %e : f64[2,5] = exp(%z)  # s.py:4
      %s : f64[2,1] = sum[dims=(1,), keepdims=True](%e)  # s.py:5
      %p : f64[2,5] = div(%e, %s)  # s.py:6
      return (%p)""",
    "shared": """graph shared(%x : f64[3], %y : f64[3]):
      %xy : f64[3] = mul(%x, %y)
      %a : f64[3] = sin(%xy)
      %again : f64[3] = mul(%x, %y)
      %b : f64[3] = exp(%again)
      %ab : f64[3] = mul(%a, %b)
      %r : f64[3] = add(%ab, %xy)
      return (%r, %xy)""",
    "broadcast": """graph centred(%x : f64[4,3], %w : f64[3]):
      %m : f64[1,3] = mean[dims=(0,), keepdims=True](%x)
      %d : f64[4,3] = sub(%x, %m)
      %t : f64[3,4] = permute[dims=(1, 0)](%d)
      %k : f64[3,1] = reshape[shape=(3, 1)](%w)
      %y : f64[3,4] = mul(%t, %k)
      return (%y)""",
    "unused": """graph unused(%x : f64[3], %u : f64[2], %n : i64[3]):
      %dead : f64[2] = exp(%u)
      %y : f64[3] = cos(%x)
      %i : bool[3] = gt(%x, %y)
      return (%y, %i)""",
}
FLAGS = {"mlp": [False, True, True, False], "broadcast": [True, True]}


def keeps_its_text(graph: Graph) -> str:
    """Its text, after a round trip through the parser and every check of verify."""
    verify(graph)
    again = parse_graph(str(graph))
    assert again == graph and str(again) == str(graph)
    verify(again)
    return str(graph)


@pytest.mark.parametrize("name", GRAPHS)
def test_text(name: str, golden: Golden) -> None:
    graph = parse_graph(GRAPHS[name])
    before = str(graph)
    gradient = differentiate(graph, FLAGS.get(name))
    assert str(graph) == before  # left as it was
    keeps_its_text(gradient.f)
    keeps_its_text(gradient.df)
    golden(str(gradient), f"{name}_f_and_df")
    golden(keeps_its_text(show_reverse(graph, FLAGS.get(name))), f"{name}_reverse")


@pytest.mark.usefixtures("op_by_op")
@pytest.mark.parametrize("name", ["softmax", "broadcast"])
def test_source(name: str, golden: Golden) -> None:
    gradient = differentiate(parse_graph(GRAPHS[name]), FLAGS.get(name))
    golden(compile_graph(gradient.f).source, f"{name}_f_source")
    special = specialize_autograd_zero(gradient.df, [True] * len(gradient.df_input_vjps))
    keeps_its_text(special.graph)
    golden(compile_graph(special.graph).source, f"{name}_df_source")
