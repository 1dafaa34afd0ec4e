"""Nodes that a call has emitted, for the next call with operands of the same types.

    for _ in range(1000):
        x = np.tanh(x) * 1.01       # adaptors, promotion and inference run for the first step only

A loop of Python's records the same few calls over and over. What a call emits depends on the types
of its operands, on which of them are the same value, and on its constants: that is the key. The
values of numbers are left open where no rule asks for them (`_OPEN`), so that a number which counts
the steps does not make a template a step.

Only what depends on nothing else is kept: a call that asked for the elements of a constant, for the
layout of an argument, or that guarded a value, is recorded in full each time (`_marks`). numpy
itself still computes every result: errors, dtypes and later decisions are its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gradof import tuning
from gradof.ir.attrs import Attr, Dense
from gradof.ir.core import Node, Value
from gradof.ir.types import Type
from gradof.ops.expr import Expr
from gradof.tracer.numpy.array import TracedArray, View

if TYPE_CHECKING:
    from gradof.tracer.numpy.recorder import Recorder

# Ufuncs whose record is the same for any number of one Python type.
_OPEN = frozenset({
    np.add, np.subtract, np.multiply, np.divide, np.maximum, np.minimum, np.greater,
    np.greater_equal, np.less, np.less_equal, np.equal, np.not_equal,
})  # fmt: skip
# Functions whose record depends on types, and on arguments that are no arrays.
BY_TYPES = frozenset({
    np.sum, np.prod, np.mean, np.var, np.std, np.max, np.min, np.cumsum, np.dot, np.vdot, np.inner,
    np.outer, np.where, np.stack, np.concatenate, np.clip, np.linalg.norm, np.cross, np.diff,
    np.trace,
})  # fmt: skip
_PLAIN = frozenset({int, float, bool, type(None), str})
_LARGE = 512  # bytes of a constant in a template


class _Line(NamedTuple):
    """One node: its operands are places in the list of operands, then of results."""

    kind: str
    inputs: tuple[int, ...]
    attrs: dict[str, Attr]
    types: tuple[Type, ...]
    open: int | None  # which open number it holds: see `_filled`


class Template(NamedTuple):
    """What a call emits, and the place of its result."""

    lines: tuple[_Line, ...]
    result: int


_templates: dict[Any, Template | None] = {}


class _Call(NamedTuple):
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
    link: Callable[[Any], View | None] | None = None, dims: Sequence[int] = (),
) -> Any:  # fmt: skip
    """The result of `record()`, or of its template where a call with this key has left one.

    `concrete()` is numpy's own result. The key says all of the call but which values the operands
    are and what the open `numbers` are. `link` says of numpy's result which view it is.
    """
    recorder.enter()
    values = [x.expr.value for x in operands]
    call = _Call((key, _alike(values)), values, numbers, dims)
    if call.key not in _templates:
        return _kept(recorder, call, record, lambda made: _value_of(made, values, link is not None))
    found = _templates[call.key]
    if found is None:
        return record()
    result = concrete()
    value = emit(recorder, found, values, numbers)
    recorder.name(value)
    linked = None if link is None else link(result)
    return TracedArray(recorder, result, Expr(value, recorder.emitter), linked)


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
        if number is not None:
            attrs = _filled(kind, attrs, numbers[number])
        node = Node(kind, [made[i] for i in inputs], attrs, loc)
        for type_ in types:
            made.append(node.add_output(type_))
        block.insert_before(anchor, node)
    return made[template.result]


def _filled(kind: str, attrs: dict[str, Attr], number: Any) -> dict[str, Attr]:
    """The attributes with an open number: a Constant's value, or the one place that is sliced."""
    if kind == "Constant":
        return {"value": number}
    return {**attrs, "start": number, "stop": number + 1}


def _held(node: Node, call: _Call, used: set[int]) -> int | None:
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


def _kept(
    recorder: Recorder, call: _Call, record: Callable[[], Any],
    value_of: Callable[[Any], Value | None],
) -> Any:  # fmt: skip
    """Record in full, and keep what was emitted if that is all that happened."""
    block, anchor = recorder.builder.block, recorder.builder.anchor
    last, before = anchor._prev, _marks(recorder)
    result = record()
    if len(_templates) >= tuning.TEMPLATES:
        del _templates[next(iter(_templates))]
    same = _marks(recorder) == before and recorder.builder.block is block
    value = value_of(result) if same else None
    nodes: list[Node] = []
    node = anchor._prev
    while node is not None and node is not last:
        nodes.append(node)
        node = node._prev
    _templates[call.key] = None if value is None else _template(nodes[::-1], call, value)
    return result


def _marks(recorder: Recorder) -> tuple[Any, ...]:
    """What a call may have done beside emitting nodes."""
    return (
        recorder.asked, recorder.guards, recorder.baked, len(recorder.free), len(recorder.texts),
        recorder.graph.block.params[-1:], len(recorder.layouts),
    )  # fmt: skip


def _template(nodes: Sequence[Node], call: _Call, result: Value) -> Template | None:
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
    return Template(tuple(lines), places[result])


# --- the calls ------------------------------------------------------------------------------------


