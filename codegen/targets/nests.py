"""The passes over loop nests, by target and by name, each of which runs alone on a text.

    NEST_PASSES["tiles"]["sums-by-blas"].run(nest)       # the nests it makes: mostly one
    for name, nests in after_each(nest, "native"): ...   # what kernels of contiguous arrays are

Passes that follow from strides take arrays to be contiguous here; a kernel looks at its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradof.codegen.llvm.collapse import collapsed
from gradof.codegen.llvm.contiguous_copy import can_rearrange, in_order
from gradof.codegen.llvm.kernel import layout_passes, native_passes
from gradof.codegen.loops.interpret import as_nest
from gradof.codegen.loops.ir import Buffer, LoopNest
from gradof.codegen.loops.passes.run import NestPass
from gradof.codegen.loops.verify import checked
from gradof.codegen.lowering.half import raw_numpy_dtype
from gradof.codegen.tiles.half import half_passes
from gradof.codegen.tiles.rewrite import tile_passes
from gradof.codegen.triton.emit import TRITON_PASSES, form_of
from gradof.codegen.triton.kernel import indexed_loads, merged_axes, with_axes
from gradof.codegen.triton.online import ONLINE_SOFTMAX
from gradof.codegen.triton.shared_rows import share_rows
from gradof.codegen.triton.split_reductions import Totals, take_totals

_MERGE = "Neighbouring axes as one, where memory has them as one."


@dataclass(frozen=True)
class NestStep:
    """A pass: the nests that it makes of one. `always`: it is part of every kernel, and not only
    of those whose sizes or strides ask for it."""

    run: Callable[[LoopNest], Sequence[LoopNest]]
    about: str
    always: bool = True


def _step(each: NestPass) -> NestStep:
    return NestStep(lambda nest: [each.run(nest)], each.about)


def _steps(passes: Sequence[NestPass]) -> dict[str, NestStep]:
    return {each.name: _step(each) for each in passes}


def _views(buffers: Sequence[Buffer]) -> list[Any]:
    return [as_nest(b, np.empty(b.shape, raw_numpy_dtype(b.dtype))) for b in buffers]


def _merge_native(nest: LoopNest) -> list[LoopNest]:
    views = _views((*nest.inputs, *nest.outputs))
    flat = collapsed(nest, views, nest.sizes)
    return [nest] if flat is None else [layout_passes(flat.groups, nest.sizes)[0].run(nest)]


def _merge_triton(nest: LoopNest) -> list[LoopNest]:
    rows = 0 if form_of(nest) == "pointwise" else nest.rows
    buffers = (*nest.inputs, *nest.outputs)
    arrays = [np.empty(b.shape, np.int8) for b in buffers]
    strides = [[None if d is None else a.strides[d] for d in b.dims]
               for b, a in zip(buffers, arrays, strict=True)]  # fmt: skip
    groups = merged_axes(nest.sizes, rows, strides, indexed_loads(nest))
    return [with_axes(nest, tuple(g[-1] for g in groups))]


def _in_two(found: Totals | None, nest: LoopNest) -> list[LoopNest]:
    if found is None:
        return [nest]
    return [found.first] if found.second is None else [found.first, found.second]


NEST_PASSES: Mapping[str, Mapping[str, NestStep]] = {
    "tiles": _steps([*half_passes(torch=True), *tile_passes(torch=True)]),
    "native": {
        "order-axes": NestStep(
            lambda nest: [in_order(nest)] if can_rearrange(nest) else [nest],
            "Of copies that have their axes in the order of the nest.", always=False),
        **_steps(native_passes(torch=True)),
        "merge-axes": NestStep(_merge_native, _MERGE),
        **_steps(layout_passes((), ())[1:]),
    },
    "triton": {
        "split-reductions": NestStep(
            lambda nest: _in_two(take_totals(nest), nest),
            "Two kernels: what is reduced, by many programs, and what reads it.", always=False),
        "share-rows": NestStep(
            lambda nest: _in_two(share_rows(nest), nest),
            "Two kernels for few and long rows, which many programs share.", always=False),
        "merge-axes": NestStep(_merge_triton, _MERGE),
        **_steps(TRITON_PASSES),
        ONLINE_SOFTMAX.name: NestStep(
            lambda nest: [ONLINE_SOFTMAX.run(nest)], ONLINE_SOFTMAX.about, always=False),
    },
}  # fmt: skip


def after_each(nest: LoopNest, target: str) -> Iterator[tuple[str, LoopNest]]:
    """The passes that every kernel of a target has, each with the nest after it."""
    for name, step in NEST_PASSES[target].items():
        if step.always:
            (nest,) = step.run(nest)
            checked(nest, after=name)
            yield name, nest
