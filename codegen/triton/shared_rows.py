"""A nest of few, long rows: what is reduced first, by many programs, then what reads it.

    nest over rows (c,), columns (n,)           nest over rows (n,), columns (c,)
      x = load[0]        cell  0                  x = load[0]        cell 0
      s = reduce[sum] x  row   1          →       fold[sum, 0] x     cell 0
      y = div x s        cell  1                nest over rows (c,), columns (n,)
      store[0] y         cell  1                  x = load[0]        cell 0
                                                  s = load[1]        row  0     # the sums
                                                  y = div x s        cell 0
                                                  store[0] y         cell 0

As in the batch norm of an image: 64 channels are 64 rows, fewer than a device has room for. With
rows and columns exchanged, a row's cells are shared out, and their folds leave partial results that
are added in order. What is left reduces no row, so that its columns are shared out as well; or it
reduces again, as a variance does, and is taken apart in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gradof.codegen.loops.ir import Buffer, Instr, Level, LoopNest
from gradof.codegen.triton.split_reductions import (
    Totals,
    has_sizes,
    is_early,
    needed_by,
    own_outputs,
)


def share_rows(nest: LoopNest) -> Totals | None:
    """The nest taken apart; None where it has no rows, or reduces nothing.

    None, too, where a part would read no operand along an axis: sizes are those of operands.
    """
    found = _share_rows(nest)
    return None if found is None else found.verified("share-rows")


def _share_rows(nest: LoopNest) -> Totals | None:
    totals = [i for i in nest.body if i.op == "reduce" and i.stage == 1]
    plain = not any(b.windows for b in nest.inputs) and not any(
        i.op == "in_range" or (i.op == "load" and i.args) for i in nest.body
    )
    plain &= not any(b.times for b in nest.outputs)
    if not (nest.rows and totals and plain):
        return None
    names = {t.name for t in totals}
    early = [i for i in nest.body if is_early(i, names)]
    early = [i for i in early if i in own_outputs(early, totals)]  # a total is stored once
    given = own_outputs(early, totals)
    first = _exchanged(nest, given)
    made = [-1] * len(nest.outputs)
    for k, i in enumerate(given):
        if i.op == "store":
            made[i.buffer] = k
    rest = [k for k, n in enumerate(made) if n < 0]
    for k in rest:
        made[k] = len(given) + rest.index(k)
    if not rest:
        return Totals(first, None, (), tuple(made)) if has_sizes(first) else None
    reads, second = _rest(nest, early, totals, rest)
    if not (has_sizes(first) and has_sizes(second)):
        return None
    n = len(nest.inputs)
    cells = sum(i.level == "cell" for i in early)
    return Totals(first, second, tuple(k if k < n else k + cells for k in reads), tuple(made))


def _exchanged(nest: LoopNest, given: Sequence[Instr]) -> LoopNest:
    """Stage 0 with rows as columns: its stores, and a fold for each reduction."""
    rows, axes = nest.rows, len(nest.sizes)

    def turned(b: Buffer) -> Buffer:
        return replace(b, dims=(*b.dims[rows:], *b.dims[:rows]))

    body: list[Instr] = []
    for i in nest.body:
        level: Level = "once" if i.level == "once" else "cell"
        if i.op == "store" and i in given:
            attrs = {**i.attrs, "buffer": given.index(i)}
            if i.level != "row":
                body.append(replace(i, level=level, attrs=attrs))
        elif i.op == "index":
            axis = i.attrs["axis"]
            assert isinstance(axis, int)
            turned_axis = axis - rows if axis >= rows else axis + axes - rows
            body.append(replace(i, level=level, attrs={**i.attrs, "axis": turned_axis}))
        elif i.op not in ("store", "fold", "reduce") and i.stage == 0:
            body.append(replace(i, level=level))
    reductions = {i.name: i for i in nest.body if i.op == "reduce"}
    outputs: list[Buffer] = []
    for k, i in enumerate(given):
        total = reductions.get(i.args[0] if i.op == "store" else i.name)  # type: ignore[arg-type]
        if i.op == "store":
            outputs.append(turned(nest.outputs[i.buffer]))
        else:
            dims = (*(None for _ in range(rows, axes)), *range(rows))
            outputs.append(Buffer(i.name, i.dtype, nest.sizes[:rows], dims))
        if total is not None:
            attrs = {"kind": total.attrs["kind"], "buffer": k}
            body.append(Instr("", "fold", total.args, total.dtype, "cell", 0, attrs, total.loc))
    stores = [i for i in body if i.op in ("store", "fold")]
    return replace(
        nest, name=f"{nest.name}_sums", sizes=(*nest.sizes[rows:], *nest.sizes[:rows]),
        rows=axes - rows, inputs=tuple(map(turned, nest.inputs)), outputs=tuple(outputs),
        body=tuple(i for i in needed_by(body) if i.name) + tuple(stores), held=frozenset(),
    )  # fmt: skip


def _rest(
    nest: LoopNest, early: Sequence[Instr], totals: Sequence[Instr], outputs: Sequence[int]
) -> tuple[list[int], LoopNest]:
    """What is left, one stage earlier, with the sums as operands; and what it is given."""
    named = {i.name: k for k, i in enumerate(totals)}
    body: list[Instr] = []
    for i in nest.body:
        if i.name in named and i.op == "reduce":
            attrs = {"buffer": len(nest.inputs) + named[i.name]}
            body.append(Instr(i.name, "load", (), i.dtype, "row", 0, attrs, i.loc))
        elif i not in early:
            body.append(replace(i, stage=max(0, i.stage - 1)))
    body = needed_by(body)
    loads = sorted({i.buffer for i in body if i.op == "load"})
    numbers = {"load": loads, "store": list(outputs), "fold": list(outputs)}
    body = [
        replace(i, attrs={**i.attrs, "buffer": numbers[i.op].index(i.buffer)})
        if i.op in numbers else i
        for i in body
    ]  # fmt: skip
    rows = range(nest.rows)
    dims = (*rows, *(None for _ in nest.sizes[nest.rows :]))
    stored = {i.args[0]: nest.outputs[i.buffer] for i in early if i.level == "row"}
    made = (Buffer(t.name, t.dtype, nest.sizes[: nest.rows], dims) for t in totals)
    operands = [*nest.inputs, *(stored.get(b.name, b) for b in made)]
    kept = len(nest.sizes) if any(i.level == "cell" for i in body) else nest.rows
    inputs, targets = (
        tuple(replace(b, dims=b.dims[:kept]) for b in found)
        for found in ([operands[k] for k in loads], [nest.outputs[k] for k in outputs])
    )
    return loads, replace(
        nest, sizes=nest.sizes[:kept], inputs=inputs, outputs=targets, body=tuple(body),
        held=frozenset(), reads=(),
    )  # fmt: skip
