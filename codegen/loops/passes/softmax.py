"""The sum that a softmax divides by, as it comes into a nest.

    m = reduce[max] x      row
    d = sub x m            cell
    e = exp d              cell
    s = reduce[sum] e      row        →      SumOfExp(x, m, e)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gradof.codegen.loops.ir import Instr


class SumOfExp(NamedTuple):
    """What a sum of exp(x - m) is made of, m the largest x of the row."""

    x: str
    top: Instr
    difference: Instr
    exp: Instr


def sum_of_exp(made: Mapping[str, Instr], total: Instr | None) -> SumOfExp | None:
    """The parts of such a sum, None for anything else; `made` are the instructions by name."""
    if total is None or total.op != "reduce" or total.attrs["kind"] != "sum":
        return None
    exp = made.get(str(total.args[0]))
    difference = made.get(str(exp.args[0])) if exp is not None and exp.op == "exp" else None
    if exp is None or difference is None or difference.op != "sub":
        return None
    x, top = difference.args[0], made.get(str(difference.args[1]))
    if not isinstance(x, str) or top is None or top.op != "reduce" or top.attrs["kind"] != "max":
        return None
    return SumOfExp(x, top, difference, exp) if top.args[0] == x else None
