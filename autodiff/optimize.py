"""Optimising the pair (f, reverse block) before it is split.

lift_constants               a constant of f read by the reverse is made anew there, not saved
rematerialize_views          a view (reshape, permute, slice ...) is taken again instead of saved
deduplicate_size_captures    size(x), read by the reverse only, is computed there if x is saved
eliminate_dead_reverse       what no gradient needs goes; the grad_map then tells the truth
"""

from __future__ import annotations

from collections.abc import Iterator

from gradof.autodiff.reverse import ReverseDetails
from gradof.ir.clone import clone_node
from gradof.ir.core import Block, Graph, Node, Value
from gradof.passes.eliminate_dead_code import eliminate_dead_code_in
from gradof.passes.purity import is_constant, is_view


def lift_constants(graph: Graph, reverse: Block) -> None:
    """Given `%c = Constant()` of f used in the reverse: a clone at its top instead."""
    clones: dict[Value, Value] = {}
    for node, i, value in list(captured_uses(graph, reverse)):
        source = value.node
        if source is None or not is_constant(source):
            continue
        if value not in clones:
            copy = reverse.prepend(clone_node(source, {}))
            clones[value] = copy.outputs[value.index]
        node.replace_input(i, clones[value])


def rematerialize_views(graph: Graph, reverse: Block) -> None:
    """Given `%t = permute(%x)` of f used in the reverse: made there, and %x captured.

    A view costs nothing to make, while a saved view would have to be copied out of its base.
    """
    copies: dict[Value, Value] = {}

    def copy_of(value: Value) -> Value:
        source = value.node
        if source is None or value.owning_block is not graph.block or not is_view(source):
            return value
        if value not in copies:
            operands = [copy_of(v) for v in source.inputs]
            copy = clone_node(source, dict(zip(source.inputs, operands, strict=True)))
            made = [v.node for v in copies.values() if v.node is not None]
            if made:
                reverse.insert_after(made[-1], copy)
            else:
                reverse.prepend(copy)
            copies[value] = copy.outputs[value.index]
        return copies[value]

    for node, i, value in list(captured_uses(graph, reverse)):
        if value not in graph.outputs:
            node.replace_input(i, copy_of(value))


def deduplicate_size_captures(graph: Graph, reverse: Block) -> None:
    """Given `%s = size(%x)` captured beside %x: recompute it, and capture only %x."""
    # A dict, not a set: the order of the new nodes must not depend on addresses.
    captured = dict.fromkeys(value for _, _, value in captured_uses(graph, reverse))
    for value in captured:
        source = value.node
        if source is None or source.kind != "size" or source.inputs[0] not in captured:
            continue
        uses = value.uses
        if any(_top(use.node, reverse, graph) is graph.block for use in uses):
            continue
        copy = reverse.prepend(clone_node(source, {}))
        for use in uses:
            use.node.replace_input(use.index, copy.output)


def eliminate_dead_reverse(reverse: ReverseDetails) -> None:
    """Dead-code elimination from the block's results; erased values leave the grad_map."""
    erased: set[Value] = set()
    eliminate_dead_code_in(reverse.block, erased.add)
    for value, grad in list(reverse.grad_map.items()):
        if grad in erased:
            del reverse.grad_map[value]


def captured_uses(graph: Graph, reverse: Block) -> Iterator[tuple[Node, int, Value]]:
    """Every operand in the reverse, nested blocks included, that f defines."""
    for node in all_nodes(reverse):
        for i, value in enumerate(node.inputs):
            if value.owning_block is graph.block:
                yield node, i, value


def all_nodes(block: Block) -> Iterator[Node]:
    """The nodes of a block and of those inside of it, with what each returns."""
    for node in block.nodes():
        yield node
        for inner in node.blocks:
            yield from all_nodes(inner)
    yield block.returns


def _top(node: Node, reverse: Block, graph: Graph) -> Block:
    """The outermost block around a node: f's or the reverse."""
    block = node.block
    while block is not None and block is not reverse and block is not graph.block:
        block = block.parent
    assert block is not None
    return block
