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

import math
from collections.abc import Callable, Iterator

from gradof import tuning
from gradof.codegen.fusion.access import follow
from gradof.codegen.fusion.groups import Group, cells, is_free, own_cells
from gradof.codegen.fusion.iteration_space import Fit, Space
from gradof.codegen.fusion.rebuild import has_effect, with_groups_as_nodes
from gradof.codegen.fusion.rematerialize import computed_again
from gradof.ir.core import Graph, Node, Value

Worth = Callable[[Group], bool]


def fuse(
    graph: Graph, supports: Callable[[Node], bool], worth: Worth, again: bool = True,
    device: bool = False,
) -> Graph:  # fmt: skip
    """The graph with its fusion groups; nothing in `graph` is changed.

    `supports` says which nodes a kernel can compute, `worth` which groups shall be kernels. `again`
    lets kernels compute again what they would read of others (`fusion/rematerialize`). For a
    `device` groups that read one array are merged, though neither reads the other's results: there
    each pass over memory counts.
    """
    groups = _kernels(graph, supports, worth, device)
    for _ in range(tuning.REMATERIALIZE_ROUNDS if device else 1):
        other = computed_again(graph, groups, device) if again else None
        fewer = _kernels(other, supports, worth, device) if other is not None else []
        if other is None or len(fewer) > len(groups):
            break
        graph, groups = other, fewer
    return with_groups_as_nodes(graph, groups)


def _kernels(
    graph: Graph, supports: Callable[[Node], bool], worth: Worth, device: bool
) -> list[Group]:
    grouping = _Grouping(graph, supports, device)
    grouping.run()
    if device:
        grouping.merge_siblings()
    groups = [part for group in grouping.groups.values() for part in group.parts()]
    return [g for g in groups if (g.space.order or device) and worth(g)]


class _Grouping:
    def __init__(self, graph: Graph, supports: Callable[[Node], bool], device: bool) -> None:
        self.device = device
        self.nodes = list(graph.nodes())
        self.supports = supports
        self.groups: dict[int, Group] = {}
        self.group_of: dict[Node, Group] = {}
        self.before: dict[int, int] = {}
        self.outside: dict[Value, int] = {}  # groups that values made outside of groups wait for
        self.readers: dict[Value, list[int]] = {}  # groups that read a value, latest last
        self.effects = 0  # groups that the last effect outside of groups waits for
        self.counter = 0

    def run(self) -> None:
        """Put every node into a group that can be in one."""
        for node in self.nodes:
            if not is_free(node) and self.place(node):
                continue
            mask = 0
            for value in node.inputs:
                mask |= self.waits(value)
            if has_effect(node):
                mask |= self.closed(self.effects)
                self.effects = mask
            for out in node.outputs:
                self.outside[out] = mask

    def merge_siblings(self) -> None:
        """Merge groups that read an array as large as all that either of them loops over."""
        for value, numbers in list(self.readers.items()):
            size = math.prod(value.shape or ())
            merged: Group | None = None
            for number in list(numbers):
                group = self.groups.get(number)
                if group is not None and group is not merged and size >= group.largest:
                    merged = group if merged is None else self.merge(merged, group)

    # --- what waits for what ---------------------------------------------------------------------

    def waits(self, value: Value) -> int:
        """Every group that has to run before the value is there."""
        group = self.made_in(value)
        if group is not None:
            return 1 << group.number | self.before[group.number]
        return self.closed(self.outside.get(value, 0))

    def closed(self, mask: int) -> int:
        """These groups and all that have to run before them."""
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
            base = follow(value).base if value.shape is not None else value
            if self.made_in(base) not in inside:
                mask |= self.waits(base)
        return mask

    # --- joining ---------------------------------------------------------------------------------

    def place(self, node: Node) -> bool:
        """Put the node into a group, its own if need be; False if it cannot be in any."""
        joined: Group | None = None
        if node.kind == "cat" and self.device:  # of one group, or of none
            made = self.producers(node)
            for other in made[1:]:
                if made[0].number in self.groups:
                    self.merge(made[0], other)
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
            space = Space(self.supports, self.device)
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
        return (follow(v).base for v in node.inputs if v.shape is not None)

    def candidates(self, node: Node) -> Iterator[Group]:
        seen: set[int] = set()
        for group in self.producers(node):
            seen.add(group.number)
            yield group
        for value in node.inputs:
            shape = value.shape
            if shape is None or len(shape) == 0:
                continue
            latest = self.readers.get(follow(value).base, [])[-tuning.SIBLINGS_TRIED :]
            for number in reversed(latest):
                if number in self.groups and number not in seen:
                    seen.add(number)
                    yield self.groups[number]

    def join(self, group: Group, node: Node, fit: Fit, waits: int) -> None:
        group.space.add(fit)
        group.nodes.append(node)
        group.largest = max(group.largest, own_cells(node))
        self.group_of[node] = group
        for value in node.inputs:
            shape = value.shape
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
        if min(len(a.nodes), len(b.nodes)) > tuning.FUSED_NODES:
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
        large.largest, large.space = largest, space
        if self.device:
            large.nodes = [fit.node for fit in space.fits]  # the order in which they fit
        else:
            order = {n: i for i, n in enumerate(self.nodes)} if len(self.nodes) < 4096 else None
            large.merged = True
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
        space = Space(self.supports, self.device)
        return space.with_nodes(nodes) if len(nodes) <= 2 * tuning.FUSED_NODES else None

    def rename(self, old: int, new: int) -> None:
        bit = 1 << old
        for number, mask in self.before.items():
            if mask & bit and number != new:
                self.before[number] = (mask & ~bit) | 1 << new | self.before[new]
        self.before[new] &= ~(bit | 1 << new)
        for value, mask in self.outside.items():
            if mask & bit:
                self.outside[value] = (mask & ~bit) | 1 << new
        if self.effects & bit:
            self.effects = (self.effects & ~bit) | 1 << new
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


def _pays(group: Group, node: Node, fit: Fit) -> bool:
    """Whether no loop gets longer than a node needs: [4000, 32] and [200, 32] share a bias only."""
    grown = math.prod(size for _, size, _ in fit.grown)
    return grown == 1 or cells(group) * grown <= max(group.largest, own_cells(node))
