"""Loops as the steps that they stand for, for back ends that have none.

    Given   %x, %ys = Loop[steps=2, ...](%x0, %u)
              block(%t, %x, %ut): %y = mul(%x, %ut); -> (%y, %y)
    Result  %y = mul(%x0, row 0 of %u); %y.1 = mul(%y, row 1 of %u);  %ys = the two, stacked

The number of a step is a constant then, so slices at places that follow from it are plain slices.
A counted loop runs all its steps, and selects what the last one that counts has carried.
"""

from __future__ import annotations

import numpy as np

from gradof.errors import InferenceError
from gradof.ir.attrs import Attr, Dense
from gradof.ir.builder import Builder
from gradof.ir.clone import clone_graph, inline
from gradof.ir.core import Block, Graph, Node, Value
from gradof.ir.loop import Loop, is_loop
from gradof.ir.types import I64, TensorType
from gradof.ops.expr import Emitter, Expr, F

_WHOLE = {"add": int.__add__, "sub": int.__sub__, "mul": int.__mul__}


def unroll_loops(graph: Graph) -> bool:
    """Unroll every Loop, inner ones included; returns whether there was one."""
    found = False
    while True:
        loops = [node for node in graph.walk() if is_loop(node)]
        if not loops:
            return found
        found = True
        for node in loops:
            if node.block is not None:
                unroll(node)


def unrolled(graph: Graph) -> Graph:
    """The graph without loops: itself where it has none."""
    if not any(is_loop(node) for node in graph.nodes()):
        return graph
    copy = clone_graph(graph)
    unroll_loops(copy)
    return copy


def unroll(node: Node) -> None:
    """Replace one Loop by its steps."""
    loop = Loop(node)
    assert node.block is not None
    emitter = Emitter(Builder(node.block, node, node.loc))
    state = list(loop.initial)
    rows: list[dict[int, Value]] = [{} for _ in loop.stacks]
    count = None if loop.count is None else emitter.wrap(loop.count)
    for t in loop.order:
        index = emitter.body.constant(Dense.of(np.array(t, np.int64)))
        taken = [_row(emitter.wrap(v), t).value for v in loop.sequences]
        given = [index, *loop.constants, *state, *taken]
        before = node._prev
        made = inline(loop.body, given, node.block, node)
        results = dict(zip(range(len(made)), made, strict=True))
        _fold_after(before, node, results)
        made = list(results.values())
        if count is not None:
            runs = count > t
            old = [*state, *(_zeros_like(emitter, v) for v in made[len(state) :])]
            made = [
                F.where(runs, emitter.wrap(new), emitter.wrap(was)).value
                for new, was in zip(made, old, strict=True)
            ]
        state, new_rows = made[: len(state)], made[len(state) :]
        for found, row in zip(rows, new_rows, strict=True):
            found[t] = row
    for out, value in zip(loop.finals, state, strict=True):
        out.replace_all_uses_with(value)
    for out, found in zip(loop.stacks, rows, strict=True):
        out.replace_all_uses_with(_stacked(out, [found[t] for t in sorted(found)], emitter))
    node.erase()


def _row(sequence: Expr, t: int) -> Expr:
    node = sequence.value.node
    places = None if node is None or node.kind != "Constant" else node.attrs["value"]
    if isinstance(places, Dense) and places.dtype is I64:  # of slices, which are plain ones then
        row = np.asarray(places.numpy()[t])
        return sequence.emitter.wrap(sequence.emitter.body.constant(Dense.of(row)))
    return F.slice(sequence, dim=0, start=t, stop=t + 1, step=1).reshape(sequence.shape[1:])


def _zeros_like(emitter: Emitter, value: Value) -> Value:
    type_ = value.type
    assert isinstance(type_, TensorType) and type_.shape is not None
    return emitter.body.emit(
        "full", dtype=type_.dtype, shape=type_.shape, device=type_.device, value=0
    )


def _stacked(out: Value, rows: list[Value], emitter: Emitter) -> Value:
    if not rows:
        return _zeros_like(emitter, out)
    tall = [emitter.wrap(v) for v in rows]
    return F.cat(*(x.reshape((1, *x.shape)) for x in tall), dim=0).value


