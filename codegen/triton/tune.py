"""Which tile a kernel runs with on a GPU: a few are timed at its first call, the best is kept.

    best = choose(key(source, ...), candidates(...), seconds)

Timed are kernels of a million positions or more, for each bucket of sizes, powers of two. What was
found is kept on disk beside machine code (`object_cache`: GRADOF_CACHE_DIR), by the kernel's
source, the bucket, the device's name and triton's version, so that later processes do not time.

GRADOF_AUTOTUNE=0 takes the tile that fits registers (`blocks_for`) for every call: sums have the
same order, and results the same bits, on every machine. Nothing is timed in triton's interpreter,
nor while a CUDA graph is captured.
"""

from __future__ import annotations

import hashlib
import json
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import astuple, replace
from functools import partial
from typing import Any

from gradof import tuning
from gradof.codegen.machine.autotune import is_on
from gradof.codegen.machine.object_cache import object_cache
from gradof.codegen.triton.blocks import MAX_WARPS, Blocks, power
from gradof.codegen.triton.compiling import compile_at_once
from gradof.codegen.triton.interpreter import is_interpreting

_chosen: dict[str, tuple[int, ...]] = {}  # what this process knows
_lock = threading.Lock()


def applies(device: Any, positions: int) -> bool:
    """Whether a kernel of so many positions is timed on the device."""
    if device.type != "cuda" or positions < tuning.TUNED_POSITIONS:
        return False
    if is_interpreting() or not is_on():
        return False
    import torch

    return not torch.cuda.is_current_stream_capturing()


def candidates(
    default: Blocks, form: str, n_columns: int, most: int, folds: bool
) -> tuple[Blocks, ...]:
    """The default first, then its neighbours: tiles and warps half and twice as large.

    `most` is the number of cells that a tile may have. Where there are folds, the cells of a
    program stay, and with them the number of partial results; half and twice as many are tried too.
    """
    found = [default]
    per_warp = max(1, default.rows * default.columns // default.warps)

    def warps_of(cells: int) -> int:
        return max(2, min(MAX_WARPS, cells // per_warp))

    if form == "persistent":
        for rows in (default.rows // 2, default.rows * 2):
            if rows and rows * default.columns <= most:
                tiles = -(-default.tiles * default.rows // rows) if folds else 1
                warps = warps_of(rows * default.columns)
                found.append(replace(default, rows=rows, tiles=tiles, warps=warps))
    else:
        for columns in (default.columns // 2, default.columns * 2, default.columns * 4):
            if 256 <= columns <= power(n_columns) and default.rows * columns <= most:
                tiles = default.tiles
                if form == "tiled" and folds:
                    if tiles * default.columns < columns:
                        continue  # fewer cells than one tile
                    tiles = -(-tiles * default.columns // columns)
                warps = warps_of(default.rows * columns)
                found.append(replace(default, columns=columns, tiles=tiles, warps=warps))
    # the largest tiles have more registers a cell, and fewer programs at once, with 32
    large = default.rows * default.columns >= tuning.TUNED_CELLS
    most_warps = 2 * MAX_WARPS if large else MAX_WARPS
    for warps in (default.warps // 2, default.warps * 2):
        if 2 <= warps <= most_warps:
            found.append(replace(default, warps=warps))
    if folds and default.tiles > 1:
        found += [replace(default, tiles=n) for n in (-(-default.tiles // 2), default.tiles * 2)]
    return tuple(dict.fromkeys(found))


def key(source: str, dtypes: Sequence[str], n_rows: int, n_columns: int, device: Any) -> str:
    """Under which name a choice is kept."""
    import torch
    import triton

    name = torch.cuda.get_device_name(device)
    bucket = [power(n_rows), power(n_columns)]
    text = json.dumps([source, list(dtypes), bucket, name, triton.__version__])
    return "tile-" + hashlib.sha256(text.encode()).hexdigest()


def choose(
    name: str, found: Sequence[Blocks], seconds: Callable[[Blocks], float],
    compiled: Callable[[Blocks], Sequence[Any]] | None = None,
) -> Blocks:  # fmt: skip
    """The fastest, as it was found before, or as `seconds` says now.

    Each is timed once; the first one wins where none is faster. One that cannot be launched takes
    infinitely long. Without memory to time in, the first is taken, and nothing is kept. `compiled`
    has triton compile the kernels of a tile: those of all tiles at once, beforehand.
    """
    import torch

    by_numbers = {astuple(b): b for b in found}
    with _lock:
        kept = _chosen.get(name) or _load(name)
        if kept not in by_numbers:
            if compiled is not None:
                compile_at_once([partial(compiled, blocks) for blocks in found])
            try:
                times = {b: seconds(b) for b in found}
            except torch.OutOfMemoryError:
                return found[0]
            kept = astuple(min(found, key=lambda b: times[b]))
            object_cache().store(name, json.dumps(kept).encode())
        _chosen[name] = kept
    return by_numbers[kept]


def kept(name: str, found: Sequence[Blocks]) -> Blocks | None:
    """What was found before to be the fastest; None where none was."""
    with _lock:
        numbers = _chosen.get(name) or _load(name)
    return next((b for b in found if astuple(b) == numbers), None)


def _load(name: str) -> tuple[int, ...]:
    """What the disk says; () where it says nothing. Checksums hold that it is what was written."""
    content = object_cache().load(name)
    return () if content is None else tuple(json.loads(content))


def seconds_of(launch: Callable[[], Any], device: Any) -> float:
    """The median time of a launch; infinite where the device has no room for its tile."""
    import torch
    from triton.runtime.errors import OutOfResources
    from triton.testing import do_bench

    with torch.cuda.device(device):  # whose events take the time
        try:
            return float(do_bench(launch, warmup=5, rep=20, return_mode="median")) / 1e3
        except OutOfResources:
            return math.inf
