"""What a later kernel computes again: less is read and kept, and every bit is the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import gradof
from gradof.codegen.fusion import fuse as fusion
from gradof.codegen.fusion import rematerialize as compute_again
from gradof.codegen.fusion.fuse import fuse
from gradof.codegen.machine.engine import vector_bits
from gradof.ir.core import Graph, Node
from gradof.ir.parser import parse_graph
from gradof.ir.printer import print_graph
from gradof.ir.verify import verify

LAYERS = """graph f(%x : f32[64,96], %w : f32[96,96], %b : f32[96], %v : f32[96,96]):
  %z : f32[64,96] = mm(%x, %w)
  {more}
  %q : f32[64,96] = mm(%y, %v)
  {last}
  return (%d)"""
TANH = """%c : f32[64,96] = add(%z, %b)
  %t : f32[64,96] = tanh(%c)
  %y : f32[64,96] = mul(%t, %c)"""
LAST = """%s : f32[64,96] = mul(%t, %q)
  %e : f32[64,96] = mul(%q, %c)
  %d : f32[64,96] = add(%s, %e)"""
NORM = """%u : f32[64,1] = sum[dims=(1,), keepdims=True](%z)
  %o : f32[64,1] = exp(%u)
  %c : f32[64,96] = mul(%z, %o)
  %t : f32[64,96] = add(%c, %b)
  %y : f32[64,96] = mul(%t, %c)"""
SINES = """%i : f32[64,96] = sin(%z)
  %j : f32[64,96] = sin(%i)
  %k : f32[64,96] = sin(%j)
  %t : f32[64,96] = sin(%k)
  %c : f32[64,96] = add(%t, %b)
  %y : f32[64,96] = mul(%t, %c)"""


def layers(more: str = TANH, last: str = LAST) -> Graph:
    """Two products, what a kernel computes between them, and what it does after them."""
    return parse_graph(LAYERS.replace("{more}", more).replace("{last}", last))


def kernels(graph: Graph, again: bool = True) -> list[Node]:
    """The groups, in order."""
    fused = fuse(graph, lambda n: n.kind != "mm", lambda g: len(g.nodes) > 1, again)
    verify(fused)
    return [n for n in fused.nodes() if n.kind == "FusionGroup"]


def read(kernel: Node) -> list[str]:
    """The names of the large arrays a kernel reads, and of those of rows."""
    return sorted(v.hint or "" for v in kernel.inputs)


def test_a_later_kernel_reads_what_the_earlier_one_read() -> None:
    first, second = kernels(layers())
    assert read(first) == ["b", "z"] and read(second) == ["b", "q", "z"]
    assert [v.hint for v in first.outputs] == ["y"], "all that the next product needs"
    before = kernels(layers(), again=False)
    assert read(before[1]) == ["c", "q", "t"] and len(before[0].outputs) == 3


def test_sums_of_rows_are_read_and_no_row_is_added_up_again() -> None:
    first, second = kernels(layers(NORM))
    assert sorted(v.hint or "" for v in first.outputs) == ["u", "y"]
    assert read(second) == ["b", "q", "u", "z"]
    assert not any(n.kind == "sum" for n in second.blocks[0].nodes())


@pytest.mark.parametrize(("more", "last", "reads"), [
    (SINES, LAST, ["c", "q", "t"]),  # too many instructions
    (TANH.replace("%t, %c", "%c, %c"), LAST.replace("%t", "%c"), ["c", "q"]),  # no more
    (TANH, LAST + "\n  %g : f32[64,96] = mm(%t, %v)\n  %h : f32[64,96] = mm(%c, %v)",
     ["c", "q", "t"]),  # which are in memory for the products
])  # fmt: skip
def test_what_saves_nothing_is_read(more: str, last: str, reads: list[str]) -> None:
    graph = layers(more, last)
    if "%g" in last:
        graph.set_outputs([*graph.outputs, *(n.output for n in list(graph.nodes())[-2:])])
    assert read(kernels(graph)[1]) == reads


def test_the_graph_that_is_given_stays_as_it_is() -> None:
    graph = layers()
    before = print_graph(graph)
    assert len(kernels(graph)) == 2 and "again" not in before
    assert print_graph(graph) == before


def deep(x: Any, w: Any, b: Any, v: Any) -> Any:
    """Layers with a norm between them, whose first activations are read last."""
    h = x
    for _ in range(3):
        h = F.gelu(F.linear(h, w, b))
        h = F.layer_norm(F.linear(h, v) + h, h.shape[-1:], b, b).tanh() * h
    return h.square().mean()


@pytest.mark.skipif(not vector_bits(), reason="no native code here")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_bit_is_the_same(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    shapes = ((400, 96), (96, 96), (96,), (96, 96))
    args = [torch.randn(s, dtype=dtype) / 8 for s in shapes]
    changed: list[bool] = []

    def run(rewrite: Callable[..., Graph | None]) -> Any:
        def told(*given: Any) -> Graph | None:
            found = rewrite(*given)
            changed.append(found is not None)
            return found

        monkeypatch.setattr(fusion, "computed_again", told)
        # a function of its own: `deep` keeps what was compiled for it
        return gradof.value_and_grad(lambda *xs: deep(*xs), argnums=(0, 1, 2, 3))(*args)

    value, gradients = run(compute_again.computed_again)
    other, others = run(lambda *_: None)
    assert changed == [True, False], "compiled twice, once with the rewrite"
    for one, two in zip((value, *gradients), (other, *others), strict=True):
        assert torch.equal(one, two)
    wide = [a.double().requires_grad_() for a in args]
    expected = torch.autograd.grad(deep(*wide), wide)
    for one, two in zip(gradients, expected, strict=True):
        scale = float(two.abs().max())
        np.testing.assert_allclose(one, two, rtol=0, atol=400 * torch.finfo(dtype).eps * scale)


def test_what_is_compared_with_its_maximum_is_not_computed_again_without_it() -> None:
    more = """%c : f32[64,96] = add(%z, %b)
  %t : f32[64,96] = tanh(%c)
  %m : f32[64,1] = amax[dims=(1,), keepdims=True](%t)
  %y : f32[64,96] = mul(%t, %m)"""
    last = """%g : bool[64,96] = gt(%q, %c)
  %s : f32[64,96] = where(%g, %t, %q)
  %h : bool[64,96] = eq(%s, %m)
  %d : f32[64,96] = where(%h, %q, %s)"""
    assert read(kernels(layers(more, last))[1]) == ["c", "m", "q", "t"]
    apart = last.replace("eq(%s, %m)", "eq(%s, %b)")
    assert read(kernels(layers(more, apart))[1]) == ["b", "q", "z"]
