"""The values of least cost from which all that is read follows: a minimum vertex cut.

    Network(roots=[x, b], costs={x: 1, b: 1, z: 10}, feeds={x: [z], b: [z]}, reads=[z], free=set())
    minimum_cut(...)    {x, b}: reading z costs 10, computing it again from x and b costs 2

Each value is a node pair joined by an edge whose capacity is its cost; see Note [Save or recompute]
in `gradof.autodiff.captures`. Of several least cuts it is the one nearest to what is read.

Note [Without a search]
networkx takes 80 ms to load, longer than all else a first gradient does. In most networks it is
enough to send as much as there is room for along paths from the roots to what is read, never taking
back what was sent. If no root has a way left to the sink then, not even by taking back, no flow is
larger and no cut costs less; and the least cut nearest to the sink is where the nodes begin that
have a way left to it, for this flow as for any other that is as large. Else networkx is asked.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
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
    """The same where paths that take nothing back carry all there is; None elsewhere."""
    if any(v in network.free for v in network.roots):
        return None
    flow = dict.fromkeys(network.costs, 0)
    used: set[tuple[Node, Node]] = set()  # edges with a flow

    def room(value: Node) -> float:
        return math.inf if value in network.free else network.costs[value] - flow[value]

    for root in network.roots:
        while room(root) and (way := _path(network, room, root)):
            sent = min(map(room, way))
            used.update(itertools.pairwise(way))
            for value in way:
                flow[value] += int(sent)
    ends = _towards_sink(network, room, flow, used)
    if any((root, "in") in ends for root in network.roots):
        return None
    return {v for v in network.costs if (v, "out") in ends and (v, "in") not in ends}


def _path(network: Network, room: Callable[[Node], float], root: Node) -> list[Node] | None:
    """A way from a root to something that is read, with room in each value."""
    reads = set(network.reads)
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
            if result not in came and room(result):
                came[result] = at
                todo.append(result)
    return None


def _towards_sink(
    network: Network, room: Callable[[Node], float], flow: Mapping[Node, int],
    used: set[tuple[Node, Node]],
) -> set[tuple[Node, str]]:  # fmt: skip
    """The beginnings and ends of values that have a way left to the sink."""
    sources: dict[Node, list[Node]] = {}
    for value, results in network.feeds.items():
        for result in results:
            sources.setdefault(result, []).append(value)
    todo = [(v, "out") for v in network.reads]
    reach = set(todo)
    while todo:
        value, end = todo.pop()
        if end == "out":
            before = [(value, "in")] if room(value) else []
            before += [(r, "in") for r in network.feeds.get(value, ()) if (value, r) in used]
        else:
            before = [(v, "out") for v in sources.get(value, ()) if v in network.costs]
            before += [(value, "out")] if flow[value] else []
        for node in before:
            if node not in reach:
                reach.add(node)
                todo.append(node)
    return reach
