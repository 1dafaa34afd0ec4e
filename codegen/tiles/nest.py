"""What the rewrites of a loop nest for tiles ask of it, and how they replace its instructions.

    known = Known(nest)
    known.varies["x"]                   # frozenset({0, 1}): the axes along which it differs
    known.only("x", "neg")              # the cell instruction that makes it, if but one reads it
    shorter = each(nest, rule)          # rule(known, i): what is put in the place of i, or None

`dot` and `total` are sums of columns, `softmax` and its like whole rows (`tiles/rows`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from gradof.codegen.loops.ir import Instr, LoopNest
from gradof.codegen.loops.passes.restage import reads, restaged, without_unread

SUMS = frozenset({"reduce", "dot", "total"})


def varying(nest: LoopNest) -> dict[str, frozenset[int]]:
    """The axes of the nest along which each value varies."""
    columns = frozenset(range(nest.rows, len(nest.sizes)))
    found: dict[str, frozenset[int]] = {}
    for i in nest.body:
        if not i.name:
            continue
        axes = frozenset().union(*(found[a] for a in reads(i)))
        if i.op == "load":
            axes = load_axes(nest, i)
        elif i.op == "index":
            axis = i.attrs["axis"]
            assert isinstance(axis, int)
            axes = frozenset({axis})
        elif i.op == "pick":
            loads = (load_axes(nest, j) for j in i.body if j.op == "load")
            axes = axes.union(*loads) - columns
        elif i.op in SUMS:
            axes = axes - columns
        found[i.name] = axes
    return found


def load_axes(nest: LoopNest, i: Instr) -> frozenset[int]:
    """The axes along which what a `load` reads varies."""
    return frozenset(axis for axis, d in enumerate(nest.inputs[i.buffer].dims) if d is not None)


def readers_of(nest: LoopNest) -> dict[str, list[Instr]]:
    """The instructions that read each value, once per operand."""
    found: dict[str, list[Instr]] = {}
    for i in nest.body:
        for a in reads(i):
            found.setdefault(a, []).append(i)
    return found


class Known:
    """What the rules ask of a nest."""

    def __init__(self, nest: LoopNest) -> None:
        self.nest = nest
        self.made = {i.name: i for i in nest.body if i.name}
        self.readers = readers_of(nest)
        self.varies = varying(nest)

    def made_by(self, arg: object, *ops: str) -> Instr | None:
        """The instruction that makes an operand, if it is of one of these ops."""
        i = self.made.get(arg) if isinstance(arg, str) else None
        return i if i is not None and i.op in ops else None

    def reduced(self, arg: object, kind: str) -> str | None:
        """What an operand is the sum, or largest, of in each row, if it is one."""
        i = self.made_by(arg, "reduce")
        return str(i.args[0]) if i is not None and i.attrs["kind"] == kind else None

    def only(self, arg: object, op: str) -> Instr | None:
        """The cell instruction of this op that makes an operand, if nothing else reads that."""
        i = self.made.get(arg) if isinstance(arg, str) else None
        if i is None or i.op != op or i.level != "cell" or len(self.readers[i.name]) != 1:
            return None
        return i


def each(nest: LoopNest, rule: Callable[[Known, Instr], Sequence[Instr] | None]) -> LoopNest:
    """The nest with what a rule puts in the place of each instruction, and nothing unread."""
    known = Known(nest)
    body: list[Instr] = []
    for i in nest.body:
        made = rule(known, i)
        body += [i] if made is None else made
    return restaged(replace(nest, body=without_unread(body)))


def in_order(body: Sequence[Instr]) -> list[Instr]:
    """The instructions, each after those whose values it reads, else where it was."""
    made = {i.name: i for i in body if i.name}
    found: list[Instr] = []
    placed: set[int] = set()

    def place(i: Instr) -> None:
        if id(i) not in placed:
            placed.add(id(i))
            for a in reads(i):
                place(made[a])
            found.append(i)

    for i in body:
        place(i)
    return found
