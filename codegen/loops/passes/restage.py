"""Number the stages of a nest anew, after a pass has replaced instructions.

Each instruction comes in the first stage that its operands allow: one after them where it reads
whole rows (Note [Rows that are computed whole] in `instructions`). `held` keeps the cells that
there still are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gradof.codegen.loops.instructions import is_whole
from gradof.codegen.loops.ir import Instr, LoopNest


def restaged(nest: LoopNest) -> LoopNest:
    """The nest with each instruction in its first stage."""
    stage: dict[str, int] = {}
    body: list[Instr] = []
    for i in nest.body:
        found = max((stage[a] for a in reads(i)), default=0) + is_whole(i.op)
        if i.name:
            stage[i.name] = found
        body.append(i if i.stage == found else replace(i, stage=found))
    cells = {i.name for i in body if i.level == "cell"}
    return replace(nest, body=tuple(body), held=nest.held & cells)


def without_unread(body: Sequence[Instr]) -> tuple[Instr, ...]:
    """The instructions that a store or a fold needs."""
    needed: set[str] = set()
    alive: list[Instr] = []
    for i in reversed(body):
        if not i.name or i.name in needed:
            alive.append(i)
            needed.update(reads(i))
    return tuple(alive[::-1])


def reads(i: Instr) -> Iterator[str]:
    """The values an instruction reads, those of its own body left out."""
    yield from (a for a in i.args if isinstance(a, str))
    own = {j.name for j in i.body}
    yield from (a for j in i.body for a in j.args if isinstance(a, str) and a not in own)
