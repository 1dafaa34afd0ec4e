"""Common-subexpression elimination.

    Given   %a = exp(%x); %b = exp(%x); %y = add(%a, %b)
    Result  %a = exp(%x); %y = add(%a, %a)

Works within each block on its own: a GradOf body must not start to read a value of the forward
that its rule did not ask for, because that would save it for the backward.
"""

from __future__ import annotations

from gradof.ir.attrs import attr_key
from gradof.ir.core import Block, Graph, Node
from gradof.ir.origins import joined
from gradof.passes.purity import is_pure


def common_subexpression(graph: Graph) -> bool:
    """Merge equal pure nodes; returns whether any merged."""
    return _merge(graph.block)


def _merge(block: Block) -> bool:
    seen: dict[object, Node] = {}
    changed = False
    for node in block.nodes():
        for inner in node.blocks:
            changed |= _merge(inner)
        if node.blocks or not is_pure(node):
            continue
        key = (
            node.kind,
            node.inputs,
            tuple((k, attr_key(v)) for k, v in sorted(node.attrs.items())),
            tuple(out.type for out in node.outputs),
        )
        first = seen.setdefault(key, node)
        if first is not node:
            for mine, theirs in zip(node.outputs, first.outputs, strict=True):
                mine.replace_all_uses_with(theirs)
            if first.loc is not None:
                first.loc = joined(first.loc, node.loc)
            node.erase()
            changed = True
    return changed
