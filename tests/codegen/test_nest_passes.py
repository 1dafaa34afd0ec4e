"""Nests of every workload mean the same after each pass of each target, and read back as text."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from gradof.codegen.fusion.fuse import fuse
from gradof.codegen.llvm.collapse import collapsed
from gradof.codegen.llvm.contiguous_copy import can_rearrange, in_order
from gradof.codegen.llvm.kernel import is_native, layout_passes, native_passes
from gradof.codegen.loops.instructions import Target
from gradof.codegen.loops.interpret import as_nest, nest_sizes, run_nest
from gradof.codegen.loops.ir import Buffer, LoopNest
from gradof.codegen.loops.lower import schedule
from gradof.codegen.loops.passes.merge_axes import Groups
from gradof.codegen.loops.passes.run import NestPass, intermediate_nests
from gradof.codegen.loops.text import parse_nest, print_nest
from gradof.codegen.loops.verify import verify_nest
from gradof.codegen.targets.choose import in_native, in_tiles
from gradof.codegen.targets.nests import NEST_PASSES
from gradof.codegen.tiles.half import half_passes
from gradof.codegen.tiles.rewrite import tile_passes
from gradof.codegen.triton.emit import TRITON_PASSES, form_of
from gradof.codegen.triton.kernel import indexed_loads, merged_axes, with_axes
from gradof.codegen.triton.online import ONLINE_SOFTMAX
from gradof.codegen.triton.shared_rows import share_rows
from gradof.codegen.triton.split_reductions import Totals, take_totals
from gradof.ir.types import BF16, F16, F32, F64, DType
from tests import strategies
from tests.workload_graphs import NAMES, arrays_for, nests_of

NEST_TARGETS = ("tiles", "native", "triton")
CHANGED: set[str] = set()  # passes that changed some nest


def equal(have: Sequence[Any], want: Sequence[Any], nest: LoopNest, where: str) -> None:
    """Up to the rounding of sums in another order."""
    for k, (a, b) in enumerate(zip(have, want, strict=True)):
        assert a.shape == b.shape and a.dtype == b.dtype, f"{where}, output {k}"
        eps = {F64: 1e-12, F32: 1e-5, BF16: 4e-3, F16: 5e-4}.get(nest.outputs[k].dtype, 0)
        size = float(np.max(np.abs(b), initial=0)) if b.dtype.kind == "f" else 0
        np.testing.assert_allclose(a, b, rtol=10 * eps, atol=10 * eps * max(1.0, size),
                                   err_msg=f"{where}, output {k}")  # fmt: skip


def reads_back(nest: LoopNest) -> None:
    text = print_nest(nest)
    assert parse_nest(text) == nest and print_nest(parse_nest(text)) == text


def same_after_each(
    nest: LoopNest, passes: Sequence[NestPass], target: Target, arrays: Sequence[Any],
    want: Sequence[Any],
) -> LoopNest:  # fmt: skip
    """The nest after all passes, each of which was interpreted, verified and printed."""
    for name, each in intermediate_nests(nest, passes, target):
        if each != nest:
            CHANGED.add(name)
            verify_nest(each, target, name)
            reads_back(each)
            equal(run_nest(each, arrays), want, each, f"{nest.name} after {name}")
        nest = each
    return nest


def in_groups(buffer: Buffer, array: Any, merged: Buffer, groups: Groups, rows: int) -> Any:
    """An array with the axes that a nest has once groups of them are one."""
    view = as_nest(buffer, array)
    shape = [1 if d is None else merged.shape[d] for d in merged.dims]
    return np.ascontiguousarray(view).reshape(shape).reshape(merged.shape)


def merged_runs(nest: LoopNest, merged: LoopNest, groups: Groups, arrays: Sequence[Any]) -> None:
    """A nest whose axes are merged gives the same, of arrays with its axes."""
    given = [
        in_groups(b, a, m, groups, nest.rows)
        for b, a, m in zip(nest.inputs, arrays, merged.inputs, strict=True)
    ]
    want = [
        in_groups(b, a, m, groups, nest.rows)
        for b, a, m in zip(nest.outputs, run_nest(nest, arrays), merged.outputs, strict=True)
    ]
    equal(run_nest(merged, given), want, merged, f"{nest.name} merged")


# --- targets -------------------------------------------------------------------------------------


def check_tiles(nest: LoopNest, arrays: Sequence[Any]) -> None:
    want = run_nest(nest, arrays)
    for torch in (False, True):
        wide, given = nest, list(arrays)
        half = [b.dtype in (F16, BF16) for b in nest.inputs]
        if any(half):
            steps = half_passes(torch)
            wide = same_after_each(nest, steps[:1], "tiles", arrays, want)
            wide = steps[1].run(wide)
            given = [a.astype(np.float32) if h else a for a, h in zip(arrays, half, strict=True)]
        expected = run_nest(wide, given)
        same_after_each(wide, tile_passes(torch), "tiles", given, expected)


def check_native(nest: LoopNest, arrays: Sequence[Any]) -> None:
    if not is_native(nest):
        return
    want = run_nest(nest, arrays)
    for torch in (False, True):
        after = same_after_each(nest, native_passes(torch), "llvm", arrays, want)
    if can_rearrange(nest):
        ordered = in_order(nest)
        verify_nest(ordered, "llvm")
    sizes = nest_sizes(after, arrays)
    every = [*zip(after.inputs, arrays, strict=True), *zip(after.outputs, want, strict=True)]
    flat = collapsed(after, [as_nest(b, a) for b, a in every], sizes)
    if flat is None:
        return
    merge, *others = layout_passes(flat.groups, sizes)
    merged = merge.run(after)
    verify_nest(merged, "llvm", merge.name)
    merged_runs(after, merged, flat.groups, arrays)
    given = [
        in_groups(b, a, m, flat.groups, after.rows)
        for b, a, m in zip(after.inputs, arrays, merged.inputs, strict=True)
    ]
    same_after_each(merged, others, "llvm", given, run_nest(merged, given))


def check_triton(nest: LoopNest, arrays: Sequence[Any]) -> None:
    want = run_nest(nest, arrays)
    same_after_each(nest, (*TRITON_PASSES, ONLINE_SOFTMAX), "triton", arrays, want)
    rows = 0 if form_of(nest) == "pointwise" else nest.rows
    every = [*zip(nest.inputs, arrays, strict=True), *zip(nest.outputs, want, strict=True)]
    strides = [[None if d is None else a.strides[d] // a.itemsize for d in b.dims]
               for b, a in every]  # fmt: skip
    groups = merged_axes(nest.sizes, rows, strides, indexed_loads(nest))
    if not any(b.windows or b.times for b in (*nest.inputs, *nest.outputs)):
        merged_runs(nest, with_axes(nest, tuple(g[-1] for g in groups)), groups, arrays)
    for parts in (take_totals(nest), share_rows(nest)):
        if parts is not None:
            CHANGED.add("share-rows" if parts.first.rows != len(nest.sizes) else "split-reductions")
            in_two(nest, parts, arrays, want)


def in_two(nest: LoopNest, parts: Totals, arrays: Sequence[Any], want: Sequence[Any]) -> None:
    """A nest taken apart."""
    reads_back(parts.first)
    found = run_nest(parts.first, arrays)
    if parts.second is not None:
        reads_back(parts.second)
        operands = [*arrays, *found]
        found += run_nest(parts.second, [operands[k] for k in parts.given])
    made = [found[k] for k in parts.made]
    equal([a.reshape(b.shape) for a, b in zip(made, want, strict=True)], want, nest, "in two")


CHECKS = {"tiles": check_tiles, "native": check_native, "triton": check_triton}


@functools.cache
def changed_by(name: str) -> frozenset[str]:
    """The passes that changed nests of a workload; all are checked."""
    CHANGED.clear()
    for target in NEST_TARGETS:
        for nest in nests_of(name, target):
            verify_nest(nest)
            reads_back(nest)
            CHECKS[target](nest, arrays_for(nest))
    return frozenset(CHANGED)


@pytest.mark.parametrize("name", NAMES)
def test_workloads_mean_the_same_after_every_pass(name: str) -> None:
    changed_by(name)


def halved(nest: LoopNest, dtype: DType) -> LoopNest | None:
    """A nest of float32 in half precision; None where it computes in another precision."""
    own = {i.dtype for i in nest.body if i.dtype.is_float}
    if own != {F32} or any("dtype" in i.attrs for i in nest.body):
        return None

    def buffers(found: Sequence[Buffer]) -> tuple[Buffer, ...]:
        return tuple(replace(b, dtype=dtype) if b.dtype == F32 else b for b in found)

    body = tuple(replace(i, dtype=dtype) if i.dtype == F32 else i for i in nest.body)
    return replace(nest, inputs=buffers(nest.inputs), outputs=buffers(nest.outputs), body=body)


@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
def test_so_does_half_precision(dtype: DType) -> None:
    tried = 0
    CHANGED.clear()
    for name in ("gelu-bias-mse", "swiglu", "linear"):
        for nest in nests_of(name, "native"):
            half = halved(nest, dtype)
            if half is not None:
                tried += 1
                verify_nest(half)
                arrays = arrays_for(half)
                check_tiles(half, arrays)
                check_native(half, arrays)
                check_triton(half, arrays)
    assert tried >= 4 and "widen-sums" in CHANGED


NEGATED = """nest negated over rows (4,), columns (3,)
  in 0: x : f32[4,3] dims (0, 1)
  out 0: '' : f32[4] dims (0, None)
  out 1: '' : f32[3] dims (None, 0)
  %x = load[buffer=0] : f32 cell 0
  %n = neg %x : f32 cell 0
  %s = reduce[kind='sum'] %n : f32 row 1
  %y = sign %s : f32 row 1
  store[buffer=0] %y : f32 row 1
  fold[kind='sum', buffer=1] %n : f32 cell 0
