"""Softmax of a row that does not fit into a block: its maximum and its sum in one pass.

    m = reduce[max] x      row  1               m, running: the largest so far
    d = sub x m            cell 1        →      s, running: the sum of exp(x - m) so far, times
    e = exp d              cell 1                  exp(m - m') whenever m grows to m'
    s = reduce[sum] e      row  2        =      s = exp_sum x m    row 1

The loop over stage 1 is left out, so a block of x is read once less. A block is cut into parts of
`PART` neighbours, which one thread has loaded: each part keeps an m and an s, and those of a row
are joined after the loop. That is an exp for a cell, and one for a part.
"""

from __future__ import annotations

from dataclasses import replace

from gradof.codegen.loops.ir import Instr, LoopNest
from gradof.codegen.loops.passes.restage import restaged, without_unread
from gradof.codegen.loops.passes.run import NestPass
from gradof.codegen.loops.passes.softmax import sum_of_exp
from gradof.ir.types import F32, F64


def with_exp_sums(nest: LoopNest) -> LoopNest:
    """The nest with an `exp_sum` for each sum of exp(x - m) whose loop has nothing else to do."""
    made = {i.name: i for i in nest.body if i.name}
    sums = {s.name: s for i in nest.body if (s := _exp_sum(nest, made, i)) is not None}
    if not sums:
        return nest
    body = without_unread([sums.get(i.name, i) for i in nest.body])
    return restaged(replace(nest, body=body))


ONLINE_SOFTMAX = NestPass(
    "online-softmax", with_exp_sums, "Sum exp(x - m) in the loop that finds the largest x, m."
)


def _exp_sum(nest: LoopNest, made: dict[str, Instr], total: Instr) -> Instr | None:
    found = sum_of_exp(made, total)
    if found is None:
        return None
    parts = (found.top, found.difference, found.exp)
    wide = all(i.dtype in (F32, F64) for i in (*parts, total))
    alone = [i for i in nest.body if _is_work(i, found.top.stage)] == [total]
    if not wide or not alone or len({i.stage for i in parts}) > 1:
        return None
    return replace(total, op="exp_sum", args=(found.x, found.top.name), attrs={})


def _is_work(i: Instr, stage: int) -> bool:
    """Whether the instruction is a reason for the loop over a stage."""
    if i.op == "reduce":
        return i.stage == stage + 1
    return i.op in ("store", "fold") and i.level == "cell" and i.stage == stage


def running(top: str, total: str, value: str) -> list[str]:
    """The statements of one block.

    Where all is -inf so far, 0 stands for the maximum: -inf - -inf is no number.
    """
    acc, safe, part = f"acc_{top}", f"acc_{top}_safe", f"acc_{top}_part"
    nan = "propagate_nan=tl.PropagateNan.ALL"
    return [
        f'{part} = tl.reshape(tl.where(cell, {value}, float("-inf")), (BR, BC // PART, PART))',
        f"acc_{top}_next = tl.maximum({acc}, tl.reduce({part}, 2, _max), {nan})",
        f'{safe} = tl.where(acc_{top}_next == float("-inf"), 0.0, acc_{top}_next)',
        f"acc_{total} = acc_{total} * tl.exp({acc} - {safe})",
        f"acc_{total} += tl.sum(tl.exp({part} - {safe}[:, :, None]), axis=2)",
        f"{acc} = acc_{top}_next",
    ]


def joined(top: str, total: str) -> str:
    """The sum of a row, once its maximum is known."""
    return f"tl.sum(acc_{total} * tl.exp(acc_{top} - {top}), axis=1, keep_dims=True)"
