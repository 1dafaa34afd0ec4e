"""How attention's kernels are cut into blocks, by the size of a head, the dtype and the device.

Each product is to be one that a warpgroup does from shared memory (64 rows of it and more), what is
accumulated is to stay in registers, and two or three blocks are on their way while one is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

# Rows, keys, warps, stages, and conditions.
_Choice = tuple[int, int, int, int] | tuple[int, int, int, int, *tuple[str, ...]]
# Size of the wider head → (BM, BN, warps, stages), the best first, for 16-bit operands; those with
# a further "described" where the blocks that a loop runs along are loaded by tensor descriptors,
# those with "plain" where nothing but numbers changes the scores, those with "all" where no causal
# mask rules blocks out. Timed on an H100.
_HALF: dict[str, dict[int, tuple[_Choice, ...]]] = {
    "forward": {
        64: ((64, 64, 4, 3),),
        128: ((128, 128, 8, 3, "described", "plain", "all"), (64, 64, 4, 3, "described"),
              (64, 64, 4, 3), (64, 64, 4, 2)),
        256: ((128, 64, 8, 2, "described"), (128, 64, 8, 2), (64, 32, 4, 2)),
    },
    "queries": {
        64: ((64, 64, 4, 3), (64, 64, 4, 2)),
        128: ((128, 64, 8, 3, "described"), (128, 64, 8, 3), (64, 32, 4, 2)),
        256: ((128, 32, 8, 2, "described"), (64, 64, 8, 1), (64, 32, 4, 1)),
    },
    "keys": {
        64: ((64, 64, 4, 3, "described"), (64, 64, 4, 3), (64, 64, 4, 2)),
        128: ((64, 64, 4, 2, "described", "plain"), (64, 128, 8, 3), (32, 128, 8, 2),
              (32, 64, 4, 2)),
        256: ((64, 64, 8, 2, "described"), (64, 64, 8, 1), (32, 64, 4, 1)),
    },
}  # fmt: skip
# For float32, which is multiplied in TF32.
_WIDE: dict[str, dict[int, tuple[_Choice, ...]]] = {
    "forward": {64: ((64, 64, 4, 2),), 128: ((64, 32, 4, 2),), 256: ((32, 32, 4, 1),)},
    "queries": {64: ((64, 32, 4, 2),), 128: ((32, 32, 4, 1),), 256: ((32, 16, 4, 1),)},
    "keys": {64: ((32, 64, 4, 2),), 128: ((32, 32, 4, 1),), 256: ((16, 32, 4, 1),)},
}  # fmt: skip
_SMALLEST = (16, 16, 4, 1)
_SLACK = 2048  # what sums over rows and barriers take beside the operands


@dataclass(frozen=True)
class Blocks:
    """Rows, keys and elements of heads in a block; warps of a program, and loads on their way."""

    BM: int
    BN: int
    BD: int
    BE: int
    num_warps: int
    num_stages: int
    described: bool = False  # blocks of heads along the loop are loaded by tensor descriptors

    @property
    def constants(self) -> dict[str, Any]:
        """As a launch takes them."""
        return {name: value for name, value in asdict(self).items() if name != "described"}

    def shared(self, part: str, itemsize: int, extras: Sequence[int] = ()) -> int:
        """Bytes of shared memory at most; `extras` are bytes of a cell of each further operand."""
        own, along = (self.BN, self.BM) if part == "keys" else (self.BM, self.BN)
        head = (self.BD + self.BE) * itemsize
        held = own * (self.BD * itemsize if part == "forward" else head)
        # what is read of the scores' own operands is not held for the block that is computed
        beside = max(self.num_stages - 1, 1) * self.BM * self.BN * sum(extras)
        turned = self.BM * self.BN * (itemsize if self.num_warps * 16 > own else 0)
        return held + self.num_stages * along * head + beside + turned + _SLACK


def padded(n: int) -> int:
    """The size of a block that holds n elements of a head."""
    return max(16, 1 << (n - 1).bit_length())


def blocks_for(
    part: str, d: int, e: int, itemsize: int, shared: int, extras: Sequence[int] = (), *,
    plain: bool = True, causal: bool = False, described: bool = False,
) -> Blocks:  # fmt: skip
    """The first choice that fits into `shared` bytes of a program's memory.

    `plain` says that nothing but numbers changes the scores, `described` that descriptors can be.
    """
    bd, be = padded(d), padded(e)
    table = (_HALF if itemsize == 2 else _WIDE)[part]
    met = {"plain": plain, "all": not causal, "described": described}
    wide = min(size for size in table if size >= max(bd, be))
    for bm, bn, warps, stages, *needs in table[wide]:
        if not all(met[need] for need in needs):
            continue
        for ahead in range(stages, 0, -1) if extras else (stages,):
            made = Blocks(bm, bn, bd, be, warps, ahead, "described" in needs)
            if made.shared(part, itemsize, extras) <= shared:
                return made
    bm, bn, warps, stages = _SMALLEST
    return Blocks(bm, bn, bd, be, warps, stages)
