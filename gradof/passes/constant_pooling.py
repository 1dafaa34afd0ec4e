"""Constant pooling.

    Given   %a = exp(%x); %0 = Constant[value=2.0](); %b = mul(%a, %0);
            %1 = Constant[value=2.0](); %c = mul(%b, %1)
    Result  %0 = Constant[value=2.0](); %a = exp(%x); %b = mul(%a, %0); %c = mul(%b, %0)

The body of a Loop, which is isolated, has constants of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from gradof.ir.attrs import attr_key
from gradof.ir.core import Block, Graph, Node, Value
from gradof.ir.loop import is_loop


def constant_pooling(graph: Graph) -> bool:
    """One Constant per value, at the top of the graph, nested blocks included; returns changed?"""
    return _pool(graph.block)


def _pool(block: Block) -> bool:
    pool: dict[object, Value] = {}
    changed = False
    top = next(iter(block.nodes()), None)
    for node in list(_walk(block)):
        if is_loop(node):
            changed |= _pool(node.blocks[0])
        if node.kind != "Constant":
            continue
        key = attr_key(node.attrs["value"])
        if key in pool:
            if node is top:
                top = node.next
            node.output.replace_all_uses_with(pool[key])
            node.erase()
            changed = True
            continue
        pool[key] = node.output
        if top is not None and node is not top:
            if node.block is not block or not node.is_before(top):
                node.move_before(top)
                changed = True
        elif node is top:
            top = node.next
    return changed


def _walk(block: Block) -> Iterator[Node]:
    """Nodes in order, with those of their blocks, but for isolated ones."""
    for node in block.nodes():
        yield node
        for inner in () if is_loop(node) else node.blocks:
            yield from _walk(inner)
