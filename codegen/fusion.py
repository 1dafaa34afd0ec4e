"""Which nodes are computed together: a graph → the same graph with FusionGroup nodes.

Given  %0 = add(%x, %b);  %1 = tanh(%0);  %2 = mm(%1, %w);  %3 = exp(%2);  return (%3)
the result is
      %1 = FusionGroup(%x, %b)            # one loop nest, one pass over memory
        block(%x, %b): %0 = add(%x, %b); %1 = tanh(%0) -> (%1)
      %2 = mm(%1, %w)
      %3 = exp(%2)                        # alone: not worth a kernel, unless it is large

Note [Grouping]
Nodes are taken in order. Each joins the group of one of its operands, or a group that reads one of
its operands, if the group's `Space` has a place for it and no path leads from the group through
the outside back to the node. Then the groups of its other operands are merged into that group on
the same terms. Paths are looked up in bit masks: `before[g]` has a bit for every group that has to
run before g, kept transitively closed.

Effects (random numbers, checks that may raise) keep their order: each waits for the one before.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from gradof.codegen.space import Fit, Space, follow, in_order, own_cells, renames_axes, shape_of
from gradof.ir.attrs import Dense
from gradof.ir.clone import clone_node
from gradof.ir.core import Graph, Node, Value
from gradof.ir.opinfo import has_trait
from gradof.ir.types import TensorType

MERGED = 64  # nodes: larger groups are not tried again as a whole
SHARED = 4  # groups that read an operand too and are tried


@dataclass(eq=False)
class Group:
    """Nodes of one loop nest, in order."""

    number: int
    space: Space
    nodes: list[Node] = field(default_factory=list)
    largest: int = 0  # cells that one of the nodes has by itself
    merged: bool = False  # from groups whose nodes were placed apart, not in order

    def parts(self) -> list[Group]:
        """Itself, or groups of nodes that fit from the first to the last; see `in_order`."""
        spaces = in_order(self.nodes, self.space.supports) if self.merged else [self.space]
        if len(spaces) == 1:
            return [self]
        made = [Group(self.number, space, [f.node for f in space.fits]) for space in spaces]
        for group in made:
            group.largest = max(map(own_cells, group.nodes))
        return made


Worth = Callable[[Group], bool]


def fuse(graph: Graph, supports: Callable[[Node], bool], worth: Worth) -> Graph:
    """The graph with its fusion groups; nothing in `graph` is changed.

    `supports` says which nodes a kernel can compute, `worth` which groups shall be kernels.
    """
    groups = [part for group in _Grouping(graph, supports).run() for part in group.parts()]
    return _Rebuild(graph, [g for g in groups if g.space.order and worth(g)]).run()


def is_free(node: Node) -> bool:
    """Whether a node is no work in a loop: a number, or a view that renames axes."""
    if node.kind == "Constant":
        return not isinstance(node.attrs["value"], Dense)
    return node.kind == "full" or renames_axes(node)


class _Grouping:
    def __init__(self, graph: Graph, supports: Callable[[Node], bool]) -> None:
        self.nodes = list(graph.nodes())
        self.supports = supports
        self.groups: dict[int, Group] = {}
        self.group_of: dict[Node, Group] = {}
        self.before: dict[int, int] = {}
        self.outside: dict[Value, int] = {}  # groups that values made outside of groups wait for
        self.readers: dict[Value, list[int]] = {}  # groups that read a value, latest last
        self.counter = 0

    def run(self) -> list[Group]:
        for node in self.nodes:
            if not is_free(node) and self.place(node):
                continue
            mask = 0
            for value in node.inputs:
                mask |= self.waits(value)
            for out in node.outputs:
                self.outside[out] = mask
        return list(self.groups.values())

    # --- what waits for what ---------------------------------------------------------------------

    def waits(self, value: Value) -> int:
        """Every group that has to run before the value is there."""
        group = self.made_in(value)
        if group is not None:
            return 1 << group.number | self.before[group.number]
        mask = self.outside.get(value, 0)
        closed = mask
        for number in _bits(mask):
            closed |= self.before.get(number, 0)
        return closed

    def made_in(self, value: Value) -> Group | None:
        return None if value.node is None else self.group_of.get(value.node)

    def waits_outside(self, node: Node, inside: tuple[Group, ...]) -> int:
        """The groups that the operands made outside of `inside` wait for."""
        mask = 0
        for value in node.inputs:
            base = follow(value).base if shape_of(value) is not None else value
            if self.made_in(base) not in inside:
                mask |= self.waits(base)
        return mask

    # --- joining ---------------------------------------------------------------------------------

    def place(self, node: Node) -> bool:
        """Put the node into a group, its own if need be; False if it cannot be in any."""
        joined: Group | None = None
        for group in self.candidates(node):
            waits = self.waits_outside(node, (group,))
            if waits >> group.number & 1:
                continue
            fit = group.space.fit(node)
            if fit is not None and _pays(group, node, fit):
                self.join(group, node, fit, waits)
                joined = group
                break
        if joined is None:
            space = Space(self.supports)
            fit = space.fit(node)
            if fit is None:
                return False
            joined = Group(self.counter, space)
            self.counter += 1
            self.groups[joined.number] = joined
            self.before[joined.number] = 0
            self.join(joined, node, fit, self.waits_outside(node, ()))
        for other in self.producers(node):
            if other is not joined and other.number in self.groups:
                joined = self.merge(joined, other)
        return True

    def producers(self, node: Node) -> list[Group]:
        found: dict[int, Group] = {}
        for base in self.bases(node):
            group = self.made_in(base)
            if group is not None:
                found[group.number] = group
        return sorted(found.values(), key=lambda g: -g.number)

    def bases(self, node: Node) -> Iterator[Value]:
        return (follow(v).base for v in node.inputs if shape_of(v) is not None)

    def candidates(self, node: Node) -> Iterator[Group]:
        seen: set[int] = set()
        for group in self.producers(node):
            seen.add(group.number)
            yield group
        for value in node.inputs:
            shape = shape_of(value)
            if shape is None or len(shape) == 0:
                continue
            for number in reversed(self.readers.get(follow(value).base, [])[-SHARED:]):
                if number in self.groups and number not in seen:
                    seen.add(number)
                    yield self.groups[number]

    def join(self, group: Group, node: Node, fit: Fit, waits: int) -> None:
        group.space.add(fit)
        group.nodes.append(node)
        group.largest = max(group.largest, own_cells(node))
        self.group_of[node] = group
        for value in node.inputs:
            shape = shape_of(value)
            if shape:
                readers = self.readers.setdefault(follow(value).base, [])
                if not readers or readers[-1] != group.number:
                    readers.append(group.number)
        self.require(group.number, waits)

    def require(self, number: int, waits: int) -> None:
        """Let a group wait for others, and what waits for it with it."""
        if waits & ~self.before[number]:
            self.before[number] |= waits
            for other, mask in self.before.items():
                if mask >> number & 1:
                    self.before[other] = mask | self.before[number]

    def merge(self, a: Group, b: Group) -> Group:
        """The union of two groups if it fits and nothing outside runs between them, else `a`."""
        if min(len(a.nodes), len(b.nodes)) > MERGED:
            return a
        waits = 0
        for node in (*a.nodes, *b.nodes):
            waits |= self.waits_outside(node, (a, b))
        if waits >> a.number & 1 or waits >> b.number & 1:
            return a
        large, small = (a, b) if len(a.nodes) >= len(b.nodes) else (b, a)
        space = self.union(large, small)
        largest = max(large.largest, small.largest)
        if space is None or math.prod(space.sizes.values()) > largest:
            return a
        large.largest, large.merged = largest, True
        order = {n: i for i, n in enumerate(self.nodes)} if len(self.nodes) < 4096 else None
        large.space = space
        large.nodes = sorted(
            (*large.nodes, *small.nodes), key=order.__getitem__ if order else _position
        )
        for node in small.nodes:
            self.group_of[node] = large
        del self.groups[small.number]
        gone = self.before.pop(small.number)
        self.require(large.number, (gone | waits) & ~(1 << large.number | 1 << small.number))
        self.rename(small.number, large.number)
        return large

    def union(self, large: Group, small: Group) -> Space | None:
        """All nodes in one space: the small group's after the large one's, or all in order."""
        if not any(self.made_in(v) is small for n in large.nodes for v in self.bases(n)):
            after = large.space.copy().with_nodes(small.nodes)
            if after is not None:
                return after
        nodes = sorted((*large.nodes, *small.nodes), key=_position)
        return Space(self.supports).with_nodes(nodes) if len(nodes) <= 2 * MERGED else None

    def rename(self, old: int, new: int) -> None:
        bit = 1 << old
        for number, mask in self.before.items():
            if mask & bit and number != new:
                self.before[number] = (mask & ~bit) | 1 << new | self.before[new]
        self.before[new] &= ~(bit | 1 << new)
        for value, mask in self.outside.items():
            if mask & bit:
                self.outside[value] = (mask & ~bit) | 1 << new
        for readers in self.readers.values():
            if old in readers:
                readers[:] = [new if n == old else n for n in readers]


def _position(node: Node) -> int:
    assert node.block is not None
    return node.block._order_of(node)


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class _Rebuild:
    """The new graph: groups and the nodes outside of them, in an order that respects both."""

    def __init__(self, graph: Graph, groups: list[Group]) -> None:
        self.source = graph
        self.group_of = {node: g for g in groups for node in g.nodes}
        self.graph = Graph(graph.name)
        self.mapping: dict[Value, Value] = {}
        self.read_outside: set[Value] = set()  # by graph results, or nodes outside of groups
        for node in (graph.block.returns, *graph.block.reversed_nodes()):
            if node not in self.group_of and (not is_free(node) or self.is_live(node)):
                self.read_outside.update(node.inputs)

    def run(self) -> Graph:
        for param in self.source.inputs:
            self.mapping[param] = self.graph.block.add_param(param.type, param.hint)
        for unit in self.order():
            if isinstance(unit, Group):
                self.group(unit)
            else:
                self.graph.block.append(clone_node(unit, self.mapping))
        self.graph.set_outputs([self.mapping[v] for v in self.source.outputs])
        return self.graph

    def is_live(self, node: Node) -> bool:
        return any(out in self.read_outside for out in node.outputs)

    def unit(self, node: Node) -> Node | Group:
        return self.group_of.get(node, node)

    def order(self) -> list[Node | Group]:
        """Kahn's algorithm; among what is ready, what came first."""
        first: dict[Node | Group, int] = {}
        needs: dict[Node | Group, set[Node | Group]] = {}
        last_effect: Node | None = None
        for i, node in enumerate(self.source.nodes()):
            unit = self.unit(node)
            if unit is node and is_free(node) and not self.is_live(node):
                continue  # only groups read it, and have it inside
            first.setdefault(unit, i)
            mine = needs.setdefault(unit, set())
            values = self.bases(node) if unit is not node else node.inputs
            mine.update(self.unit(v.node) for v in values if v.node is not None)
            mine.discard(unit)
            if _has_effect(node):
                if last_effect is not None:
                    mine.add(last_effect)
                last_effect = node
        users: dict[Node | Group, list[Node | Group]] = {}
        for unit, mine in needs.items():
            for need in mine:
                users.setdefault(need, []).append(unit)
        missing = {unit: len(mine) for unit, mine in needs.items()}
        units = {i: unit for unit, i in first.items()}
        ready = [first[unit] for unit, n in missing.items() if n == 0]
        heapq.heapify(ready)
        result = []
        while ready:
            unit = units[heapq.heappop(ready)]
            result.append(unit)
            for user in users.get(unit, ()):
                missing[user] -= 1
                if missing[user] == 0:
                    heapq.heappush(ready, first[user])
        assert len(result) == len(needs), "fusion groups depend on one another"
        return result

    def bases(self, node: Node) -> list[Value]:
        found = [follow(v).base for v in node.inputs]
        return [v for v in found if v.node is None or not is_free(v.node)]

    def group(self, group: Group) -> None:
        """One FusionGroup node: what it reads as params, its nodes and their views in the block."""
        made = Node("FusionGroup", loc=group.nodes[0].loc)
        block = made.add_block()
        inner: dict[Value, Value] = {}

        def read(value: Value) -> Value:
            if value in inner:
                return inner[value]
            node = value.node
            if node is not None and is_free(node):
                for operand in node.inputs:
                    read(operand)
                block.append(clone_node(node, inner))
            else:
                made.add_input(self.mapping[value])
                inner[value] = block.add_param(value.type, value.hint)
            return inner[value]

        for node in group.nodes:
            for value in node.inputs:
                read(value)
            block.append(clone_node(node, inner))
        results = [n.output for n in group.nodes if self.is_result(n.output, group)]
        block.returns.set_inputs([inner[v] for v in results])
        for value in results:
            self.mapping[value] = made.add_output(value.type, value.hint)
        self.graph.block.append(made)

    def is_result(self, value: Value, group: Group) -> bool:
        """Whether anything but the group reads the value, directly or through views."""
        if value in self.read_outside:
            return True
        for use in value.uses:
            reader = self.group_of.get(use.node)
            if reader is not None and reader is not group:
                return True
            if reader is None and use.node.outputs and is_free(use.node):
                if any(self.is_result(out, group) for out in use.node.outputs):
                    return True
        return False


def _has_effect(node: Node) -> bool:
    return (
        has_trait(node.kind, "random") or has_trait(node.kind, "effect")
        or node.kind in ("Guard", "in_range", "Opaque")
    )  # fmt: skip


def cells(group: Group) -> int:
    """The size of the group's iteration space."""
    return math.prod(group.space.sizes.values())


def _pays(group: Group, node: Node, fit: Fit) -> bool:
    """Whether no loop gets longer than a node needs: [4000, 32] and [200, 32] share a bias only."""
    grown = math.prod(size for _, size, _ in fit.grown)
    return grown == 1 or cells(group) * grown <= max(group.largest, own_cells(node))


def bytes_of(value: Value) -> int:
    """Bytes of an array; 0 for weak scalars."""
    return value.type.nbytes if isinstance(value.type, TensorType) else 0
