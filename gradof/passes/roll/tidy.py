"""Loops that were found, made as small as they are: constants inside, what is the same outside.

    a slice at a constant place of a dim           → slice
    a slice of a slice that moves, and its writes  → one slice of several dims
    what every step computes alike                 → before the loop
"""

from __future__ import annotations

from gradof.ir.clone import clone_node
from gradof.ir.core import Block, Graph, Node, Value
from gradof.ir.loop import Loop, is_loop
from gradof.ir.opinfo import has_trait
from gradof.passes.common_subexpression import common_subexpression
from gradof.passes.eliminate_dead_code import eliminate_dead_code
from gradof.passes.purity import is_pure
from gradof.passes.unroll_loops import fold_places

_HARMLESS = frozenset({
    "add", "sub", "neg", "mul", "cast", "sum", "mm", "bmm", "sin", "cos", "tanh", "copy", "detach",
    "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_not",
})  # fmt: skip


def tidy_loops(graph: Graph) -> None:
    """Tidy every loop of a graph."""
    eliminate_dead_code(graph)  # constants of all the steps
    loops = [node for node in graph.walk() if is_loop(node)]
    common_subexpression(graph)
    for node in loops:  # outer ones first: what is equal there is one value inside
        _merge_constants(Loop(node))
        common_subexpression(graph)
    for node in loops:
        _join_places(node.blocks[0])
    for node in loops:
        _constants_inside(Loop(node))
        fold_places(node.blocks[0])
    for node in reversed(loops):
        _hoist(Loop(node))
    eliminate_dead_code(graph)


def _merge_constants(loop: Loop) -> None:
    seen: dict[Value, Value] = {}
    for value, param in zip(loop.constants, loop.constant_params, strict=True):
        first = seen.setdefault(value, param)
        if first is not param:
            param.replace_all_uses_with(first)


def _constants_inside(loop: Loop) -> None:
    for value, param in zip(loop.constants, loop.constant_params, strict=True):
        if value.node is not None and value.node.kind == "Constant" and param.has_uses:
            copy = loop.body.prepend(clone_node(value.node, {}))
            param.replace_all_uses_with(copy.output)


def _join_places(block: Block) -> None:
    for node in list(block.nodes()):
        if node.block is not None and node.kind == "dynamic_slice":
            _join_reads(node)
        elif node.block is not None and node.kind == "dynamic_slice_scatter":
            _join_writes(node)


def _join_reads(node: Node) -> None:
    """dynamic_slice(dynamic_slice(x, i), j) along other dims, as one."""
    inner = node.inputs[0].node
    if inner is None or inner.kind != "dynamic_slice" or not _apart(node, inner):
        return
    attrs = {name: (*_tuple(inner, name), *_tuple(node, name)) for name in ("dims", "sizes")}
    node.attrs.update(attrs)
    node.set_inputs([*inner.inputs, *node.inputs[1:]])
    _sort(node, 1)
    if not inner.output.has_uses:
        inner.erase()


def _join_writes(node: Node) -> None:
    """A write into a slice that is then written back, as one write."""
    part = node.inputs[1].node
    if part is None or part.kind != "dynamic_slice_scatter" or len(part.output.uses) != 1:
        return
    read = part.inputs[0].node
    if read is None or read.kind != "dynamic_slice" or not _apart(node, part):
        return
    if read.inputs != (node.inputs[0], *node.inputs[2:]) or _tuple(read, "dims") != _tuple(
        node, "dims"
    ):
        return
    node.attrs["dims"] = (*_tuple(node, "dims"), *_tuple(part, "dims"))
    node.set_inputs([node.inputs[0], part.inputs[1], *node.inputs[2:], *part.inputs[2:]])
    _sort(node, 2)
    part.erase()
    if not read.output.has_uses:
        read.erase()


def _apart(a: Node, b: Node) -> bool:
    return not set(_tuple(a, "dims")) & set(_tuple(b, "dims"))


def _tuple(node: Node, name: str) -> tuple[int, ...]:
    value = node.attrs[name]
    assert isinstance(value, tuple)
    return tuple(v for v in value if isinstance(v, int))


def _sort(node: Node, first: int) -> None:
    """Put the dims of a slice, and what goes with them, in order."""
    dims = _tuple(node, "dims")
    order = sorted(range(len(dims)), key=dims.__getitem__)
    for name in ("dims", "sizes"):
        if name in node.attrs:
            node.attrs[name] = tuple(_tuple(node, name)[k] for k in order)
    starts = node.inputs[first:]
    node.set_inputs([*node.inputs[:first], *(starts[k] for k in order)])


def _hoist(loop: Loop) -> None:
    """Move what does not depend on the step before the loop.

    Of a counted one, which may have no step, only what raises nothing, and has slopes that are no
    infinity; of one that is a branch, of one step at most, nothing.
    """
    if loop.count is not None and loop.steps <= 1:
        return
    outer = dict(zip(loop.constant_params, loop.constants, strict=True))
    moved: dict[Value, Value] = dict(outer)
    for node in list(loop.body.nodes()):
        if node.kind == "Constant" or node.blocks or not node.inputs or not is_pure(node):
            continue
        if loop.count is not None and not _is_harmless(node):
            continue
        if not all(v in moved or _is_constant(v) for v in node.inputs):
            continue
        if not any(v in moved for v in node.inputs) or loop.node.block is None:
            continue
        for value in node.inputs:
            if value not in moved:
                assert value.node is not None
                copy = clone_node(value.node, {})
                moved[value] = loop.node.block.insert_before(loop.node, copy).output
        copy = clone_node(node, moved)
        loop.node.block.insert_before(loop.node, copy)
    _read_again(loop, moved)


def _is_harmless(node: Node) -> bool:
    return node.kind in _HARMLESS or has_trait(node.kind, "view")


def _is_constant(value: Value) -> bool:
    return value.node is not None and value.node.kind == "Constant"


def _read_again(loop: Loop, moved: dict[Value, Value]) -> None:
    """Let the body read what was moved as constants."""
    block, node = loop.body, loop.node
    for value, outside in list(moved.items()):
        if value.node is None or value.node.kind == "Constant":
            continue
        if any(use.node is block.returns or use.node not in _made(moved) for use in value.uses):
            count = len(loop.constants)
            param = Value(value.type, None, 0, value.hint, block)
            block.params.insert(1 + count, param)
            for i, each in enumerate(block.params):
                each.index = i
            at = count + (loop.count is not None)
            node.set_inputs([*node.inputs[:at], outside, *node.inputs[at:]])
            node.attrs["constants"] = count + 1
            value.replace_all_uses_with(param)


def _made(moved: dict[Value, Value]) -> set[Node]:
    return {value.node for value in moved if value.node is not None}
