"""Constant pooling.

    Given   %a = exp(%x); %0 = Constant[value=2.0](); %b = mul(%a, %0);
            %1 = Constant[value=2.0](); %c = mul(%b, %1)
    Result  %0 = Constant[value=2.0](); %a = exp(%x); %b = mul(%a, %0); %c = mul(%b, %0)
"""

from __future__ import annotations

from gradof.ir.attrs import attr_key
from gradof.ir.core import Graph, Value


def constant_pooling(graph: Graph) -> bool:
    """One Constant per value, at the top of the graph, nested blocks included; returns changed?"""
    pool: dict[object, Value] = {}
    changed = False
    top = next(iter(graph.nodes()), None)
    for node in list(graph.walk()):
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
            if node.block is not graph.block or not node.is_before(top):
                node.move_before(top)
                changed = True
        elif node is top:
            top = node.next
    return changed