"""


def test_every_pass_changes_something_here() -> None:
    """A pass that leaves all of these nests as they are would be tried by nobody."""
    CHANGED.clear()
    nest = parse_nest(NEGATED)
    check_tiles(nest, arrays_for(nest))
    check_native(nest, arrays_for(nest))
    found = frozenset(CHANGED)
    for name in ("cross-entropy", "layernorm", "attention", "mixture", "gelu-bias-mse"):
        found |= changed_by(name)
    names = {name for steps in NEST_PASSES.values() for name in steps}
    moved = {"merge-axes", "order-axes"}  # they take other arrays: `merged_runs`
    assert names - moved - found == {"widen-half", "widen-buffers", "widen-sums"}  # halves, above


def groups_of(case: strategies.Case) -> Iterator[LoopNest]:
    """The nests of a random graph, for numpy and for native code."""
    for supports in (in_native, lambda node: in_tiles(node, "torch")):
        fused = fuse(case.graph, supports, lambda group: True)
        for k, node in enumerate(n for n in fused.nodes() if n.kind == "FusionGroup"):
            yield schedule(node, f"k{k}")


@settings(max_examples=40)
@given(strategies.graphs(dtypes=(F32, F64), zero=False))
def test_so_do_nests_of_random_graphs(case: strategies.Case) -> None:
    for nest in groups_of(case):
        verify_nest(nest)
        reads_back(nest)
        arrays = arrays_for(nest)
        check_tiles(nest, arrays)
        check_native(nest, arrays)
        check_triton(nest, arrays)
