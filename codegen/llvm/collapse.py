"""Collapse the column axes of a native kernel, by strides: to one axis, or to segments of one.

    collapsed(nest, views, sizes)       # Flat(strides=[[1024, 1], [0, 1]], columns=(1024,))
    segmented(nest, views, sizes)       # Flat(strides=[[1024, 65536, 1], ...], columns=(16, 1024))

Note [Columns that collapse]
Several column axes are one where, for every buffer that varies along them, the stride of each is
the stride of the next times its size. Where they are two such groups of axes, as those of a batch
norm of x[n, c, h, w] are n and (h, w), each row is a row of segments, which the kernel goes through
one after another. Otherwise the call goes to numpy tiles, or, where there is half precision, to
`contiguous_copy`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from gradof import tuning
from gradof.codegen.loops.ir import LoopNest


class Flat(NamedTuple):
    """Strides of every buffer in elements, of rows and of the column axes there are, these axes'
    sizes: (columns,), or (segments, columns of one), and the axes of the nest that are one."""

    strides: list[list[int]]
    columns: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]


def collapsed(nest: LoopNest, views: Sequence[Any], sizes: Sequence[int]) -> Flat | None:
    """With one column axis; None where they do not join. A nest without columns has one of them."""
    return None if _has_positions(nest) else _flat(nest, views, sizes, None)


def segmented(nest: LoopNest, views: Sequence[Any], sizes: Sequence[int]) -> Flat | None:
    """With two column axes, for a nest that may have segments; None where they do not join."""
    if not _may_have_segments(nest):
        return None
    wide = [n for n in sizes[nest.rows :] if n != 1]
    for cut in range(1, len(wide)):
        found = _flat(nest, views, sizes, cut)
        if found is not None and found.columns[1] >= tuning.SEGMENT_COLUMNS:
            return found
    return None


def _may_have_segments(nest: LoopNest) -> bool:
    """Whether nothing asks for the place of a column: no position, no sum of each column's own."""
    placed = any(i.op == "index" or (i.op == "fold" and i.level == "cell") for i in nest.body)
    return nest.rows > 0 and not placed


def _has_positions(nest: LoopNest) -> bool:
    """Whether anything asks for a position along one of several axes of columns."""
    return len(nest.sizes) > nest.rows + 1 and any(i.op == "index" for i in nest.body)


def _flat(
    nest: LoopNest, views: Sequence[Any], sizes: Sequence[int], cut: int | None
) -> Flat | None:
    """The columns that are not of size 1 as one group, or as those before and after a `cut`."""
    found = []
    for view in views:
        item = view.itemsize
        if any(s % item for s in view.strides):
            return None
        steps = [0 if n == 1 else s // item for n, s in zip(view.shape, view.strides, strict=True)]
        rows = steps[: nest.rows]
        tail = [
            (size, n, step)
            for size, n, step in zip(sizes, view.shape, steps, strict=True)
        ][nest.rows :]  # fmt: skip
        tail = [(size, n, step) for size, n, step in tail if size != 1]
        groups = [tail] if cut is None else [tail[:cut], tail[cut:]]
        for group in groups:
            for (_, n, step), (size, m, following) in itertools.pairwise(group):
                if (n == 1) != (m == 1) or step != following * size:
                    return None
        last = [group[-1][2] if group else 0 for group in groups]
        found.append([*rows, *(last if len(sizes) > nest.rows else [])])
    axes = range(nest.rows, len(sizes))
    if cut is None:
        joined = [tuple(axes)]
    else:
        first = [a for a in axes if sizes[a] != 1][cut]
        joined = [tuple(a for a in axes if a < first), tuple(a for a in axes if a >= first)]
    columns = tuple(math.prod(sizes[a] for a in part) for part in joined)
    merged = (*((a,) for a in range(nest.rows)), *(part for part in joined if part))
    return Flat(found, columns, merged)
