"""Calls of Python functions that are known to be graphs become these graphs.

    Given   %y = python_call[function='square#1', ...](%x)      square#1 is known as mul(%a, %a)
    Result  %y = mul(%x, %x)

The call keeps the function's own derivative for as long as a gradient may be taken of it. Run on
graphs that are emitted, never on one that is differentiated.
"""

from __future__ import annotations

from gradof.ir.clone import inline
from gradof.ir.core import Graph
from gradof.ops.python_call import graph_called


def open_calls(graph: Graph) -> bool:
    """Replace every call whose graph is known by that; returns changed?"""
    changed = False
    for node in list(graph.walk()):
        called = graph_called(node)
        if called is None:
            continue
        block = node.block
        assert block is not None
        for out, value in zip(
            node.outputs, inline(called.block, node.inputs, block, node), strict=True
        ):
            out.replace_all_uses_with(value)
        node.erase()
        changed = True
    return changed
