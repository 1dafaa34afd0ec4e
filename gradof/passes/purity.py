"""What passes may assume of a node, from its traits."""

from __future__ import annotations

from gradof.ir.core import Node
from gradof.ir.loop import is_loop
from gradof.ir.opinfo import OPS, STRUCTURAL, has_trait

_IMPURE = frozenset({"random", "effect"})


def is_pure(node: Node) -> bool:
    """Whether the node may be dropped when unused, merged with an equal, or computed again."""
    if node.kind in STRUCTURAL or is_loop(node):
        return all(is_pure(inner) for block in node.blocks for inner in block.nodes())
    info = OPS.get(node.kind)
    return info is not None and _IMPURE.isdisjoint(info.traits)


def is_constant(node: Node) -> bool:
    """Whether the node has no operands and always gives the same value, as `full` does."""
    return has_trait(node.kind, "constant") and not node.inputs


def is_view(node: Node) -> bool:
    """Whether the node only looks at its operand differently, which costs nothing."""
    return has_trait(node.kind, "view") and len(node.outputs) == 1
