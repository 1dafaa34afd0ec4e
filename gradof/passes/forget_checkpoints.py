"""The marks around checkpointed regions mean nothing to code that takes no gradient.

    Given   checkpoint_begin[region=0](); %y = exp(%x); checkpoint_end[region=0]()
    Result  %y = exp(%x)
"""

from __future__ import annotations

from gradof.ir.core import Graph

MARKERS = frozenset({"checkpoint_begin", "checkpoint_end"})


def forget_checkpoints(graph: Graph) -> bool:
    """Drop every mark; returns whether there was one."""
    marks = [node for node in graph.walk() if node.kind in MARKERS]
    for node in marks:
        node.erase()
    return bool(marks)
