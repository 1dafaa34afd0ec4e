"""Results of the steps that something outside of the loop reads, taken from their stack."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from gradof.ir.core import Node, Value
from gradof.ir.types import TensorType
from gradof.ops.expr import Emitter, Expr, F


def replace_rows(
    stack: Value, rows: Mapping[int, Value], inside: Collection[Node], emitter: Emitter
) -> None:
    """Let what is outside read the rows of `stack` in place of the values of each step.

    A concatenation of neighbouring rows, as `np.stack` makes it, reads the stack itself.
    """
    whole = emitter.wrap(stack)
    for cat, places in _concatenations(rows, inside).items():
        for node in _join(cat, places, whole):
            if node is emitter.body.anchor:  # what comes next is still put before it
                emitter.body.anchor = node.next or emitter.body.block.returns
            node.erase()
    for step, value in rows.items():
        outside = [use for use in value.uses if use.node not in inside]
        if not outside:
            continue
        row = F.slice(whole, dim=0, start=step, stop=step + 1, step=1).reshape(whole.shape[1:])
        row.value.hint = value.hint
        for use in outside:
            use.node.replace_input(use.index, row.value)


def _concatenations(
    rows: Mapping[int, Value], inside: Collection[Node]
) -> dict[Node, dict[int, int]]:
    """Concatenations of rows: their operands, by number, with the step of each."""
    found: dict[Node, dict[int, int]] = {}
    for step, value in rows.items():
        for use in value.uses:
            tall = use.node
            if tall in inside or tall.kind != "reshape" or not _adds_a_dim(tall):
                continue
            for outer in tall.output.uses:
                if outer.node.kind == "cat" and outer.node.attrs["dim"] == 0:
                    found.setdefault(outer.node, {})[outer.index] = step
    return found


def _adds_a_dim(node: Node) -> bool:
    given, made = node.inputs[0].type, node.output.type
    assert isinstance(given, TensorType) and isinstance(made, TensorType)
    return given.shape is not None and made.shape == (1, *given.shape)


def _join(cat: Node, places: Mapping[int, int], whole: Expr) -> list[Node]:
    """Replace operands that are neighbouring rows by parts of the stack; what nobody reads then."""
    operands: list[Value] = []
    given = [value.node for value in cat.inputs]
    for run in _runs(len(cat.inputs), places):
        if len(run) == 1:
            operands.append(cat.inputs[run[0]])
            continue
        steps = [places[k] for k in run]
        low, high = min(steps), max(steps)
        part = whole
        if (low, high + 1) != (0, whole.shape[0]):
            part = F.slice(whole, dim=0, start=low, stop=high + 1, step=1)
        if steps[0] > steps[1]:
            part = F.flip(part, dims=(0,))
        operands.append(part.value)
    first = operands[0]
    gone: list[Node] = []
    if len(operands) == 1 and first.type == cat.output.type:
        cat.output.replace_all_uses_with(first)
        gone.append(cat)
    else:
        cat.set_inputs(operands)
    for node in given:
        if node is not None and node not in gone and _is_unread(node, gone):
            gone.append(node)
    return gone


def _is_unread(node: Node, gone: Sequence[Node]) -> bool:
    return all(use.node in gone for use in node.output.uses)


def _runs(count: int, places: Mapping[int, int]) -> Iterator[Sequence[int]]:
    """Operands one by one, or several that are rows in order, up or down."""
    run: list[int] = []
    for k in range(count):
        step = places.get(k)
        if run and step is not None and run[-1] in places:
            by = step - places[run[-1]]
            if abs(by) == 1 and (len(run) == 1 or by == places[run[1]] - places[run[0]]):
                run.append(k)
                continue
        if run:
            yield run
        run = [k]
    if run:
        yield run
