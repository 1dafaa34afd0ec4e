"""Sizes of tiles, and how many programs share a nest out; see Note [Forms].

    b = blocks_for(nest, "persistent", 4096, 4096, 1 << 14)    # Blocks(1, 4096, 16, warps=8)
    grid_of("persistent", 4096, 4096, b)                         # (256,)

Note [Programs of folds]
Every program of a nest that folds leaves a partial result, which is written and read again: so
there are as many programs as the device has at work at once, and not one for each tile. That is
two a multiprocessor, four where a program has two warps, and fewer where partial results would be
more than a sixteenth of what the nest reads and writes. The number of tiles that each of them runs
through is an argument of the kernel: other numbers of rows need no other kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gradof import tuning
from gradof.codegen.loops.ir import Buffer, LoopNest
from gradof.codegen.triton.emit import Form
from gradof.codegen.triton.fold_source import folds_of
from gradof.codegen.triton.named import wide

MAX_ROW_PROGRAMS = (1 << 16) - 1  # along the second axis of a grid
MAX_WARPS = 16


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
        return tuning.MULTIPROCESSORS
    import torch

    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def blocks_for(
    nest: LoopNest, form: Form, n_rows: int, n_columns: int, most: int,
    units: int = tuning.MULTIPROCESSORS, *, down: bool = False,
) -> Blocks:  # fmt: skip
    """Sizes of the tile by what fits into registers; see `warps_for`.

    `down`: elements that are next to each other in memory are of one column.
    """
    folds = folds_of(nest)
    if form == "pointwise":
        return Blocks(1, min(1024, power(n_columns)), 1)
    if form == "looped":
        rows = 16 if any(f.level == "cell" for f in folds) else 1
        # of rows that are read again, few at a time: they are to stay in the cache
        cells = 4 * tuning.BLOCK_CELLS if rows == 1 and nest.stages > 1 else tuning.BLOCK_CELLS
        columns = min(power(n_columns), most, cells // (rows // 2 or 1))
        tiles = -(-n_rows // (rows * units * 8)) if folds and rows == 1 else 1
        return Blocks(rows, columns, max(1, tiles), warps_for(rows * columns, _is_half(nest)))
    if form == "tiled":
        columns = min(power(n_columns), 4 if down and n_rows >= tuning.BLOCK_CELLS else 1024)
        cells = tuning.BLOCK_CELLS if columns > 1 else 2 * tuning.BLOCK_CELLS
        rows = max(1, min(power(n_rows), cells // columns))
    else:
        columns = power(n_columns)
        most = 64 if columns > 1 else 1024
        rows = min(most, max(1, tuning.BLOCK_CELLS // columns), power(n_rows))
    warps = warps_for(rows * columns, _is_half(nest))
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
    cells = sum(b.dtype.itemsize for b in _cells(nest))
    partial = sum(2 * wide(f.dtype).itemsize for f in folds_of(nest) if f.level == "cell")
    fitting = n_rows * cells * across // (16 * units * partial) if partial and cells else 16
    return max(1, min(max(2, 8 // warps), fitting))


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
    return Blocks(tuning.FOLD_BLOCK_CELLS // width, width, 1, 8)


def _cells(nest: LoopNest) -> list[Buffer]:
    """The operands and outputs that have an element for each cell."""
    rows, columns = range(nest.rows), range(nest.rows, len(nest.sizes))
    return [
        b for b in (*nest.inputs, *nest.outputs)
        if all(not axes or any(b.dims[a] is not None for a in axes) for axes in (rows, columns))
    ]  # fmt: skip


def _is_half(nest: LoopNest) -> bool:
    found = _cells(nest)
    return bool(found) and all(b.dtype.itemsize <= 2 for b in found)


def warps_for(cells: int, half: bool = False) -> int:
    """Warps for a tile: 16 cells a thread, 32 of half precision, at most 16 warps."""
    return max(2 if half else 4, min(MAX_WARPS, power(cells) // (1024 if half else 512)))


def power(n: int) -> int:
    """The next power of two; 1 for none."""
    return 1 << max(0, n - 1).bit_length()

