"""Neighbouring axes of a nest as one, where memory has them as one.

    nest over rows (8,), columns (3, 5)             nest over rows (8,), columns (15,)
      in 0: x : f32[8,3,5] dims (0, 1, 2)     →       in 0: x : f32[8,15] dims (0, 1)

The caller knows from strides that they are one (`llvm/collapse`, `triton/kernel`). The nest that
comes of it is of arrays that have their axes in its order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from gradof.codegen.loops.ir import Buffer, Instr, LoopNest
from gradof.errors import CodegenError

Groups = Sequence[Sequence[int]]


def merge_axes(nest: LoopNest, groups: Groups, sizes: Sequence[int]) -> LoopNest:
    """The nest of these sizes with each group of axes as one; CodegenError where a position along
    one of several is asked for."""
    where = {a: k for k, g in enumerate(groups) for a in g}
    alone = {g[0] for g in groups if len(g) == 1}
    named = {
        (i.buffer, i.attrs["axis"]) for i in nest.body if i.op == "load" and i.args
    }  # fmt: skip

    def merged(k: int, b: Buffer) -> Buffer:
        own = {axis for axis, _, _ in b.windows} | {axis for axis, _ in b.times}
        own |= {axis for n, axis in named if n == k and isinstance(axis, int)}
        dims: list[int | None] = []
        shape: list[int] = []
        for g in groups:
            along = [(a, d) for a in g if (d := b.dims[a]) is not None]
            if any(sizes[a] != 1 for a in g):  # else it is there, of size 1
                along = [(a, d) for a, d in along if sizes[a] != 1 or a in own]
            dims.append(len(shape) if along else None)
            if along:
                shape.append(math.prod(b.shape[d] if a in own else sizes[a] for a, d in along))
        return Buffer(
            b.name, b.dtype, tuple(shape), tuple(dims),
            tuple((where[axis], *window) for axis, *window in b.windows),  # type: ignore[misc]
            tuple((where[axis], n) for axis, n in b.times),
        )  # fmt: skip

    def moved(i: Instr) -> Instr:
        axis = i.attrs.get("axis")
        if not isinstance(axis, int):
            return i
        if axis not in alone:
            raise CodegenError(f"{nest.name} asks for positions along an axis that is merged")
        return replace(i, attrs={**i.attrs, "axis": where[axis]})

    return replace(
        nest, sizes=tuple(math.prod(sizes[a] for a in g) for g in groups),
        rows=sum(g[-1] < nest.rows for g in groups),
        inputs=tuple(merged(k, b) for k, b in enumerate(nest.inputs)),
        outputs=tuple(merged(-1, b) for b in nest.outputs), body=tuple(map(moved, nest.body)),
    )  # fmt: skip
