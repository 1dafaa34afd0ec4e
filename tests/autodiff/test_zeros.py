"""specialize_autograd_zero on hand-made dfs: every folding rule, under every mask.

The interpreter runs the df as it is, with real zeros; the specialised one must give the same.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from gradof.autodiff.differentiate import differentiate
from gradof.autodiff.zeros import specialize_autograd_zero
from gradof.codegen.host.evaluate import ZERO, interpret
from gradof.errors import DifferentiationError
from gradof.ir.core import Graph
from gradof.ir.parser import parse_graph
from gradof.ir.verify import verify

BODIES = {
    "linear": "%r : f64[2,3] = flip[dims=(1,)](%g)",
    "mul": "%r : f64[2,3] = mul(%g, %x)",
    "mul_right": "%r : f64[2,3] = mul(%x, %g)",
    "div": "%r : f64[2,3] = div(%g, %x)",
    "divisor": "%o : f64[2,3] = exp(%g)\n%q : f64[2,3] = div(%x, %o)\n%r : f64[2,3] = mul(%q, %g)",
    "add_value": "%r : f64[2,3] = add(%g, %h)",
    "sub_left": "%r : f64[2,3] = sub(%g, %h)",
    "sub_right": "%r : f64[2,3] = sub(%h, %g)",
    "where": "%c : bool[2,3] = gt(%x, %h)\n%r : f64[2,3] = where(%c, %g, %h)",
    "condition": "%c : bool[2,3] = gt(%g, %x)\n%r : f64[2,3] = where(%c, %h, %g)",
    "broadcast": "%s : f64[2,1] = sum[dims=(1,), keepdims=True](%g)\n%r : f64[2,3] = add(%s, %h)",
    "cat": "%t : f64[4,3] = cat[dim=0](%g, %h)\n"
    "%r : f64[2,3] = slice[dim=0, start=1, stop=3, step=1](%t)",
    "mm": "%t : f64[3,2] = permute[dims=(1, 0)](%g)\n%p : f64[2,2] = mm(%x, %t)\n"
    "%r : f64[2,3] = mm(%p, %h)",
    "chain": "%a : f64[2,3] = neg(%g)\n%b : f64[2,3] = mul(%a, %x)\n%r : f64[2,3] = sub(%h, %b)",
    "passed_on": "%r : f64[2,3] = copy(%g)",
}


def df_of(body: str) -> Graph:
    lines = "\n".join("        " + line for line in body.splitlines())
    return parse_graph(f"""graph df(%g : f64[2,3], %h : f64[2,3], %x : f64[2,3]):
      %d : f64[2,3] = GradOf[name='made'](%g, %h)
        block():
{lines}
        -> (%r)
      %total : f64[2,3] = AutogradAdd(%d, %h)
      return (%d, %total)""")


@pytest.mark.parametrize("mask", list(product([True, False], repeat=2)))
@pytest.mark.parametrize("name", BODIES)
def test_folding_changes_no_number(name: str, mask: tuple[bool, bool]) -> None:
    df = df_of(BODIES[name])
    before = str(df)
    rng = np.random.default_rng(7)
    g, h, x = (rng.uniform(0.5, 2.0, (2, 3)) for _ in range(3))
    given = [value if flag else ZERO for value, flag in zip((g, h), mask, strict=True)]
    want = interpret(df, [*given, x])
    special = specialize_autograd_zero(df, mask)
    verify(special.graph)
    kinds = {node.kind for node in special.graph.walk()}
    assert not kinds & {"GradOf", "AutogradAdd", "AutogradZero"}
    arrays = [g, h, x]
    got = interpret(special.graph, [arrays[i] for i in special.inputs])
    for i, result in zip(special.outputs, got, strict=True):
        np.testing.assert_allclose(result, want[i], rtol=1e-13)
    for i in {0, 1} - set(special.outputs):
        np.testing.assert_array_equal(want[i], np.zeros((2, 3)))
    assert [i for i in special.inputs if i < 2] == [i for i, flag in enumerate(mask) if flag]
    used = dict(zip(special.inputs, special.graph.inputs, strict=True))
    assert 2 not in used or used[2].has_uses  # a capture that nothing reads is no input
    assert str(df) == before


@pytest.mark.parametrize("name", ["linear", "mul", "mul_right", "div", "divisor", "passed_on"])
def test_what_a_zero_makes_zero_is_no_output(name: str) -> None:
    special = specialize_autograd_zero(df_of(BODIES[name]), [False, True])
    # d is zero, so the total is h itself
    assert special.outputs == [1] and len(special.graph.block) == 0
    assert special.graph.outputs[0] is special.graph.inputs[special.inputs.index(1)]


@pytest.mark.parametrize("name", BODIES)
def test_all_zero_folds_whole(name: str) -> None:
    special = specialize_autograd_zero(df_of(BODIES[name]), [False, False])
    assert special.outputs == [] and len(special.graph.block) == 0


def test_unwanted_gradients_go_with_their_work() -> None:
    df = df_of(BODIES["mm"])
    special = specialize_autograd_zero(df, [True, True], [False, False])
    assert special.outputs == [] and len(special.graph.block) == 0


def test_a_zero_of_unknown_shape_cannot_be_made_real() -> None:
    df = parse_graph("""graph df(%g : f64[*], %h : f64[*]):
      %d : f64[*] = GradOf[name='made'](%g, %h)
        block():
          %e : f64[*] = exp(%g)
          %r : f64[*] = mul(%e, %h)
          -> (%r)
      return (%d)""")
    with pytest.raises(DifferentiationError, match="zero gradient of unknown shape"):
        specialize_autograd_zero(df, [False, True])


def test_inputs_keep_their_names() -> None:
    graph = parse_graph("""graph f(%a : f64[3], %b : f64[3]):
      %c : f64[3] = add(%a, %b)
      return (%c)""")
    special = specialize_autograd_zero(differentiate(graph).df, [True])
    assert str(special.graph) == "graph df(%dc : f64[3]):\n  return (%dc, %dc)\n"
