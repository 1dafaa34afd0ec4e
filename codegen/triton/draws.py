"""Dropout masks in kernels; Note [Philox] in `gradof.ops.philox`.

>>> kept(i, nest, ["at", "seed", "place"])       # %mask = philox_kept[p=0.1, width=8, ...](...)
'_kept(at, seed, place, 0.9, 8, True, True)'

Philox gives four numbers at a time. Where a row of a tile has elements in runs of four that begin
at a multiple of four, one of them asks for all; elsewhere each asks for itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gradof.codegen.loops.ir import Instr, LoopNest

NARROW = 1 << 31  # positions below are computed in 32 bits, which divide faster


def kept(i: Instr, nest: LoopNest, args: Sequence[str]) -> str:
    """The expression of a `philox_kept`."""
    p, width, cells = i.attrs["p"], i.attrs["width"], i.attrs["cells"]
    assert isinstance(p, float) and isinstance(cells, int)
    below = float(np.float32(1.0 - p))
    return f"_kept({', '.join(args)}, {below!r}, {width}, {cells < NARROW}, {_in_fours(i, nest)})"


def _in_fours(i: Instr, nest: LoopNest) -> bool:
    """Whether neighbours along a row of the tile are neighbours in the mask, from 0, 4, 8, ... on.

    A position is a sum, or its last term; strides of all others are multiples of the last size.
    """
    made = {x.name: x for x in nest.body if x.name}
    found = made[str(i.args[0])]
    while found.op == "add":
        found = made[str(found.args[-1])]
    last = len(nest.sizes) - 1
    along = found.op == "index" and found.attrs["axis"] == last
    return along and last >= nest.rows and nest.sizes[last] % 4 == 0
