"""The sign of nan, which is nan for numpy and 0 for torch, as comparisons where it is torch's.

    y = sign x      cell        →       up = gt x 0.0             cell
                                        down = lt x 0.0           cell
                                        zero = cast 0.0               once
                                        below = where down -1.0 zero  cell
                                        y = where up 1.0 below    cell
"""

from __future__ import annotations

from dataclasses import replace

from gradof.codegen.loops.ir import Instr, LoopNest
from gradof.ir.types import BOOL


def with_sign_of_nan(nest: LoopNest) -> LoopNest:
    """The nest without `sign`, for a torch caller; the nest itself where it has none."""
    if all(i.op != "sign" for i in nest.body):
        return nest
    taken = {i.name for i in nest.body}
    body = [made for i in nest.body for made in (_signs(i, taken) if i.op == "sign" else [i])]
    return replace(nest, body=tuple(body))


def _signs(i: Instr, taken: set[str]) -> list[Instr]:
    words = ("up", "down", "zero", "below")
    up, down, zero, below = (_fresh(f"{i.name}_{word}", taken) for word in words)
    x, number = i.args[0], float if i.dtype.is_float else int
    return [
        replace(i, name=up, op="gt", args=(x, number(0)), dtype=BOOL),
        replace(i, name=down, op="lt", args=(x, number(0)), dtype=BOOL),
        Instr(zero, "cast", (number(0),), i.dtype, "once", 0, {"dtype": i.dtype}, i.loc),
        replace(i, name=below, op="where", args=(down, number(-1), zero)),
        replace(i, op="where", args=(up, number(1), below)),
    ]


def _fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name
