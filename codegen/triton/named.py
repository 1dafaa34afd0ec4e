"""Nests as they are emitted: names that the source does not use itself, sums that stay wide."""

from __future__ import annotations

import re
from dataclasses import replace

from gradof.codegen.loops.ir import LoopNest, Operand
from gradof.codegen.triton.helpers import HELPERS
from gradof.codegen.triton.ops import HALF
from gradof.errors import CodegenError
from gradof.ir.types import F32, DType

_MINE = re.compile(
    r"(in|out|fold|acc|n|r|c)\d*(_.*)?|[A-Z]+|tl|triton|libdevice|tile|row|cell|start|rest_\w"
    r"|float|range|" + "|".join(HELPERS)
)


def wide(dtype: DType) -> DType:
    """The dtype a reduction is computed in."""
    return F32 if dtype in HALF else dtype


def wide_sums(nest: LoopNest) -> LoopNest:
    """Row results that only folds read stay in float32: the sum of them all is rounded once."""
    readers: dict[Operand, set[str]] = {}
    for i in nest.body:
        for arg in i.args:
            readers.setdefault(arg, set()).add(i.op)
    return replace(nest, body=tuple(
        replace(i, dtype=wide(i.dtype))
        if i.op == "reduce" and readers.get(i.name) == {"fold"} else i
        for i in nest.body
    ))  # fmt: skip


def safe(nest: LoopNest) -> LoopNest:
    """The nest with no name that the emitted source uses itself."""
    new = {i.name: i.name + "_" for i in nest.body if i.name and _MINE.fullmatch(i.name)}
    if any(name in {i.name for i in nest.body} for name in new.values()):
        raise CodegenError(f"{nest.name} has names that only differ by a trailing _")
    return replace(nest, body=tuple(
        replace(i, name=new.get(i.name, i.name),
                args=tuple(new.get(a, a) if isinstance(a, str) else a for a in i.args))
        for i in nest.body
    ))  # fmt: skip
