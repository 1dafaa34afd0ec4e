"""Fusion groups and their loop nests: what is grouped, and that the numbers stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from gradof import tuning
from gradof.autodiff.compose import pullback_graph
from gradof.codegen.fusion.fuse import fuse
from gradof.codegen.fusion.groups import Group
from gradof.codegen.host.emit import emit
from gradof.codegen.loops.interpret import run_nest
from gradof.codegen.loops.lower import schedule
from gradof.codegen.loops.text import print_nest
from gradof.codegen.targets.choose import native_or_tiles
from gradof.codegen.tiles.kernel import TileKernel
from gradof.ir.core import Graph, Node
from gradof.ir.parser import parse_graph
from gradof.ir.types import F32, F64
from gradof.ir.verify import verify
from gradof.passes.pipeline import CLEAN_UP, run_passes
from tests.strategies import Case, graphs

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


def fused(graph: Graph) -> Graph:
    run_passes(graph, ("expand-composites", *CLEAN_UP))
    return fuse(graph, lambda node: True, lambda group: True)


def groups_of(graph: Graph) -> list[Node]:
    return [n for n in graph.nodes() if n.kind == "FusionGroup"]


def kinds(graph: Graph) -> list[list[str]]:
    """What each group computes, numbers and views left out."""
    skipped = {"Constant", "expand", "reshape", "permute", "full"}
    return [
        [n.kind for n in g.blocks[0].nodes() if n.kind not in skipped] for g in groups_of(graph)
    ]


def by_reference(graph: Graph, inputs: list[Any]) -> Any:
    run = emit(graph, "numpy", make_kernel=lambda nest: lambda *a: tuple(run_nest(nest, a)))
    return run(*inputs)


def by_tiles(graph: Graph, inputs: list[Any]) -> Any:
    return emit(graph, "numpy", make_kernel=TileKernel)(*inputs)


def by_native(graph: Graph, inputs: list[Any]) -> Any:
    return emit(graph, "numpy", make_kernel=native_or_tiles)(*inputs)


@pytest.mark.parametrize(
    ("run", "cells"), [(by_reference, 1), (by_tiles, 1), (by_tiles, 6), (by_tiles, 1 << 17),
                       (by_native, 1)],
)  # fmt: skip
@settings(max_examples=20, suppress_health_check=SLOW, deadline=None)
@given(case=graphs(dtypes=(F32, F64)))
def test_random_graphs_and_gradients_keep_their_numbers(
    run: Callable[..., Any], cells: int, case: Case
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "TILE_CELLS", cells)
        compare(run, case)


def compare(run: Callable[..., Any], case: Case) -> None:
    wrt, outputs = range(len(case.inputs)), range(len(case.graph.outputs))
    rng = np.random.default_rng(5)
    seeds = [np.asarray(rng.standard_normal(v.type.shape)) for v in case.graph.outputs]  # type: ignore[union-attr]
    seeds = [s.astype(v.type.dtype.name.replace("f", "float"))  # type: ignore[union-attr]
             for s, v in zip(seeds, case.graph.outputs, strict=True)]  # fmt: skip
    for graph, inputs in (
        (case.graph, case.inputs),
        (pullback_graph(case.graph, wrt, outputs), [*case.inputs, *seeds]),
    ):
        together = fused(graph)
        verify(together)
        assert parse_graph(str(together)) == together
        want = emit(graph, "numpy")(*inputs)
        have = run(together, inputs)
        for h, w in zip(have, want, strict=True):
            assert h.dtype == w.dtype and h.shape == w.shape
            # inputs are of size 1, and what cancels keeps their rounding
            scale = np.abs(w).max(initial=1.0)
            eps = np.finfo(w.dtype).eps
            np.testing.assert_allclose(h, w, rtol=200 * eps, atol=50 * eps * scale)


def test_a_chain_with_a_product_is_two_groups() -> None:
    graph = parse_graph("""graph f(%x : f32[8,4], %b : f32[4], %w : f32[4,3]):
      %0 : f32[8,4] = add(%x, %b)
      %1 : f32[8,4] = tanh(%0)
      %2 : f32[8,3] = mm(%1, %w)
      %3 : f32[8,3] = exp(%2)
      %4 : f32[8,3] = mul(%3, %3)
      return (%4)""")
    assert kinds(fused(graph)) == [["add", "tanh"], ["exp", "mul"]]


def test_a_path_through_the_outside_keeps_groups_apart() -> None:
    graph = parse_graph("""graph f(%x : f32[4,4]):
      %0 : f32[4,4] = tanh(%x)
      %1 : f32[4,4] = mm(%0, %x)
      %2 : f32[4,4] = add(%0, %1)
      return (%2)""")
    assert kinds(fused(graph)) == [["tanh"], ["add"]]


def test_siblings_over_the_same_array_share_a_pass() -> None:
    graph = parse_graph("""graph f(%x : f32[8,4]):
      %0 : f32[8,4] = tanh(%x)
      %1 : f32[8,4] = exp(%x)
      %2 : f32[4] = sum[dims=(0,), keepdims=False](%1)
      return (%0, %2)""")
    together = fused(graph)
    assert kinds(together) == [["tanh", "exp", "sum"]]
    (group,) = groups_of(together)
    assert "fold[kind='sum', buffer=1] %exp" in print_nest(schedule(group))


def test_what_reads_a_fold_is_another_group() -> None:
    graph = parse_graph("""graph f(%x : f32[8,4]):
      %0 : f32[1,4] = sum[dims=(0,), keepdims=True](%x)
      %1 : f32[8,4] = sub(%x, %0)
      return (%1)""")
    assert kinds(fused(graph)) == [["sum"], ["sub"]]


def test_a_transposed_operand_keeps_its_axes_and_a_product_with_it_does_not_fit() -> None:
    graph = parse_graph("""graph f(%x : f32[4,4], %y : f32[4,4]):
      %0 : f32[4,4] = tanh(%x)
      %1 : f32[4,4] = permute[dims=(1, 0)](%0)
      %2 : f32[4,4] = mul(%1, %y)
      %3 : f32[4,4] = mul(%1, %0)
      return (%2, %3)""")
    together = fused(graph)
    x, y = np.random.default_rng(0).standard_normal((2, 4, 4)).astype(np.float32)
    have = by_reference(together, [x, y])
    t = np.tanh(x)
    np.testing.assert_allclose(have[0], t.T * y, rtol=1e-6)
    np.testing.assert_allclose(have[1], t.T * t, rtol=1e-6)
    assert kinds(together)[0] == ["tanh", "mul"]


SOFTMAX = """graph f(%x : f32[8,5], %t : i64[8]):
      %0 : f32[8,1] = amax[dims=(1,), keepdims=True](%x)
      %1 : f32[8,5] = sub(%x, %0)
      %2 : f32[8,5] = exp(%1)
      %3 : f32[8,1] = sum[dims=(1,), keepdims=True](%2)
      %4 : f32[8,1] = log(%3)
      %5 : f32[8,5] = sub(%1, %4)
      %6 : i64[8] = in_range[size=5, wraps=False, error='index'](%t)
      %7 : i64[8,1] = reshape[shape=(8, 1)](%6)
      %8 : f32[8,1] = gather[dim=1](%5, %7)
      %9 : f32[] = sum[dims=(0, 1), keepdims=False](%8)
      return (%9)"""


def test_a_cross_entropy_is_one_nest_that_never_stores_a_row() -> None:
    graph = parse_graph(SOFTMAX)
    together = fused(graph)
    assert len(groups_of(together)) == 1
    nest = schedule(groups_of(together)[0])
    assert nest.stages == 3 and nest.sizes == (8, 5) and nest.rows == 1
    assert [b.shape for b in nest.outputs] == [()]
    rng = np.random.default_rng(1)
    x, t = rng.standard_normal((8, 5)).astype(np.float32), rng.integers(0, 5, 8)
    want = (x - np.log(np.exp(x).sum(1, keepdims=True)))[np.arange(8), t].sum()
    np.testing.assert_allclose(by_reference(together, [x, t])[0], want, rtol=1e-5)


def test_the_nest_reads_other_sizes_than_it_was_made_for() -> None:
    nest = schedule(groups_of(fused(parse_graph(SOFTMAX)))[0])
    x, t = np.zeros((3, 7), np.float32), np.array([6, 0, 1])
    (result,) = run_nest(nest, [x, t])
    np.testing.assert_allclose(result, -3 * np.log(7), rtol=1e-6)


@pytest.mark.parametrize("worth", [lambda g: True, lambda g: len(g.nodes) > 2])
def test_effects_keep_their_order(worth: Callable[[Group], bool]) -> None:
    graph = parse_graph("""graph f(%x : f32[3], %i : i64[3]):
      %0 : f32[3] = tanh(%x)
      %1 : i64[3] = in_range[size=3, wraps=False, error='index'](%i)
      %2 : f32[3] = exp(%0)
      %3 : i64[3] = in_range[size=2, wraps=False, error='runtime'](%i)
      %4 : i64[3] = add(%1, %3)
      return (%2, %4)""")
    together = fuse(graph, lambda node: True, worth)
    assert [n.attrs["error"] for n in together.nodes() if n.kind == "in_range"] == [
        "index", "runtime",
    ]  # fmt: skip


def test_a_shared_operand_does_not_join_loops_of_other_sizes() -> None:
    """Two batches through one layer: [400, 8] and [20, 8] share the bias, and no loop."""
    graph = fused(parse_graph(
        """graph f(%x : f32[400,8], %y : f32[20,8], %b : f32[8]):
        %p : f32[400,8] = add(%x, %b)
        %t : f32[400,8] = tanh(%p)
        %q : f32[20,8] = add(%y, %b)
        %u : f32[20,8] = tanh(%q)
        return (%t, %u)"""
    ))  # fmt: skip
    sizes = sorted(schedule(g, "k").sizes for g in groups_of(graph))
    assert sizes == [(20, 8), (400, 8)]


def test_an_outer_product_is_one_loop_with_what_it_is_made_of() -> None:
    graph = fused(parse_graph(
        """graph f(%x : f32[40], %y : f32[30]):
        %a : f32[40] = sin(%x)
        %b : f32[30] = cos(%y)
        %c : f32[40,1] = reshape[shape=(40, 1)](%a)
        %z : f32[40,30] = mul(%c, %b)
        return (%z)"""
    ))  # fmt: skip
    (group,) = groups_of(graph)
    assert schedule(group, "k").sizes == (40, 30)


def test_square_groups_that_were_merged_are_placed_by_their_schedule() -> None:
    graph = parse_graph("""
    graph f(%t : f32[5,5], %t1 : f32[5,1], %t2 : f32[5,1], %0 : bool[5,1], %1 : f32[5,1],
            %d : f32[5,5], %d1 : f32[5,5], %2 : f32[5,5], %3 : f32[5,5], %d2 : f32[5,1]):
      %4 : float = Constant[value=2.0]()
      %5 : float = Constant[value=0.0]()
      %a : f32[5,1] = where(%0, %5, %t2)
      %b : f32[5,1] = where(%0, %t2, %5)
      %c : f32[5,1] = add(%a, %b)
      %6 : f32[5,1] = div(%d2, %1)
      %7 : f32[5,1] = mul(%c, %6)
      %d3 : f32[5,1] = neg(%7)
      %d4 : f32[5,5] = expand[shape=(5, 5)](%t1)
      %t3 : f32[5,5] = neg(%d4)
      %t4 : f32[5,5] = add(%t, %t3)
      %e : f32[5,5] = mul(%t4, %3)
      %d5 : f32[5,5] = mul(%t4, %d1)
      %d6 : f32[5,5] = mul(%d5, %4)
      %d7 : f32[5,5] = expand[shape=(5, 5)](%c)
      %d8 : f32[5,5] = neg(%d7)
      %d9 : f32[5,5] = mul(%d8, %d)
      %d10 : f32[5,5] = div(%d9, %1)
      %8 : f32[5,5] = div(%2, %1)
      %9 : f32[5,5] = mul(%d9, %8)
      %10 : f32[5,5] = neg(%9)
      %d11 : f32[5,1] = sum[dims=(1,), keepdims=True](%10)
      %d12 : f32[5,1] = add(%d3, %d11)
      %11 : f32[5,5] = div(%d1, %1)
      %12 : f32[5,5] = mul(%e, %11)
      %13 : f32[5,5] = neg(%12)
      %d13 : f32[5,1] = sum[dims=(1,), keepdims=True](%13)
      %d14 : f32[5,1] = add(%d12, %d13)
      return (%d14, %d6, %d10)""")
    rng = np.random.default_rng(0)
    inputs = [
        rng.uniform(0.5, 1.5, v.type.shape).astype(np.float32)  # type: ignore[union-attr]
        for v in graph.inputs
    ]
    inputs[3] = inputs[3] > 1.0  # type: ignore[assignment]
    want = emit(graph, "numpy")(*inputs)
    have = emit(fused(graph), "numpy", make_kernel=TileKernel)(*inputs)
    for mine, theirs in zip(have, want, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5)


SIBLINGS = """graph f(%g : f32[64,512], %x : f32[64,512], %w : f32[512], %r : f32[64,1]):
  %h : f32[64,512] = mul(%x, %r)
  %d : f32[64,512] = mul(%g, %w)
  %p : f32[64,512] = mul(%g, %h)
  %dw : f32[512] = sum[dims=(0,), keepdims=False](%p)
  %q : f32[64,512] = mul(%d, %x)
  %s : f32[64,1] = sum[dims=(1,), keepdims=True](%q)
  %dx : f32[64,512] = mul(%s, %x)
  return (%dx, %dw)"""


def test_on_a_device_what_reads_one_array_is_one_kernel() -> None:
    graph = parse_graph(SIBLINGS)
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(v.type.shape).astype("f4") for v in graph.inputs]  # type: ignore[union-attr]
    apart, together = (
        fuse(graph, lambda node: True, lambda group: True, device=device)
        for device in (False, True)
    )
    assert len(groups_of(apart)) == 2 and len(groups_of(together)) == 1
    for a, b in zip(by_reference(apart, inputs), by_reference(together, inputs), strict=True):
        np.testing.assert_array_equal(a, b)


def test_what_is_of_channels_stays_along_them_where_images_are_as_wide() -> None:
    graph = fused(parse_graph("""
graph f(%x : f32[2,4,4,4], %r : f32[4]):
  %by : f32[1,4,1,1] = reshape[shape=(1, 4, 1, 1)](%r)
  %y : f32[2,4,4,4] = mul(%x, %by)
  %s : f32[1,4,1,1] = sum[dims=(0, 2, 3), keepdims=True](%y)
  %q : f32[4] = mul(%r, %r)
  return (%y, %s, %q)
"""))
    (group,) = groups_of(graph)
    nest = schedule(group, "kernel")
    (cube,) = [b for b in nest.outputs if b.shape == (4,)]
    assert nest.rows == 1 and cube.dims[0] is not None and not any(
        d is not None for d in cube.dims[1:]
    )  # fmt: skip
    inputs = [np.random.rand(2, 4, 4, 4).astype("f4"), np.arange(4, dtype="f4")]
    for mine, other in zip(by_native(graph, inputs), by_reference(graph, inputs), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-6)
