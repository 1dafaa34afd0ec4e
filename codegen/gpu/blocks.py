"""Sizes of tiles, and how many programs share a nest out; see Note [Forms].

    b = blocks_for(nest, "persistent", 4096, 4096, 1 << 14)    # Blocks(1, 4096, 16, warps=8)
    grid_of("persistent", 4096, 4096, b)                         # (256,)

Note [Programs of folds]
Every program of a nest that folds leaves a partial result, which is written and read again: so
there are as many programs as the device has at work at once, and not one for each tile. That is
two a multiprocessor, four where they are small, and fewer where partial results would be more than
a sixteenth of what the nest reads and writes. The number of tiles that each of them runs through
is an argument of the kernel: other numbers of rows need no other kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gradof.codegen.gpu.emit_triton import Form, folds_of
from gradof.codegen.gpu.named import wide
from gradof.codegen.loopnest import Buffer, LoopNest

CELLS = 2048  # of a tile, where rows are shorter
MULTIPROCESSORS = 132  # of a device that nobody can ask, an H100's
MAX_ROW_PROGRAMS = (1 << 16) - 1  # along the second axis of a grid
MAX_WARPS = 16
FOLD_CELLS = 8192  # of a tile of partial results


@dataclass(frozen=True)
class Blocks:
    """Rows and columns of a tile, tiles of a program; see Note [Forms]."""

    rows: int
    columns: int
    tiles: int
    warps: int = 4


def multiprocessors(device: Any) -> int:
    """How many the device of a tensor has."""
    if device.type != "cuda":
        return MULTIPROCESSORS
    import torch

    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def blocks_for(
    nest: LoopNest, form: Form, n_rows: int, n_columns: int, most: int,
    units: int = MULTIPROCESSORS,
) -> Blocks:  # fmt: skip
    """Sizes of the tile by what fits into registers, and 16 cells of it a thread."""
    folds = folds_of(nest)
    if form == "pointwise":
        return Blocks(1, min(1024, power(n_columns)), 1)
    if form == "looped":
        rows = 16 if any(f.level == "cell" for f in folds) else 1
        # of rows that are read again, few at a time: they are to stay in the cache
        cells = 4 * CELLS if rows == 1 and nest.stages > 1 else CELLS
        columns = min(power(n_columns), most, cells // (rows // 2 or 1))
        tiles = -(-n_rows // (rows * units * 8)) if folds and rows == 1 else 1
        return Blocks(rows, columns, max(1, tiles), warps_for(rows * columns))
    if form == "tiled":
        columns = min(power(n_columns), 1024)
        rows = max(1, min(power(n_rows), (CELLS if columns > 1 else 2 * CELLS) // columns))
    else:
        columns = power(n_columns)
        rows = min(64 if columns > 1 else 1024, max(1, CELLS // columns), power(n_rows))
    warps = warps_for(rows * columns)
    across = -(-n_columns // columns) or 1
    programs = MAX_ROW_PROGRAMS if form == "tiled" else n_rows or 1
    if folds:
        each = _programs_each(nest, n_rows, n_columns, warps, units, across)
        programs = max(1, units * each // across)
    return Blocks(rows, columns, max(1, -(-n_rows // (rows * programs))), warps)


def _programs_each(
    nest: LoopNest, n_rows: int, n_columns: int, warps: int, units: int, across: int
) -> int:
    """Of a multiprocessor; see Note [Programs of folds]."""
    rows, columns = range(nest.rows), range(nest.rows, len(nest.sizes))

    def is_cell(b: Buffer) -> bool:
        return all(any(b.dims[a] is not None for a in axes) for axes in (rows, columns))

    cells = sum(b.dtype.itemsize for b in (*nest.inputs, *nest.outputs) if is_cell(b))
    partial = sum(2 * wide(f.dtype).itemsize for f in folds_of(nest) if f.level == "cell")
    fitting = n_rows * cells * across // (16 * units * partial) if partial and cells else 16
    return max(1, min(max(2, MAX_WARPS // warps), fitting))


def grid_of(form: Form, n_rows: int, n_columns: int, blocks: Blocks) -> tuple[int, ...]:
    """Programs along each axis of the grid; those along the last leave partial results."""
    across = -(-n_columns // blocks.columns)
    if form == "pointwise":
        return (across,)
    down = -(-n_rows // (blocks.rows * blocks.tiles))
    return (across, down) if form == "tiled" else (down,)


def fold_blocks(columns: int, folds: int, units: int) -> Blocks:
    """The tile of the kernel that adds partial results: rows are programs of the first.

    Its columns are few enough that every multiprocessor has some, yet whole sectors of memory.
    """
    if columns == 1:
        return Blocks(1024, 1, 1, 4)
    fitting = 1 << (max(1, columns * folds // units).bit_length() - 1)
    width = max(16, min(128, fitting))
    return Blocks(FOLD_CELLS // width, width, 1, 8)


def warps_for(cells: int) -> int:
    """Warps for a tile: 16 cells a thread, between 4 and 16."""
    return max(4, min(MAX_WARPS, power(cells) // 512))


def power(n: int) -> int:
    """The next power of two; 1 for none."""
    return 1 << max(0, n - 1).bit_length()

