"""Which outputs a native kernel writes past the cache.

    streamed(nest, strides, made)     # the outputs, of those that `maker` makes

Note [Stores past the cache]
A store to memory that is not in the cache reads its line first, and puts another line out. Where a
kernel's arrays are larger than the last cache, what it writes is gone from there before anybody
reads it, so it goes to memory at once, line by line: a third of an output's traffic less, and the
caches keep what Python and torch want next. Such a store has to be on a boundary of its own size.
So its array is one that `gradof.ops.memory` puts on a cache line, whose rows are whole lines, and
loops begin at one. Held cells are not kept in such an output (`lent_outputs`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

from gradof import tuning
from gradof.codegen.loops.ir import LoopNest
from gradof.ops.memory import ALIGNED, is_aligned

_UNITS = {"K": 10, "M": 20}


@functools.cache
def last_cache() -> int:
    """Bytes of the largest cache."""
    found = []
    for file in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = file.read_text().strip()
        if text[:-1].isdigit() and text[-1] in _UNITS:
            found.append(int(text[:-1]) << _UNITS[text[-1]])
    return max(found, default=tuning.LAST_CACHE)


def streamed(
    nest: LoopNest, strides: Sequence[Sequence[int]], sizes: Sequence[int], made: Sequence[int]
) -> list[int]:
    """The outputs, of those in `made`, that are written past the cache.

    `strides`, in elements, and `sizes` of inputs and outputs are along the nest's rows, and columns
    as one axis.
    """
    found = []
    buffers = (*nest.inputs, *nest.outputs)
    lengths = [
        buffer.dtype.itemsize * _cells(each, sizes)
        for buffer, each in zip(buffers, strides, strict=True)
    ]
    if sum(lengths) < last_cache():
        return []
    for k in made:
        place = len(nest.inputs) + k
        *rows, column = strides[place] or [0]
        width = nest.outputs[k].dtype.itemsize
        on_lines = all(step * width % ALIGNED == 0 for step in rows)
        if column == 1 and on_lines and is_aligned(lengths[place]):
            found.append(k)
    return found


def _cells(strides: Sequence[int], sizes: Sequence[int]) -> int:
    """The elements that are read or written."""
    count = 1
    for step, size in zip(strides, sizes, strict=True):
        count *= size if step else 1
    return count
