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

from typing import NamedTuple

from gradof.ir.clone import clone_graph
from gradof.ir.core import Graph, Node, Value
from gradof.ir.types import TensorType
from gradof.passes.eliminate_dead_code import eliminate_dead_code
from gradof.passes.purity import is_pure
from gradof.passes.torn import is_exact


def guards_of(graph: Graph) -> list[Node]:
    """The Guards of a graph, in the order they were recorded."""
    return [node for node in graph.block.nodes() if node.kind == "Guard"]


def split(graph: Graph) -> tuple[Graph, Graph]:
    """The path, and the part that decides it, whose results are the path's last inputs."""
    followed, decides = _needed(graph, guards=False), _needed(graph, guards=True)
    shared = [
        value for node in graph.block.nodes() for value in node.outputs
        if value in followed.values and value in decides.values and _jumps(value)
    ]  # fmt: skip
    copies: dict[Value, Value] = {}
    path = clone_graph(graph, mapping=copies, only=followed.nodes)
    for value in shared:
        copy = copies[value]
        copy.replace_all_uses_with(path.block.add_param(copy.type, copy.hint))
    eliminate_dead_code(path)
    deciding = clone_graph(graph, only=decides.nodes, results=shared)
    eliminate_dead_code(deciding)
    return path, deciding


class _Needed(NamedTuple):
    nodes: set[Node]
    values: set[Value]  # that they or the results read


def _needed(graph: Graph, guards: bool) -> _Needed:
    """What the path needs, or what its Guards do.

    Random numbers drawn behind the last Guard decide nothing.
    """
    found = _Needed(set(), set() if guards else set(graph.outputs))
    begun = not guards
    for node in graph.block.reversed_nodes():
        is_guard = node.kind == "Guard"
        begun |= is_guard
        if not begun or (is_guard and not guards):
            continue
        if not is_pure(node) or any([out in found.values for out in node.outputs]):
            found.nodes.add(node)
            found.values.update(node.inputs)
            for block in node.blocks:
                found.values.update(v for inner in block.walk() for v in inner.inputs)
                found.values.update(block.results)
    return found


def _jumps(value: Value) -> bool:
    """Whether it is whole numbers or truths that are made of others, which may be rounded."""
    assert value.node is not None
    made_of = [x for x in value.node.inputs if x.is_inexact]
    is_whole = isinstance(value.type, TensorType) and not value.is_inexact
    return is_whole and any(not is_exact(x) for x in made_of)


def path_part(graph: Graph) -> Graph:
    """The graph without its Guards."""
    path = clone_graph(graph, only=_needed(graph, guards=False).nodes)
    eliminate_dead_code(path)
    return path
