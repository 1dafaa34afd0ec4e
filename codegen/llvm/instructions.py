"""What a native kernel asks of its instructions: kinds, identities, and where held cells may be."""

from __future__ import annotations

from collections.abc import Sequence

from gradof.codegen.llvm.memory import Stride
from gradof.codegen.llvm.vectors import FLOATS
from gradof.codegen.loops.ir import Instr, LoopNest
from gradof.ir.types import BOOL, DType

WORD = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum"}
_IDENTITY = {"sum": 0.0, "prod": 1.0, "max": float("-inf"), "min": float("inf")}


def last_reads(nest: LoopNest) -> dict[str, int]:
    """The last loop that reads each held cell."""
    last: dict[str, int] = {}
    for stage in range(nest.stages):
        for i in nest.loop(stage):
            last.update((a, stage) for a in i.args if a in nest.held)
    return last


def lent_outputs(
    nest: LoopNest, strides: Sequence[Stride], last: dict[str, int]
) -> dict[str, int]:
    """Held cells that are kept in the row of an output until the loop that writes it.

    That spares a row of scratch, and so cache, where the output is written no sooner than the cell
    is read last.
    """
    lent: dict[str, int] = {}
    for i in nest.body:
        if i.op == "store" and i.level == "cell":
            k = i.buffer
            dtype = nest.outputs[k].dtype
            fits = [
                name for name in sorted(nest.held)
                if name not in lent and nest.instr(name).dtype == dtype and last[name] <= i.stage
            ]  # fmt: skip
            if fits and strides[len(nest.inputs) + k] == "one" and dtype is not BOOL:
                lent[fits[0]] = k
    return lent


def meets_nan(i: Instr) -> bool:
    """Whether nan is to be looked out for: comparisons pass it over."""
    return kind_of(i) in ("max", "min") and i.dtype in FLOATS


def kind_of(i: Instr) -> str:
    """The kind of a reduction or a fold."""
    return str(i.attrs["kind"])


def identity(kind: str, dtype: DType) -> float:
    """What a reduction starts from."""
    if dtype in FLOATS or kind in ("sum", "prod"):
        return _IDENTITY[kind]
    low = -(1 << (dtype.bits - 1))
    return low if kind == "max" else -(low + 1)
