"""Sums that count one cell of each row become that cell: no loop over the columns is left.

    h = eq index t                  cell 0            p = pick[body: x, l, h, w] t    row 1
    w = where h l 0                 cell 1      →
    s = reduce[sum] w               row  2            (s is p; the loop of stage 1 is gone)

That is how a gather of one column comes into a nest (Note [One-hot gathers] in
`gradof.codegen.fusion.iteration_space`). A `pick` computes one cell, that of column t, by its
`body`, and is 0 where the row has no column t. What waited for the loop is known one stage earlier.
"""

from __future__ import annotations

from dataclasses import replace

from gradof.codegen.loops.ir import Instr, LoopNest
from gradof.codegen.loops.lower import held_cells
from gradof.codegen.loops.passes.restage import restaged, without_unread

_ZERO_TO_ZERO = frozenset({"neg", "copy", "cast", "alias", "detach"})


def with_picks(nest: LoopNest) -> LoopNest:
    """The nest with a `pick` for each such sum; the nest itself where there is none."""
    if len(nest.sizes) != nest.rows + 1:
        return nest
    made = {i.name: i for i in nest.body if i.name}
    found = {i.name: place for i in nest.body if (place := _place(i, made)) is not None}
    if not found:
        return nest
    picks = {name: _pick(made[name], place, made) for name, place in found.items()}
    body = [picks.get(i.name, i) if i.name else i for i in nest.body]
    result = restaged(replace(nest, body=without_unread(body), held=frozenset()))
    return replace(result, held=held_cells(result))


def _place(i: Instr, made: dict[str, Instr]) -> str | None:
    """The row value that says which column a sum is of; None for any other instruction."""
    if i.op != "reduce" or i.attrs["kind"] != "sum":
        return None
    cell = made[str(i.args[0])]
    while cell.op in _ZERO_TO_ZERO and isinstance(cell.args[0], str):
        cell = made[cell.args[0]]
    if cell.op != "where" or cell.args[2] != 0 or isinstance(cell.args[2], str):
        return None
    hit = made.get(str(cell.args[0]))
    if hit is None or hit.op != "eq" or not all(isinstance(a, str) for a in hit.args):
        return None
    position, place = (made[str(a)] for a in hit.args)
    return place.name if position.op == "index" and place.level != "cell" else None


def _pick(i: Instr, place: str, made: dict[str, Instr]) -> Instr:
    """The pick that is a sum, with the cells it needs."""
    needed: dict[str, Instr] = {}

    def need(name: str) -> None:
        if made[name].level == "cell" and name not in needed:
            for arg in made[name].args:
                if isinstance(arg, str):
                    need(arg)
            needed[name] = made[name]

    need(str(i.args[0]))
    return replace(i, op="pick", args=(place,), attrs={}, body=tuple(needed.values()))
