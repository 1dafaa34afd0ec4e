"""The memory of partial results, a row for each chunk of a native kernel (`combine_partials`).

    partials = Partials(nest, code, columns)
    partials.width, partials.template          # bytes of a chunk's part, and what it starts from
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradof.codegen.llvm.combine_partials import fold_address
from gradof.codegen.llvm.emit import Code
from gradof.codegen.loops.ir import LoopNest
from gradof.codegen.lowering.half import narrow_bf16
from gradof.ir.attrs import to_numpy_dtype
from gradof.ir.types import BF16


class Partials:
    """The layout of a chunk's part: each fold 64 bytes aligned, of cells one element a column."""

    def __init__(self, nest: LoopNest, code: Code, columns: int) -> None:
        self.folds = code.folds
        self.width = 0
        self.dtypes = code.sums
        self.written = [nest.outputs[k].dtype for k, _, _ in code.folds]
        self.places: list[tuple[int, Any, int]] = []
        for (_, _, of_cells), summed in zip(code.folds, code.sums, strict=True):
            dtype = to_numpy_dtype(summed)
            count = columns if of_cells else 1
            self.places.append((self.width, dtype, count))
            self.width += (count * dtype.itemsize + 63) & ~63
        self.template = np.zeros(self.width, np.uint8)
        for (at, dtype, count), (_, kind, _) in zip(self.places, self.folds, strict=True):
            part = self.template[at : at + count * dtype.itemsize].view(dtype)
            part[...] = _identity(kind, dtype)

    def table(self, inputs: int) -> list[int]:
        """What `parallel` needs of each fold, of a kernel with so many inputs."""
        numbers: list[int] = []
        for (at, _, count), (k, kind, _), dtype, written in zip(
            self.places, self.folds, self.dtypes, self.written, strict=True
        ):
            numbers += [fold_address(kind, dtype, written), inputs + k, at, count]
        return numbers

    def identities(self, outputs: Sequence[Any]) -> None:
        """Write the folds of no rows at all."""
        for (at, dtype, count), (k, _, _), written in zip(
            self.places, self.folds, self.written, strict=True
        ):
            part = self.template[at : at + count * dtype.itemsize].view(dtype)
            outputs[k].reshape(-1)[...] = narrow_bf16(part) if written == BF16 else part


def _identity(kind: str, dtype: Any) -> Any:
    if kind in ("sum", "prod"):
        return 0 if kind == "sum" else 1
    if dtype.kind == "f":
        return -np.inf if kind == "max" else np.inf
    info = np.iinfo(dtype)
    return info.min if kind == "max" else info.max
