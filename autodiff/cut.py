"""The values of least cost from which all that is read follows: a minimum vertex cut.

    Network(roots=[x, b], costs={x: 1, b: 1, z: 10}, feeds={x: [z], b: [z]}, reads=[z], free=set())
    minimum_cut(...)    {x, b}: reading z costs 10, computing it again from x and b costs 2

Each value is a node pair joined by an edge whose capacity is its cost; see Note [Save or recompute]
in `gradof.autodiff.captures`. Of several least cuts it is the one nearest to what is read.

Note [Without a search]
networkx takes 80 ms to load, longer than all else a first gradient does. In most networks each root
can send its whole cost to something that is read along one path, past the paths of the others.
Then the roots cost as much as flows, so that no cut costs less; and the least cut nearest to the
sink is where the nodes begin that have a way left to the sink, for this flow as for any other that
is as large. networkx is asked where a root finds no such path.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

Node = Any  # any value that can be a key


class Network(NamedTuple):
    """`feeds[v]` is computed from v, among others; `free` values must not be in a cut."""

    roots: Sequence[Node]
    costs: Mapping[Node, int]
    feeds: Mapping[Node, Sequence[Node]]
    reads: Sequence[Node]
    free: set[Node]


def minimum_cut(network: Network) -> set[Node]:
    """The least cut nearest to the reads."""
    found = without_search(network)
    return by_networkx(network) if found is None else found


def by_networkx(network: Network) -> set[Node]:
    """The least cut nearest to the reads, of any network."""
    import networkx as nx

    graph: Any = nx.DiGraph()
    for value, cost in network.costs.items():
        limit = {} if value in network.free else {"capacity": cost}
        graph.add_edge((value, "in"), (value, "out"), **limit)
        for result in network.feeds.get(value, ()):
            graph.add_edge((value, "out"), (result, "in"))
    for value in network.roots:
        graph.add_edge("source", (value, "in"))
    for value in network.reads:
        graph.add_edge((value, "out"), "sink")
    _, (reached, _) = nx.minimum_cut(graph, "source", "sink")
    return {v for v in network.costs if (v, "in") in reached and (v, "out") not in reached}


def without_search(network: Network) -> set[Node] | None:
    """The same where one path a root carries all there is; None elsewhere."""
    if any(v in network.free for v in network.roots):
        return None
    left = {v: math.inf if v in network.free else c for v, c in network.costs.items()}
    used: set[tuple[Node, Node]] = set()  # edges with a flow
    for root in network.roots:
        way = _path(network, left, root)
        if way is None:
            return None
        used.update(itertools.pairwise(way))
        for value in way:
            left[value] -= network.costs[root]
    return _nearest(network, left, used)


def _path(network: Network, left: Mapping[Node, float], root: Node) -> list[Node] | None:
    """A way from a root to something that is read, with room for all of the root's cost."""
    reads, need = set(network.reads), network.costs[root]
    came: dict[Node, Node] = {root: None}
    todo = [root]
    while todo:
        at = todo.pop()
        if at in reads:
            way = [at]
            while came[way[-1]] is not None:
                way.append(came[way[-1]])
            return way[::-1]
        for result in network.feeds.get(at, ()):
            if result not in came and left[result] >= need:
                came[result] = at
                todo.append(result)
    return None


def _nearest(
    network: Network, left: Mapping[Node, float], used: set[tuple[Node, Node]]
) -> set[Node]:
    """The values whose end has a way left to the sink, and whose beginning has none."""
    sources: dict[Node, list[Node]] = {}
    for value, results in network.feeds.items():
        for result in results:
            sources.setdefault(result, []).append(value)
    todo = [(v, "out") for v in network.reads]
    reach = set(todo)
    while todo:
        value, end = todo.pop()
        if end == "out":
            before = [(value, "in")] if left[value] > 0 else []
            before += [(r, "in") for r in network.feeds.get(value, ()) if (value, r) in used]
        else:
            before = [(v, "out") for v in sources.get(value, ()) if v in network.costs]
            if value in network.free or left[value] < network.costs[value]:
                before.append((value, "out"))
        for node in before:
            if node not in reach:
                reach.add(node)
                todo.append(node)
    return {v for v in network.costs if (v, "out") in reach and (v, "in") not in reach}
