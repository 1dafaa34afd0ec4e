"""The nest of a graph's one group, for tests of what a launch is given."""

from __future__ import annotations

from gradof.codegen.fusion.fuse import fuse
from gradof.codegen.loops.ir import LoopNest
from gradof.codegen.loops.lower import schedule
from gradof.codegen.triton.interpreted import in_triton
from gradof.ir.parser import parse_graph


def nest_of(text: str) -> LoopNest:
    """The nest of the only fusion group."""
    graph = fuse(parse_graph(text), in_triton, lambda group: True)
    (node,) = [n for n in graph.nodes() if n.kind == "FusionGroup"]
    return schedule(node)
