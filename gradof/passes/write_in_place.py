"""Sums and writes in the bodies of loops, put so that they can be made in place.

    add(%s, dynamic_unslice(%g, %t))     → dynamic_slice_scatter(%s, add(its part of %s, %g), %t)
    %y = dynamic_slice_scatter(%x, ...); %r = dynamic_slice(%x, ...)        → the read comes first

The gradient of a read at a place that moves is an array of zeros with that place set, and the sum
over all steps would take as many times the whole array. What is read of an array is read before it
is written over (`gradof.ir.loop.written_in_place`). The sign of a zero may change.
"""

from __future__ import annotations

from gradof.ir.builder import Builder
from gradof.ir.core import Block, Graph, Node, Value
from gradof.ir.loop import is_loop
from gradof.ir.types import TensorType
from gradof.ops.expr import Emitter, Expr, F

_READS = frozenset({"slice", "dynamic_slice"})


def write_in_place(graph: Graph) -> bool:
    """Rewrite the body of every Loop; returns whether anything changed."""
    changed = False
    for node in list(graph.walk()):
        if is_loop(node):
            changed |= _add_in_place(node.blocks[0])
            changed |= _read_first(node.blocks[0])
    return changed


def _add_in_place(block: Block) -> bool:
    changed = False
    for node in list(block.reversed_nodes()):
        if node.block is None or node.kind != "add" or _is_part_of_sum(node):
            continue
        terms = _terms(node)
        parts = [v for v in terms if _is_part(v)]
        rest = [v for v in terms if not _is_part(v)]
        if not rest:
            rest, parts = parts[:1], parts[1:]
        if not parts:
            continue
        emitter = Emitter(Builder(block, node, node.loc))
        total = emitter.wrap(rest[0])
        for value in rest[1:]:
            total = total + emitter.wrap(value)
        for value in parts:
            total = _added(total, value, emitter)
        total.value.hint = node.output.hint
        node.output.replace_all_uses_with(total.value)
        _erase(node)
        changed = True
    return changed


def _is_part(value: Value) -> bool:
    return value.node is not None and value.node.kind == "dynamic_unslice"


def _is_part_of_sum(node: Node) -> bool:
    uses = node.output.uses
    return len(uses) == 1 and uses[0].node.kind == "add" and (
        uses[0].node.output.type == node.output.type and uses[0].node.block is node.block
    )


def _terms(node: Node) -> list[Value]:
    """What a sum adds, through sums that nothing else reads."""
    found: list[Value] = []
    todo = list(reversed(node.inputs))
    while todo:
        value = todo.pop()
        inner = value.node
        if inner is not None and inner.kind == "add" and _is_part_of_sum(inner) and (
            inner.block is node.block
        ):
            todo += reversed(inner.inputs)
        else:
            found.append(value)
    whole = node.output.type
    return found if all(v.type == whole for v in found) else []


def _added(total: Expr, value: Value, emitter: Emitter) -> Expr:
    node = value.node
    assert node is not None
    part, *starts = (emitter.wrap(v) for v in node.inputs)
    dims = node.attrs["dims"]
    assert isinstance(dims, tuple)
    sizes = tuple(part.shape[d] for d in dims if isinstance(d, int))
    old = F.dynamic_slice(total, *starts, dims=dims, sizes=sizes)
    return F.dynamic_slice_scatter(total, old + part, *starts, dims=dims)


def _erase(node: Node) -> None:
    """A node that nothing reads any more, and the sums and parts that only it has read."""
    sources = [value.node for value in node.inputs]
    node.erase()
    for source in sources:
        if source is None or source.block is None or source.kind not in ("add", "dynamic_unslice"):
            continue
        if not source.output.has_uses:
            _erase(source)


def _read_first(block: Block) -> bool:
    changed = False
    for node in list(block.nodes()):
        if node.kind != "dynamic_slice_scatter":
            continue
        for use in node.inputs[0].uses:
            reader = use.node
            if reader.kind in _READS and reader.block is block and node.is_before(reader):
                changed |= _move_before(reader, node)
    return changed


def _move_before(node: Node, anchor: Node) -> bool:
    """Move a node up, with the arithmetic of numbers that its place follows from, if it can be."""
    assert node.block is not None
    chain: list[Node] = []
    todo = [node]
    while todo:
        each = todo.pop()
        chain.append(each)
        for value in each.inputs:
            maker = value.node
            if maker is None or maker is anchor or not anchor.is_before(maker):
                if maker is anchor:
                    return False
                continue
            if not isinstance(value.type, TensorType) or value.type.shape != () or (
                value.type.dtype.kind not in ("int", "uint")
            ):
                return False
            todo.append(maker)
    for each in sorted(set(chain), key=lambda n: n._order):
        each.move_before(anchor)
    return True