def ufunc_call(
    recorder: Recorder, ufunc: Any, inputs: tuple[Any, ...], record: Callable[..., Any]
) -> Any:
    """`ufunc(*inputs)`; `record(recorder, ufunc, "__call__", inputs, {})` records it in full."""
    key: list[Any] = [ufunc]
    operands: list[TracedArray] = []
    numbers: list[Any] = []
    for x in inputs:
        kind = type(x)
        if kind is TracedArray and x.recorder is recorder:
            key += (x.memory.dtype, x.memory.shape, x.is_scalar)
            operands.append(x)
        elif kind is float or kind is int:
            key.append(kind)
            if x != x:
                return record(recorder, ufunc, "__call__", inputs, {})
            if ufunc in _OPEN:
                numbers.append(x)
            else:
                key.append(_told(x))
        else:
            return record(recorder, ufunc, "__call__", inputs, {})
    return through(
        recorder, tuple(key), operands, numbers,
        lambda: record(recorder, ufunc, "__call__", inputs, {}),
        lambda: recorder.numpy(ufunc, *inputs),
    )  # fmt: skip


def function_call(
    recorder: Recorder, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any],
    record: Callable[..., Any],
) -> Any:  # fmt: skip
    """`func(*args, **kwargs)`; `record(recorder, func, args, kwargs)` records it in full."""
    key: list[Any] = [func]
    operands: list[TracedArray] = []
    if (
        func not in BY_TYPES or not _signature(recorder, args, key, operands)
        or not _signature(recorder, tuple(kwargs.values()), key, operands)
    ):  # fmt: skip
        return record(recorder, func, args, kwargs)
    return through(
        recorder, (tuple(key), *kwargs), operands, (),
        lambda: record(recorder, func, args, dict(kwargs)),
        lambda: recorder.numpy(func, *args, **kwargs),
    )


def item_call(
    array: TracedArray, index: Any, record: Callable[..., Any],
    link: Callable[[tuple[Any, ...], Any], View | None],
) -> Any:  # fmt: skip
    """`array[index]`; `record(array, index)` records it in full."""
    recorder = array.recorder
    items = index if type(index) is tuple else (index,)
    found = _index(array, items)
    if found is None:
        return record(array, index)
    key, numbers, dims = found
    return through(
        recorder, ("item", key), (array,), numbers, lambda: record(array, index),
        lambda: recorder.deferred.item(array, items), lambda value: link(items, value), dims,
    )


def write_call(
    array: TracedArray, index: Any, source: TracedArray, record: Callable[..., Any],
    assign: Callable[..., Any],
) -> None:  # fmt: skip
    """`array[index] = source`; `record(array, index, source)` records it in full.

    `assign(memory, items, values)` is what numpy does.
    """
    recorder, memory = array.recorder, source.memory
    items = index if type(index) is tuple else (index,)
    found = None if array.link is not None or array.is_scalar else _index(array, items)
    if found is None:
        record(array, index, source)
        return
    values = [array.expr.value, source.expr.value]
    key = ("write", found[0], memory.dtype, memory.shape, values[0] is values[1])
    call = _Call(key, values, found[1], found[2])
    if key not in _templates:
        _kept(
            recorder, call, lambda: record(array, index, source), lambda _: array.expr.value
        )
        return
    template = _templates[key]
    if template is None:
        record(array, index, source)
        return
    recorder.deferred.before_write(array.memory)
    recorder.numpy(assign, array.memory, items, source)
    array.assign(Expr(emit(recorder, template, values, found[1]), recorder.emitter))


def _index(
    array: TracedArray, items: tuple[Any, ...]
) -> tuple[Any, list[int], list[int]] | None:
    """An index of numbers and slices as a key; the places of single elements are open.

    So a loop over `x[t]` has one template. With the places come their dims.
    """
    memory = array.memory
    key: list[Any] = [memory.dtype, memory.shape, memory.strides, array.is_scalar]
    numbers: list[int] = []
    dims: list[int] = []
    dim = 0
    for item in items:
        kind = type(item)
        if kind is int and dim < memory.ndim:
            n = memory.shape[dim]
            at = item + n if item < 0 else item
            if not 0 <= at < n:
                return None
            numbers.append(at)
            dims.append(dim)
            key.append(int)
            dim += 1
        elif kind is slice and {type(item.start), type(item.stop), type(item.step)} <= _BOUNDS:
            key.append((item.start, item.stop, item.step))
            dim += 1
        elif item is None:
            key.append(None)
        else:
            return None
    return tuple(key), numbers, dims


_BOUNDS = frozenset({int, type(None)})


def _signature(
    recorder: Recorder, args: Sequence[Any], key: list[Any], operands: list[TracedArray]
) -> bool:
    """Add what an adaptor can ask of the arguments; False where that is not known."""
    for x in args:
        kind = type(x)
        if kind is TracedArray and x.recorder is recorder:
            memory = x.memory
            key += (memory.dtype, memory.shape, memory.strides, x.is_scalar)
            operands.append(x)
        elif kind in _PLAIN:
            if x != x:
                return False
            key += (kind, _told(x))
        elif kind is tuple or kind is list:
            key += (kind, len(x))
            if not _signature(recorder, x, key, operands):
                return False
        else:
            return False
    return True


def _told(x: Any) -> Any:
    """A number as part of a key: 0.0 and -0.0 are two."""
    return (x, math.copysign(1.0, x)) if x == 0 and type(x) is float else x


__all__ = ["BY_TYPES", "Template", "emit", "function_call", "item_call", "through", "ufunc_call",
           "write_call"]  # fmt: skip
