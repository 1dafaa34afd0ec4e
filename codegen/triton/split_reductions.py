"""A nest without rows that reduces: the total first, by many programs, then what reads it.

    nest over columns (n,)                      nest over rows (n,)
      x = load[0]        cell  0                  x = load[0]        row  0
      s = reduce[sum] x  row   1          →       fold[sum, 0] x     row  0
      y = div x s        cell  1                nest over columns (n,)
      store[0] y         cell  1                  x = load[0]        cell 0
                                                  s = load[1]        once 0     # the total
                                                  y = div x s        cell 0
                                                  store[0] y         cell 0

A nest without rows is one row, which one program runs through. As rows, its cells are shared out,
and their folds leave partial results that are added in order. What is left may reduce again, as
softmax does, and is taken apart in turn. Where there are rows, and all that is reduced is totals of
everything, as in a mean squared error, columns become rows as well: few long rows would be few
programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gradof.codegen.loops.ir import Buffer, Instr, LoopNest
from gradof.codegen.loops.verify import checked


@dataclass(frozen=True)
class Totals:
    """Two nests for one, or one that makes all outputs.

    The first takes the operands of the nest. `given`: the operands of the second, as numbers of
    operands of the nest and, counted after those, of outputs of the first. `made`: the outputs of
    the nest, as numbers of outputs of the first and, counted after those, of the second.
    """

    first: LoopNest
    second: LoopNest | None
    given: tuple[int, ...]
    made: tuple[int, ...]

    def verified(self, after: str) -> Totals:
        """Itself; its nests are verified where GRADOF_CHECK=1."""
        for nest in (self.first, self.second):
            if nest is not None:
                checked(nest, "triton", after)
        return self


def take_totals(nest: LoopNest) -> Totals | None:
    """The nest taken apart; None where it has rows that matter, or reduces nothing.

    None, too, where a part would read no operand along an axis: sizes are those of operands.
    """
    found = _take_totals(nest)
    return None if found is None else found.verified("split-reductions")


def _take_totals(nest: LoopNest) -> Totals | None:
    if any(i.op == "load" and i.args for i in nest.body):
        return None  # it names a column
    if nest.rows:
        flat = _all_rows(nest)
        return Totals(flat, None, (), tuple(range(len(nest.outputs)))) if flat else None
    totals = [i for i in nest.body if i.op == "reduce" and i.stage == 1]
    if not totals or any(i.op == "fold" for i in nest.body):
        return None
    early = [i for i in nest.body if is_early(i, {t.name for t in totals})]
    early = [i for i in early if i in own_outputs(early, totals)]  # a total is stored once
    first = _first(nest, early, totals)
    made: list[int] = [-1] * len(nest.outputs)
    for k, i in enumerate(own_outputs(early, totals)):
        if i.op == "store":
            made[i.buffer] = k
    after = len(first.outputs)
    rest = [k for k in range(len(made)) if made[k] < 0]
    for k in rest:
        made[k] = after + rest.index(k)
    if not rest:
        return Totals(first, None, (), tuple(made)) if has_sizes(first) else None
    given, second = _second(nest, early, totals, rest)
    if not (has_sizes(first) and has_sizes(second)):
        return None
    return Totals(first, second, given, tuple(made))


def _all_rows(nest: LoopNest) -> LoopNest | None:
    """The nest with its columns as rows too; None where a value belongs to a row."""
    row_folds = [i for i in nest.body if i.op == "fold" and i.level == "row"]
    folds = {i.args[0]: i for i in row_folds}
    body: list[Instr] = []
    for i in nest.body:
        fold = folds.get(i.name)
        if i.op == "reduce":
            if fold is None or fold.attrs["kind"] != i.attrs["kind"]:
                return None
            body.append(replace(fold, args=i.args, stage=0))
        elif i.level == "cell" and i.op != "fold" and i.stage == 0:
            body.append(replace(i, level="row"))
        elif i.level == "once" or (i.level == "row" and i.op != "fold" and i.stage == 0):
            body.append(i)
        elif i.op != "fold" or i.level != "row" or i.stage != 1:
            return None
    reducing = {i.name for i in nest.body if i.op == "reduce"}
    read = [a for i in nest.body if i.op != "fold" for a in i.args]
    if not reducing or reducing & set(read) or len(row_folds) != len(reducing):
        return None
    return replace(nest, rows=len(nest.sizes), body=tuple(body), held=frozenset())


def is_early(i: Instr, totals: set[str]) -> bool:
    """Whether an output is stored by the first nest: a cell of stage 0, or a total as it is."""
    return i.op == "store" and (
        (i.level == "cell" and i.stage == 0) or (i.level == "row" and i.args[0] in totals)
    )


def own_outputs(early: Sequence[Instr], totals: Sequence[Instr]) -> list[Instr]:
    """What the first nest gives: cells that are stored, then its totals; stored ones by a store."""
    stored = {i.args[0]: i for i in early if i.level == "row"}
    return [*(i for i in early if i.level == "cell"), *(stored.get(i.name, i) for i in totals)]


def _first(nest: LoopNest, early: Sequence[Instr], totals: Sequence[Instr]) -> LoopNest:
    """Stage 0 with its columns as rows: its stores, and a fold for each reduction."""
    given = own_outputs(early, totals)
    cells = len(given) - len(totals)
    nowhere = (None,) * len(nest.sizes)
    body: list[Instr] = []
    for i in nest.body:
        if i.op == "store":
            if i in given and i.level == "cell":
                attrs = {**i.attrs, "buffer": given.index(i)}
                body.append(replace(i, level="row", attrs=attrs))
        elif i.level == "once" or (i.level == "cell" and i.stage == 0):
            body.append(replace(i, level="row" if i.level == "cell" else "once"))
    for k, i in enumerate(totals):
        attrs = {"kind": i.attrs["kind"], "buffer": cells + k}
        body.append(Instr("", "fold", i.args, i.dtype, "row", 0, attrs, i.loc))
    outputs = tuple(
        nest.outputs[i.buffer] if i.op == "store" else Buffer(i.name, i.dtype, (), nowhere)
        for i in given
    )
    return replace(
        nest, name=f"{nest.name}_totals", rows=len(nest.sizes), outputs=outputs, body=tuple(body),
        held=frozenset(),
    )  # fmt: skip


def _second(
    nest: LoopNest, early: Sequence[Instr], totals: Sequence[Instr], outputs: Sequence[int]
) -> tuple[tuple[int, ...], LoopNest]:
    """What is left, one stage earlier, with the totals as operands; and what it is given."""
    named = {i.name: k for k, i in enumerate(totals)}
    body: list[Instr] = []
    for i in nest.body:
        if i in early:
            continue
        if i.name in named:
            attrs = {"buffer": len(nest.inputs) + named[i.name]}
            body.append(Instr(i.name, "load", (), i.dtype, "once", 0, attrs, i.loc))
        else:
            level = "once" if i.level == "row" and i.stage == 1 else i.level
            body.append(replace(i, level=level, stage=max(0, i.stage - 1)))
    body = needed_by(body)
    loads = sorted({i.buffer for i in body if i.op == "load"})
    numbers = {"load": loads, "store": outputs}
    body = [
        replace(i, attrs={**i.attrs, "buffer": numbers[i.op].index(i.buffer)})
        if i.op in numbers else i
        for i in body
    ]  # fmt: skip
    nowhere = (None,) * len(nest.sizes)
    operands = [*nest.inputs, *(Buffer(i.name, i.dtype, (), nowhere) for i in totals)]
    sizes = () if all(i.level == "once" for i in body) else nest.sizes  # no cell is left
    inputs, targets = (
        tuple(b if sizes else replace(b, dims=()) for b in found)
        for found in ([operands[k] for k in loads], [nest.outputs[k] for k in outputs])
    )
    left = replace(
        nest, sizes=sizes, inputs=inputs, outputs=targets, body=tuple(body), held=frozenset(),
        reads=(),
    )  # fmt: skip
    cells = sum(i.level == "cell" for i in early)
    n = len(nest.inputs)
    return tuple(k if k < n else k + cells for k in loads), left


def has_sizes(nest: LoopNest) -> bool:
    """Whether every axis has its size from an input."""
    named = {
        a for b in nest.inputs for a, d in enumerate(b.dims)
        if d is not None and all(a != axis for axis, _, _ in b.windows)
    }  # fmt: skip
    return len(named) == len(nest.sizes)


def needed_by(body: Sequence[Instr]) -> list[Instr]:
    """Without values that nothing stores."""
    by_name = {i.name: i for i in body if i.name}
    todo = [i for i in body if i.op in ("store", "fold")]
    found = {id(i) for i in todo}
    while todo:
        for arg in todo.pop().args:
            if isinstance(arg, str) and id(by_name[arg]) not in found:
                found.add(id(by_name[arg]))
                todo.append(by_name[arg])
    return [i for i in body if id(i) in found]
