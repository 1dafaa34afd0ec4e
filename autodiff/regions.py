"""Checkpointed regions: what `gradof.checkpoint` was called on is computed again, not saved.

Given  checkpoint_begin[region=0](); %a = mm(%x, %w); %y = tanh(%a); checkpoint_end[region=0]()
with %y used behind the end: %y is a result and may be saved, %a lies inside and may not.

A draw of random numbers cannot be made again: its result is saved, and so comes back exactly.
"""

from __future__ import annotations

from gradof.ir.core import Graph, Node, Value
from gradof.passes.forget_checkpoints import MARKERS
from gradof.passes.purity import is_pure


def checkpointed(graph: Graph) -> set[Node]:
    """The nodes that must run again for their results: pure, and read in their region alone."""
    region: dict[Node, int] = {}
    depth = number = 0
    for node in graph.nodes():
        if node.kind in MARKERS:
            depth += 1 if node.kind == "checkpoint_begin" else -1
            number += depth == 0  # regions within a region are part of it
        elif depth > 0:
            region[node] = number
    returned = set(graph.outputs)

    def stays(value: Value, number: int) -> bool:
        return value not in returned and all(
            region.get(use.node) == number for use in value.uses if use.node.block is graph.block
        )

    return {
        node for node, number in region.items()
        if is_pure(node) and node.kind not in ("Opaque", "python_call") and not node.blocks
        and all(stays(out, number) for out in node.outputs)
    }  # fmt: skip
