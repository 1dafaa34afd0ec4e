"""Loop nests of half precision as numpy tiles, where native code for them cannot be made.

    kernel = HalfTiles(nest)
    (y,) = kernel(x)                # raw arrays, as a native kernel has them

Arrays are converted as a whole, and the tiles compute in float32, with roundings
(`loops/passes/widen_half`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gradof.codegen.loops.ir import Buffer, LoopNest
from gradof.codegen.loops.passes.run import NestPass, run_nest_passes
from gradof.codegen.loops.passes.widen_half import has_halves, in_float32
from gradof.codegen.lowering.half import HALVES, narrow_bf16, widen_bf16
from gradof.codegen.tiles.kernel import TileKernel
from gradof.ir.types import BF16, F16, F32, DType


def tiles_of(nest: LoopNest, torch: bool = False) -> TileKernel | HalfTiles:
    """The numpy tiles of a nest, from raw arrays to raw arrays; `torch` for a torch caller."""
    return HalfTiles(nest, torch) if has_halves(nest) else TileKernel(nest, torch)


class HalfTiles:
    """See the module docstring. Thread-safe."""

    emitter = "numpy tiles"

    def __init__(self, nest: LoopNest, torch: bool = False) -> None:
        self.nest = nest
        self.tiles = TileKernel(run_nest_passes(nest, half_passes(torch), "tiles"), torch)

    @property
    def source(self) -> str:
        """The emitted code."""
        return self.tiles.source

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        """Fresh outputs for arrays in the order of the nest's inputs."""
        given = [_to_wide(b.dtype, a) for b, a in zip(self.nest.inputs, arrays, strict=True)]
        outputs = zip(self.nest.outputs, self.tiles(*given), strict=True)
        with np.errstate(all="ignore"):
            return tuple([_from_wide(b.dtype, a) for b, a in outputs])


def half_passes(torch: bool) -> list[NestPass]:
    """What is done to a nest of half precision before `tile_passes`."""
    return [
        NestPass("widen-half", functools.partial(in_float32, torch=torch),
                 "Compute half precision in float32, and round after each op."),
        NestPass("widen-buffers", _with_wide_buffers,
                 "Read and write float32 where half precision is computed in it."),
    ]  # fmt: skip


def _with_wide_buffers(nest: LoopNest) -> LoopNest:
    if has_halves(nest):
        return nest
    return replace(nest, inputs=_wide(nest.inputs), outputs=_wide(nest.outputs))


def _wide(buffers: Sequence[Buffer]) -> tuple[Buffer, ...]:
    return tuple(replace(b, dtype=F32) if b.dtype in HALVES else b for b in buffers)


def _to_wide(dtype: DType, array: Any) -> Any:
    if dtype == BF16:
        return widen_bf16(array)
    return np.asarray(array).astype(np.float32) if dtype == F16 else array


def _from_wide(dtype: DType, array: Any) -> Any:
    if dtype == BF16:
        return narrow_bf16(array)
    return array.astype(np.float16) if dtype == F16 else array
