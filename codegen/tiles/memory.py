"""Scratch memory of the thread that runs a tile, one for all kernels.

    with scratch(kernel, (256, 1024)) as arrays:      # kernel.widths: bytes of a cell, per array
        kernel.run_tile.function(..., arrays, ...)

It is kept for the next tile, which mostly needs as much: what was written last is still in the
cache. Whoever uses it has it alone, should a finalizer run a kernel in the middle of another. Of
threads that ended some memory is left: what was used last is kept, for twice as many as may run.

It is found by the thread's number, as Python forgets all else about a thread of torch's whenever
that goes back to torch.
"""

from __future__ import annotations

import contextlib
import math
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from gradof import tuning
from gradof.codegen.machine.threads import n_threads

_LINE = 64  # bytes of a cache line, and of the widest vector
_KEPT: OrderedDict[int, _Memory] = OrderedDict()  # by thread, the longest unused first


class NeedsScratch(Protocol):
    """A kernel: the bytes of a cell in each of its buffers, and what makes arrays of these."""

    widths: tuple[int, ...]
    make_scratch: Any


class _Memory:
    """Bytes, and the arrays over them, for each kernel by the sizes of its tile."""

    def __init__(self, size: int) -> None:
        unaligned = np.empty(size + _LINE, np.uint8)
        self.bytes = unaligned[-unaligned.ctypes.data % _LINE :]
        self.made: weakref.WeakKeyDictionary[Any, dict[tuple[int, ...], Any]]
        self.made = weakref.WeakKeyDictionary()

    def arrays(self, kernel: NeedsScratch, tile: tuple[int, ...]) -> Any:
        made = self.made.setdefault(kernel, {})
        if tile not in made:
            if len(made) > 2:  # usual are whole tiles and the last
                made.clear()
            cells, first, buffers = math.prod(tile), 0, []
            for width in kernel.widths:
                buffers.append(self.bytes[first : first + cells * width])
                first += _place(cells * width)
            made[tile] = kernel.make_scratch(buffers, *tile)
        return made[tile]


@contextlib.contextmanager
def scratch(kernel: NeedsScratch, tile: tuple[int, ...]) -> Iterator[Any]:
    """The scratch arrays of a kernel for a tile of these sizes, of this thread alone."""
    cells, need = math.prod(tile), 0
    for width in kernel.widths:
        need += _place(cells * width)
    thread = threading.get_ident()
    memory = _KEPT.pop(thread, None)
    if memory is None or memory.bytes.nbytes < need:
        memory = _Memory(need)
    try:
        yield memory.arrays(kernel, tile)
    finally:
        if need <= tuning.TILE_KEPT:
            _KEPT[thread] = memory
        if len(_KEPT) > 2:
            while len(_KEPT) > 2 * n_threads():
                _KEPT.popitem(last=False)


def _place(size: int) -> int:
    """Bytes from one array to the next."""
    return -(-size // _LINE) * _LINE
