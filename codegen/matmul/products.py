"""Products of matrices, and of stacks of them, by the kernel of `matmul`.

    y = product(a, b, openmp=True)      # np.matmul(a, b), a fresh array; None where it cannot

Any strides will do, also negative ones and 0, but the leading axes must be two at most, or as good
as two (`_batch`). Work is cut into chunks by the sizes alone, and every element is added up in one
order, so results are the same, bit for bit, on every number of threads.
"""

from __future__ import annotations

import functools
import math
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gradof import tuning
from gradof.codegen.machine import runtime_ir as place
from gradof.codegen.machine.bounded import keep
from gradof.codegen.machine.engine import address_of, vector_bits
from gradof.codegen.machine.parallel import new_job, run_job
from gradof.codegen.machine.scratch import Scratch
from gradof.codegen.machine.threads import n_threads
from gradof.codegen.matmul.emit import ARGUMENTS, emit_product, scratch_bytes
from gradof.codegen.matmul.pack import panel_width, tile_rows
from gradof.ir.types import F32, F64, DType
from gradof.ops.memory import empty

_MAX_LAYOUTS = 256
_DTYPES = {"f": F32, "d": F64}
_UNKNOWN = object()
_LAYOUTS: dict[Any, _Layout | None] = {}
_SCRATCH = Scratch()


class _Layout(NamedTuple):
    """What shapes and strides decide."""

    shape: tuple[int, ...]
    job: array[int]  # all but the addresses of memory
    threads: int  # that it is worth
    scratch: int  # bytes of a thread's panel


def product(a: Any, b: Any, openmp: bool) -> Any:
    """See the module docstring; `openmp` as in `parallel.run_job`."""
    key = (a.dtype.char, a.shape, a.strides, b.shape, b.strides)
    layout = _LAYOUTS.get(key, _UNKNOWN)
    if layout is _UNKNOWN:
        layout = keep(_LAYOUTS, key, _layout(a, b), _MAX_LAYOUTS)
    if layout is None:
        return None
    assert isinstance(layout, _Layout)
    result = empty(layout.shape, a.dtype)
    if result.size:
        _run(layout, [x.__array_interface__["data"][0] for x in (a, b, result)], openmp)
    return result


def _run(layout: _Layout, addresses: Sequence[int], openmp: bool) -> None:
    threads = min(n_threads(), layout.threads) if layout.threads > 1 else 1
    start, _memory = _SCRATCH.take(threads * layout.scratch)
    job = layout.job[:]
    job[place.SCRATCH] = job[place.PARTIAL] = job[place.TEMPLATE] = start
    job[place.FIELDS : place.FIELDS + len(addresses)] = array("q", addresses)
    run_job(job, threads, openmp)


def _layout(a: Any, b: Any) -> _Layout | None:
    work = work_of(a, b, vector_bits())
    if work is None:
        return None
    dtype, (*batch, m, n) = _DTYPES[a.dtype.char], work.shape
    job = new_job({
        place.KERNEL: _address(dtype.name, vector_bits()), place.COUNT: work.pieces,
        place.CHUNK: work.chunk, place.CHUNKS: -(-work.pieces // work.chunk),
        place.SCRATCH_STEP: work.scratch,
    }, [work.values.get(name, 0) for name in ARGUMENTS], [])  # fmt: skip
    threads = 1 + math.prod(batch) * m * n * a.shape[-1] // tuning.MATMUL_THREAD
    return _Layout(work.shape, job, threads, work.scratch)


class Work(NamedTuple):
    """The kernel's arguments but for the addresses, and what it is to be called for."""

    shape: tuple[int, ...]  # of the result
    values: dict[str, int]
    pieces: int  # of work,
    chunk: int  # and of them those that a thread takes at once
    scratch: int  # bytes of a thread's panel


def work_of(a: Any, b: Any, bits: int) -> Work | None:
    """The work of a product, by shapes, strides and the width of registers.

    None where the leading axes are too many.
    """
    (m, k), n = a.shape[-2:], b.shape[-1]
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    axes = _batch(batch, a, b)
    if axes is None:
        return None
    (_, a_outer, b_outer), (inner, a_inner, b_inner) = axes
    dtype = _DTYPES[a.dtype.char]
    panels = max(1, -(-n // panel_width(dtype, bits)))
    stacks = max(1, math.prod(batch))
    block = _block(m, stacks * panels, tile_rows(bits))
    blocks = max(1, -(-m // block))
    values = {
        "m": m, "n": n, "k": k, "inner": inner, "a_outer": a_outer, "a_inner": a_inner,
        "a_row": a.strides[-2], "a_step": a.strides[-1], "b_outer": b_outer, "b_inner": b_inner,
        "b_step": b.strides[-2], "b_column": b.strides[-1], "block": block, "blocks": blocks,
        "panels": panels,
    }  # fmt: skip
    each = max(1, block * panel_width(dtype, bits) * k)
    chunk = max(1, tuning.MATMUL_CHUNK // each)
    scratch = scratch_bytes(k, dtype, bits)
    return Work((*batch, m, n), values, stacks * panels * blocks, chunk, scratch)


@functools.cache
def linked(dtype: DType, bits: int) -> str:
    """The name by which other native code calls the kernel; known from now on in this process."""
    from llvmlite import binding

    name = f"gradof_product_{dtype.name}_{bits}"
    binding.add_symbol(name, _address(dtype.name, bits))
    return name


def _block(m: int, others: int, tile: int) -> int:
    """Rows of a piece of work: all of them, or fewer where there would be few pieces."""
    wanted = -(-tuning.MATMUL_ITEMS // others)  # blocks of each matrix
    block = max(-(-m // wanted), tuning.MATMUL_ROWS)
    return -(-block // tile) * tile


def _batch(batch: Sequence[int], a: Any, b: Any) -> list[tuple[int, int, int]] | None:
    """Two axes, (size, stride of a, stride of b), as good as all leading ones, or None.

    Neighbours are one where in both operands the stride of one is that of the next times its size.
    """
    x, y = (np.broadcast_to(v, (*batch, *v.shape[-2:])).strides for v in (a, b))
    joined: list[tuple[int, int, int]] = []
    for size, s, t in zip(batch, x[:-2], y[:-2], strict=True):
        if size == 1:
            continue
        if joined and joined[-1][1:] == (s * size, t * size):
            joined[-1] = (joined[-1][0] * size, s, t)
        else:
            joined.append((size, s, t))
    if len(joined) > 2:
        return None
    return [(1, 0, 0)] * (2 - len(joined)) + joined


@functools.cache
def _address(dtype: str, bits: int) -> int:
    text = emit_product({"f32": F32, "f64": F64}[dtype], bits)
    return address_of(text, "kernel", "plain")
