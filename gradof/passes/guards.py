"""A recorded graph with Guards, split into the part that decides and the path it decides.

    Given      %c = gt(%x, %0); Guard[value=True, number=0](%c); %y = exp(%x); return (%y)
    deciding   %c = gt(%x, %0); Guard[value=True, number=0](%c); return ()
    path       %y = exp(%x); return (%y)

The deciding part runs first, so no work is spent on a path that is not taken. Random numbers it
draws are those the path draws again; its caller puts the generator back in between.

Note [One mask for both]
A path may also compute with what decided it: `x[mask]` is recorded for one count of the mask, and
reads as many indices of it. Computed twice, by code that rounds otherwise, the mask could have
another count in the path, which would then take an element that the mask leaves out. So what jumps
where it is rounded, such as a comparison, is computed by the deciding part alone where the path
needs it, too: it is a result of the one and the last inputs of the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from gradof.ir.clone import clone_graph
from gradof.ir.core import Graph, Node, Value
from gradof.ir.types import TensorType
from gradof.passes.eliminate_dead_code import eliminate_dead_code
from gradof.passes.torn import is_exact


def guards_of(graph: Graph) -> list[Node]:
    """The Guards of a graph, in the order they were recorded."""
    return [node for node in graph.block.nodes() if node.kind == "Guard"]


def split(graph: Graph) -> tuple[Graph, Graph]:
    """The path, and the part that decides it, whose results are the path's last inputs."""
    copies: dict[Value, Value] = {}
    path = path_part(graph, copies)
    kept = {value for node in path.walk() for value in node.outputs}
    others: dict[Value, Value] = {}
    deciding = deciding_part(graph, others)
    decides = {value for node in deciding.walk() for value in node.outputs}
    shared = [
        value for node in graph.block.nodes() for value in node.outputs
        if copies[value] in kept and others[value] in decides and _jumps(value)
    ]  # fmt: skip
    if not shared:
        return path, deciding
    for value in shared:
        copy = copies[value]
        copy.replace_all_uses_with(path.block.add_param(copy.type, copy.hint))
    eliminate_dead_code(path)
    return path, deciding_part(graph, {}, shared)


def _jumps(value: Value) -> bool:
    """Whether it is whole numbers or truths that are made of others, which may be rounded."""
    assert value.node is not None
    made_of = [x for x in value.node.inputs if x.is_inexact]
    is_whole = isinstance(value.type, TensorType) and not value.is_inexact
    return is_whole and any(not is_exact(x) for x in made_of)


def deciding_part(
    graph: Graph, copies: dict[Value, Value] | None = None, results: Sequence[Value] = ()
) -> Graph:
    """The Guards and what they read, and these results; `copies` gets each value's copy."""
    copies = {} if copies is None else copies
    part = clone_graph(graph, mapping=copies)
    part.set_outputs([copies[value] for value in results])
    for node in part.block.reversed_nodes():  # random numbers drawn later decide nothing
        if node.kind == "Guard":
            break
        node.erase()
    eliminate_dead_code(part)
    return part


def path_part(graph: Graph, copies: dict[Value, Value] | None = None) -> Graph:
    """The graph without its Guards; `copies` gets each value's copy."""
    path = clone_graph(graph, mapping=copies)
    for node in guards_of(path):
        node.erase()
    eliminate_dead_code(path)
    return path
