"""A recorded graph with Guards, split into the part that decides and the path it decides.

    Given      %c = gt(%x, %0); Guard[value=True, number=0](%c); %y = exp(%x); return (%y)
    deciding   %c = gt(%x, %0); Guard[value=True, number=0](%c); return ()
    path       %y = exp(%x); return (%y)

The deciding part runs first, so no work is spent on a path that is not taken. Random numbers it
draws are those the path draws again; its caller puts the generator back in between.
"""

from __future__ import annotations

from gradof.ir.clone import clone_graph
from gradof.ir.core import Graph, Node
from gradof.passes.eliminate_dead_code import eliminate_dead_code


def guards_of(graph: Graph) -> list[Node]:
    """The Guards of a graph, in the order they were recorded."""
    return [node for node in graph.block.nodes() if node.kind == "Guard"]


def deciding_part(graph: Graph) -> Graph:
    """The Guards and what they read, without results."""
    part = clone_graph(graph)
    part.set_outputs([])
    for node in part.block.reversed_nodes():  # random numbers drawn later decide nothing
        if node.kind == "Guard":
            break
        node.erase()
    eliminate_dead_code(part)
    return part


def path_part(graph: Graph) -> Graph:
    """The graph without its Guards."""
    path = clone_graph(graph)
    for node in guards_of(path):
        node.erase()
    eliminate_dead_code(path)
    return path
