"""Nodes that a call has emitted, for the next call with operands of the same types.

    for _ in range(1000):
        x = np.tanh(x) * 1.01       # adaptors, promotion and inference run for the first step only

A loop of Python's records the same few calls over and over. What a call emits depends on the types
of its operands, on which of them are the same value, and on its constants: that is the key. The
values of numbers are left open where no rule asks for them (`calls.OPEN`), so that a number which
counts the steps does not make a template a step.

Only what depends on nothing else is kept: a call that asked for the elements of a constant, for the
layout of an argument, or that guarded a value, is recorded in full each time (`_marks`). numpy
itself still computes every result: errors, dtypes and later decisions are its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from gradof import tuning
from gradof.ir.attrs import Attr, Dense
from gradof.ir.core import Node, Value
from gradof.ir.types import Type
from gradof.ops.expr import Expr
from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.view import Read, View, Write

if TYPE_CHECKING:
    from gradof.tracer.numpy.recorder import Recorder

_LARGE = 512  # bytes of a constant in a template


class _Line(NamedTuple):
    """One node: its operands are places in the list of operands, then of results."""

    kind: str
    inputs: tuple[int, ...]
    attrs: dict[str, Attr]
    types: tuple[Type, ...]
    open: int | None  # which open number it holds: see `_filled`


class Template(NamedTuple):
    """What a call emits, and the place of its result; how that is a view, if types say so."""

    lines: tuple[_Line, ...]
    result: int
    view: tuple[Read, Write] | None = None


NEW = Template((), -1)
_templates: dict[Any, Template | None] = {}


def found(key: Any) -> Template | None:
    """The template of a call; None where it is recorded in full, NEW where none is known."""
    return _templates.get(key, NEW)


class Call(NamedTuple):
    """One call: its key, which values the operands are, and its open numbers.

    With `dims` the numbers are places of single elements along those dims.
    """

    key: Any
    values: list[Value]
    numbers: Sequence[Any]
    dims: Sequence[int] = ()


def through(
    recorder: Recorder, key: Any, operands: Sequence[TracedArray], numbers: Sequence[Any],
    record: Callable[[], Any], concrete: Callable[[], Any],
    link: Callable[[Any], View | None] | None = None, dims: Sequence[int] = (), views: bool = False,
) -> Any:  # fmt: skip
    """The result of `record()`, or of its template where a call with this key has left one.

    `concrete()` is numpy's own result. The key says all of the call but which values the operands
    are and what the open `numbers` are. `link` says of numpy's result which view it is; with
    `views` it is one of the only operand, read and written in ways that follow from the key.
    """
    recorder.enter()
    values = [x._expr.value if x.link is None else x.expr.value for x in operands]
    whole = key, _alike(values)
    template = found(whole)
    if template is None:
        return record()
    if template is NEW:
        call = Call(whole, values, numbers, dims)
        linked = views or link is not None
        return keep(recorder, call, record, lambda made: _value_of(made, values, linked), views)
    result = concrete()
    value = emit(recorder, template, values, numbers)
    recorder.name(value)
    view = None if link is None else link(result)
    if template.view is not None:
        view = View(operands[0], *template.view)
    return TracedArray(recorder, result, Expr(value, recorder.emitter), view)


def _value_of(made: Any, operands: Sequence[Value], views: bool) -> Value | None:
    """The value of a result that a template can give."""
    if type(made) is not TracedArray or not (views or made.link is None):
        return None
    value = made.expr.value
    return None if any(value is v for v in operands) else value


def emit(
    recorder: Recorder, template: Template, values: list[Value], numbers: Sequence[Any]
) -> Value:
    """Insert the nodes of a template."""
    builder = recorder.builder
    block, anchor, loc = builder.block, builder.anchor, builder.loc
    made = list(values)
    for kind, inputs, attrs, types, number in template.lines:
        attrs = dict(attrs) if number is None else _filled(kind, attrs, numbers[number])
        node = block.emit(anchor, kind, tuple([made[i] for i in inputs]), attrs, loc, types)
        made += node.outputs
    return made[template.result]


def _filled(kind: str, attrs: dict[str, Attr], number: Any) -> dict[str, Attr]:
    """The attributes with an open number: a Constant's value, or the one place that is sliced."""
    if kind == "Constant":
        return {"value": number}
    return {**attrs, "start": number, "stop": number + 1}


def _held(node: Node, call: Call, used: set[int]) -> int | None:
    """Which open number a node holds."""
    attrs = node.attrs
    if node.kind == "Constant" and not call.dims and len(used) < len(call.numbers):
        number = call.numbers[len(used)]
        same = type(attrs["value"]) is type(number) and attrs["value"] == number
        return len(used) if same else None
    if node.kind in ("slice", "slice_scatter"):
        for i, (dim, at) in enumerate(zip(call.dims, call.numbers, strict=False)):
            where = attrs["dim"], attrs["start"], attrs["stop"], attrs["step"]
            if where == (dim, at, at + 1, 1):
                return i
    return None


def _alike(values: Sequence[Value]) -> Any:
    """Which operands are one value."""
    if len(values) < 2:
        return 0
    if len(values) == 2:
        return values[0] is values[1]
    first: dict[int, int] = {}
    return tuple(first.setdefault(id(v), i) for i, v in enumerate(values))


def keep(
    recorder: Recorder, call: Call, record: Callable[[], Any],
    value_of: Callable[[Any], Value | None], views: bool = False,
) -> Any:  # fmt: skip
    """Record in full, and keep what was emitted if that is all that happened."""
    block, anchor = recorder.builder.block, recorder.builder.anchor
    last, before = anchor._prev, _marks(recorder)
    result = record()
    if len(_templates) >= tuning.TEMPLATES:
        del _templates[next(iter(_templates))]
    same = _marks(recorder) == before and recorder.builder.block is block
    value = value_of(result) if same else None
    view = None
    if views and value is not None and result.link is not None:
        view = result.link.read, result.link.write
    nodes: list[Node] = []
    node = anchor._prev
    while node is not None and node is not last:
        nodes.append(node)
        node = node._prev
    _templates[call.key] = None if value is None else _template(nodes[::-1], call, value, view)
    return result


def _marks(recorder: Recorder) -> tuple[Any, ...]:
    """What a call may have done beside emitting nodes."""
    return (
        recorder.asked, recorder.guards, recorder.baked, len(recorder.free),
        recorder.told.texts, recorder.graph.block.params[-1:], len(recorder.layouts),
    )  # fmt: skip


def _template(
    nodes: Sequence[Node], call: Call, result: Value, view: tuple[Read, Write] | None
) -> Template | None:
    """The template of these nodes; None where they use more than the operands."""
    places = {v: i for i, v in reversed(list(enumerate(call.values)))}
    lines: list[_Line] = []
    count, used = len(call.values), set[int]()
    for node in nodes:
        if node.blocks or node.kind == "Guard" or any(v not in places for v in node.inputs):
            return None
        if any(isinstance(a, Dense) and len(a.data) > _LARGE for a in node.attrs.values()):
            return None
        number = _held(node, call, used)
        if number is not None:
            used.add(number)
        lines.append(_Line(
            node.kind, tuple(places[v] for v in node.inputs), dict(node.attrs),
            tuple(o.type for o in node.outputs), number,
        ))  # fmt: skip
        for output in node.outputs:
            places[output] = count
            count += 1
    if result not in places or len(used) != len(call.numbers):
        return None
    return Template(tuple(lines), places[result], view)


__all__ = ["NEW", "Call", "Template", "emit", "found", "keep", "through"]