def _fold_after(before: Node | None, end: Node, results: dict[int, Value]) -> None:
    """Compute what follows from the number of a step, in the nodes between two."""
    assert end.block is not None
    node = before.next if before is not None else next(iter(end.block.nodes()))
    while node is not None and node is not end:
        following = node.next
        new = _number(node) if node.kind in _WHOLE else _static(node)
        if new is not None:
            for key, value in results.items():
                if value is node.output:
                    results[key] = new
            node.output.replace_all_uses_with(new)
            node.erase()
        node = following


def fold_places(block: Block) -> None:
    """Compute places that follow from constants; slices at them are plain slices."""
    for node in list(block.nodes()):
        if node.block is not None:
            new = _number(node) if node.kind in _WHOLE else _static(node)
            if new is not None:
                new.hint = new.hint or node.output.hint
                node.output.replace_all_uses_with(new)
                node.erase()


def whole_number(value: Value) -> int | None:
    """The integer that a value is known to be."""
    node = value.node
    number = None if node is None or node.kind != "Constant" else node.attrs["value"]
    if isinstance(number, Dense):
        number = number.numpy().item() if number.shape == () else None
    return number if type(number) is int else None


def _number(node: Node) -> Value | None:
    a, b = map(whole_number, node.inputs)
    if b == 0 and node.kind == "add" and node.inputs[0].type == node.output.type:
        return node.inputs[0]
    if a is None or b is None or node.output.type != TensorType(I64, ()):
        return None
    assert node.block is not None
    made = np.array(_WHOLE[node.kind](a, b), np.int64)
    return Builder(node.block, node, node.loc).constant(Dense.of(made))


def _static(node: Node) -> Value | None:
    """A slice at a known place as one of a fixed place."""
    if not node.kind.startswith("dynamic_"):
        return None
    first = 2 if node.kind == "dynamic_slice_scatter" else 1
    starts = [whole_number(v) for v in node.inputs[first:]]
    if any(start is None for start in starts):
        return None
    assert node.block is not None
    emitter = Emitter(Builder(node.block, node, node.loc))
    x = emitter.wrap(node.inputs[0])
    dims, whole = node.attrs["dims"], node.output.type
    assert isinstance(dims, tuple) and isinstance(whole, TensorType)
    if node.kind == "dynamic_slice":
        sizes = node.attrs["sizes"]
        return _slices(x, _places(x.shape, dims, starts, sizes))[-1].value
    if node.kind == "dynamic_unslice":
        for place in reversed(_places(_known(whole), dims, starts, _sizes(x, dims))):
            shape = list(x.shape)
            shape[place["dim"]] = _known(whole)[place["dim"]]
            x = F.unslice(x, shape=tuple(shape), **place)
        return x.value
    part = emitter.wrap(node.inputs[1])
    places = _places(x.shape, dims, starts, _sizes(part, dims))
    for outer, place in reversed(list(zip(_slices(x, places)[:-1], places, strict=True))):
        part = F.slice_scatter(outer, part, **place)
    return part.value


def _known(type_: TensorType) -> tuple[int, ...]:
    if type_.shape is None:
        raise InferenceError("a part of an array of unknown shape")
    return type_.shape


def _sizes(x: Expr, dims: tuple[Attr, ...]) -> tuple[int, ...]:
    return tuple(x.shape[d] for d in dims if isinstance(d, int))


def _slices(x: Expr, places: list[dict[str, int]]) -> list[Expr]:
    """The array, and what is left of it after each slice."""
    found = [x]
    for place in places:
        found.append(F.slice(found[-1], **place))
    return found


def _places(
    shape: tuple[int, ...], dims: tuple[Attr, ...], starts: list[int | None], sizes: Attr
) -> list[dict[str, int]]:
    assert isinstance(sizes, tuple)
    places = []
    for d, start, n in zip(dims, starts, sizes, strict=True):
        assert isinstance(d, int) and isinstance(n, int) and start is not None
        first = max(0, min(start, shape[d] - n))
        places.append({"dim": d, "start": first, "stop": first + n, "step": 1})
    return places
