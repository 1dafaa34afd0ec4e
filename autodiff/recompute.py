"""Clone the values that are not saved into the reverse, just before they are read.

Given  a chain h1 = layer(x), h2 = layer(h1), ... h8 of which the reverse reads h8, h7, ... h1 in
turn, and nothing is saved. Computed once, all eight would be held at the same time, as if they had
been saved.

Note [Halving]
So a stretch of nodes that is read from more than `RECOMPUTE_LEAF` times its largest value is
halved: what the later half needs of the earlier one is computed and held, the later half is served,
then dropped; then the earlier half is computed again. At most log2(n) + `RECOMPUTE_LEAF` values
are held, for log2(n) computations of each. Results are clones, so any order of reads is right; only
their number differs.

Note [Computed where it is read]
Clones, and the views that an earlier step made at the top of the reverse, stand before their first
reader. Under a budget the reverse reads saved values and clones through `again` as well: fusion
would otherwise compute 1 - y * y beside y = tanh(x), and hold both.
"""

from __future__ import annotations

from collections.abc import Iterable

from gradof import tuning
from gradof.autodiff.optimize import captured_uses
from gradof.ir.builder import Builder
from gradof.ir.clone import clone_node
from gradof.ir.core import Block, Graph, Node, Value
from gradof.ir.types import TensorType
from gradof.passes.purity import is_constant, is_view


def recompute(
    graph: Graph, reverse: Block, saved: set[Value], *, apart: bool, halves: bool
) -> None:
    """Replace every capture that is not saved by clones of f's nodes in the reverse.

    With `apart` they are never merged with f's own; with `halves` long stretches are halved,
    otherwise each node is cloned once.
    """
    _sink_views(reverse)
    uses = list(captured_uses(graph, reverse))
    nodes = _needed(graph, (v for _, _, v in uses), saved)
    if not nodes and not halves:
        return
    order = {top: k for k, top in enumerate([*reverse.nodes(), reverse.returns])}
    placed = sorted(((order[_top(n, reverse)], n, i, v) for n, i, v in uses), key=lambda u: u[0])
    tops = list(order)
    replay = _Replay(nodes, reverse, saved, [v for _, _, v in uses])
    replay.apart = apart
    if halves:
        replay.limit = tuning.RECOMPUTE_LEAF * max(replay.read.values(), default=0)
    for k, node, i, value in placed:
        found = value if value in saved else replay.get(value, tops[k])
        node.replace_input(i, replay.read_here(value, found, tops[k]) if halves else found)


def _needed(graph: Graph, wanted: Iterable[Value], saved: set[Value]) -> list[Node]:
    found: set[Node] = set()
    todo = list(wanted)
    while todo:
        value = todo.pop()
        if value not in saved and value.node is not None and value.node not in found:
            found.add(value.node)
            todo += value.node.inputs
    return [node for node in graph.nodes() if node in found]


def _sink_views(reverse: Block) -> None:
    """See Note [Computed where it is read]."""
    for node in list(reverse.reversed_nodes()):
        if is_view(node) and node.output.has_uses:
            tops = [_top(use.node, reverse) for use in node.output.uses]
            first = tops[0]
            for top in tops[1:]:
                if first is reverse.returns or (
                    top is not reverse.returns and top.is_before(first)
                ):
                    first = top
            node.move_before(first)


def _top(node: Node, reverse: Block) -> Node:
    """The node of the reverse block itself that holds `node`."""
    while node.block is not reverse:
        assert node.block is not None and isinstance(node.block.owner, Node)
        node = node.block.owner
    return node


def _bytes(value: Value) -> int:
    type_ = value.type
    return type_.nbytes if isinstance(type_, TensorType) and type_.shape is not None else 0


class _Region:
    """Nodes first..last-1; `held` are values from before, `made` the clones so far."""

    def __init__(self, number: int, first: int, last: int, held: dict[Value, Value]) -> None:
        self.number = number
        self.first = first
        self.last = last
        self.held = held
        self.made: dict[Value, Value] = {}


