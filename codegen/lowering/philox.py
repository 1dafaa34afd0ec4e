"""Draws of torch's CUDA generators for kernels that draw masks themselves; Note [Philox].

    seed, place = philox_state(cells, 8, torch.bfloat16, device)
    mask = philox_kept(position, seed, place, p=0.1, width=8, cells=cells)

The numbers are not promised by torch. Before the first ones are drawn, for a device and a dtype,
one mask and the generator's state are compared with those of torch's own dropout. That also tells
how far a mask moves the offset: by fours of T * 4 elements, or by turns of T * width, of which the
first moves it too little where the last turn of a width of eight is not a whole one.
"""

from __future__ import annotations

import math
import threading
from typing import Any

from gradof.errors import CodegenError
from gradof.ops.philox import BLOCK, BLOCK_BITS, increment, word_of

_lock = threading.Lock()
_steps: dict[tuple[int, int, Any], int] = {}  # what has been compared: elements of a step


def philox_state(cells: int, width: int, dtype: Any, device: Any) -> tuple[Any, Any]:
    """Seed and place as tensors; the device's default generator is moved on.

    CodegenError where torch draws other numbers, and while a CUDA graph is captured, which would
    draw the same ones at every replay.
    """
    import torch

    if torch.cuda.is_current_stream_capturing():
        raise CodegenError(
            "a dropout that kernels draw cannot be captured into a CUDA graph",
            hint="GRADOF_DROPOUT=torch, before the function is first called",
        )
    index = torch.cuda.current_device() if device.index is None else device.index
    generator = torch.cuda.default_generators[index]
    blocks = blocks_of(torch.cuda.get_device_properties(index))
    with _lock:
        key = index, width, dtype
        if key not in _steps:
            _steps[key] = _compared(generator, blocks, width, dtype, device)
        seed, place = _drawn(generator, cells, min(blocks, -(-cells // BLOCK)), _steps[key])
    made = [torch.full((), n, dtype=torch.int64, device=device) for n in (seed, place)]
    return made[0], made[1]


def blocks_of(properties: Any) -> int:
    """The blocks of threads that a device has room for."""
    each: int = properties.max_threads_per_multi_processor // BLOCK
    return int(properties.multi_processor_count) * each


def _drawn(generator: Any, cells: int, blocks: int, step: int) -> tuple[int, int]:
    seed, offset = generator.initial_seed(), generator.get_offset()
    generator.set_offset(offset + increment(cells, blocks, step))
    return (seed ^ (1 << 63)) - (1 << 63), (offset // 4) << BLOCK_BITS | blocks  # as int64


def _compared(generator: Any, blocks: int, width: int, dtype: Any, device: Any) -> int:
    """The step, by a mask of three turns beside torch's; the state is put back.

    CodegenError where the mask or the state are others.
    """
    import torch

    state = generator.get_state()
    # an odd number of widths: half precision has one of four where eight does not divide the cells
    cells = (2 * BLOCK * blocks + 9) * width
    try:
        before = generator.get_offset()
        theirs = torch.native_dropout(torch.empty(cells, dtype=dtype, device=device), 0.3, True)[1]
        moved = generator.get_offset()
        for step in (4, width):
            generator.set_offset(before)
            seed, place = _drawn(generator, cells, blocks, step)
            mine = philox_kept(
                torch.arange(cells, device=device), seed, place, p=0.3, width=width, cells=cells
            )
            if generator.get_offset() == moved and bool((mine == theirs).all()):
                return step
    finally:
        generator.set_state(state)
    raise CodegenError(
        f"this torch's dropout of {dtype} draws other numbers than gradof's kernels",
        hint="GRADOF_DROPOUT=torch, before the function is first called",
    )


def philox_kept(
    position: Any, seed: Any, place: Any, *, p: float, width: int, cells: int
) -> Any:  # fmt: skip
    """The op of that name, of tensors of int64, by torch's own ops."""
    import torch

    word = word_of(position, seed, place, width, torch.where)
    return word.to(torch.float32) * 2.0**-32 + 2.0**-33 < torch.tensor(1.0 - p).float().item()


def position(shape: tuple[int, ...], device: Any) -> Any:
    """The op of that name."""
    import torch

    return torch.arange(math.prod(shape), device=device).reshape(shape)