class _Replay:
    def __init__(
        self, nodes: list[Node], reverse: Block, saved: set[Value], wanted: list[Value]
    ) -> None:
        self.saved = saved
        self.nodes = nodes
        self.position = {node: k for k, node in enumerate(nodes)}
        self.reverse = reverse
        self.apart = False
        self.limit: int | None = None
        self.read = {v: _bytes(v) for v in wanted if v.node in self.position}
        self.readings: dict[Value, Value] = {}
        self.regions = 0
        self.stack = [self.region(0, len(nodes), {})]

    def region(self, first: int, last: int, held: dict[Value, Value]) -> _Region:
        self.regions += 1
        return _Region(self.regions, first, last, held)

    def get(self, value: Value, anchor: Node) -> Value:
        """The clone of `value`, made before `anchor` unless it is there already."""
        if value.node not in self.position:
            return value
        at = self.position[value.node]
        while not self.stack[-1].first <= at < self.stack[-1].last:
            self.stack.pop()
        while self.is_long(self.stack[-1]):
            self.halve(self.stack[-1], at, anchor)
        return self.make(value, self.stack[-1], anchor)

    def read_here(self, value: Value, found: Value, anchor: Node) -> Value:
        """`found`, the clone of `value` or itself, as the reverse reads it."""
        if value.node is None or not isinstance(value.type, TensorType):
            return found
        if found not in self.readings:
            copy = Builder(self.reverse, anchor, value.node.loc).emit("again", found, region=0)
            copy.hint = found.hint
            self.readings[found] = copy
        return self.readings[found]

    def is_long(self, region: _Region) -> bool:
        if self.limit is None or region.last - region.first < 2:
            return False
        inside = (
            n for v, n in self.read.items()
            if v.node is not None and region.first <= self.position[v.node] < region.last
        )
        return sum(inside) > self.limit

    def halve(self, region: _Region, at: int, anchor: Node) -> None:
        """See Note [Halving]."""
        middle = (region.first + region.last) // 2
        if at < middle:
            self.stack.append(self.region(region.first, middle, region.held))
            return
        scratch = self.region(region.first, middle, region.held)
        held: dict[Value, Value] = {}
        for node in self.nodes[middle : region.last]:
            for value in node.inputs:
                if value in region.held:
                    held[value] = region.held[value]
                elif (
                    value not in self.saved
                    and value.node in self.position
                    and self.position[value.node] < middle
                    and not is_constant(value.node)
                ):
                    held[value] = self.make(value, scratch, anchor)
        self.stack.append(self.region(middle, region.last, held))

    def make(self, value: Value, region: _Region, anchor: Node) -> Value:
        """The clone of `value` in `region`, with all it is computed from."""
        todo = [value]
        while todo:
            node = todo[-1].node
            if todo[-1] in region.made:
                todo.pop()
                continue
            assert node is not None
            missing = [v for v in node.inputs if not self.is_there(v, region)]
            if missing:
                todo += missing
                continue
            mapping = {v: self.operand(v, region, anchor) for v in node.inputs}
            copy = self.reverse.insert_before(anchor, clone_node(node, mapping))
            region.made.update(zip(node.outputs, copy.outputs, strict=True))
        return region.made[value]

    def is_there(self, value: Value, region: _Region) -> bool:
        if value in self.saved or value.node not in self.position:
            return True
        return value in region.made or value in region.held

    def operand(self, value: Value, region: _Region, anchor: Node) -> Value:
        found = region.made.get(value)
        if found is not None:
            return found
        source = region.held.get(value, value)
        if not self.apart or not isinstance(source.type, TensorType):
            return source
        loc = None if source.node is None else source.node.loc
        copy = Builder(self.reverse, anchor, loc).emit("again", source, region=region.number)
        copy.hint = source.hint
        region.made[value] = copy
        return copy
