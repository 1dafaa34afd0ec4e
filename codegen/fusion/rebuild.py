"""A graph with FusionGroup nodes in place of its groups.

    together = with_groups_as_nodes(graph, groups)

Groups and the nodes outside of them come in an order that respects both. What a group reads are the
params of its node's block, which has copies of the group's nodes and of views of what they read.
"""

from __future__ import annotations

import heapq

from gradof.codegen.fusion.access import follow
from gradof.codegen.fusion.groups import Group, is_free
from gradof.ir.attrs import Attr
from gradof.ir.clone import clone_node
from gradof.ir.core import Graph, Node, Value
from gradof.ir.opinfo import has_trait
from gradof.ir.origins import joined


def with_groups_as_nodes(graph: Graph, groups: list[Group]) -> Graph:
    """The graph with a FusionGroup node for each group; nothing in `graph` is changed."""
    return _Rebuild(graph, groups).run()


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
            if has_effect(node) and unit is node:  # what kernels check, they check by and by
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
        attrs: dict[str, Attr] = {"device": True} if group.space.device else {}
        made = Node("FusionGroup", attrs=attrs, loc=joined(*(n.loc for n in group.nodes)))
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


def has_effect(node: Node) -> bool:
    """Whether a node keeps its place among others of its kind."""
    return (
        has_trait(node.kind, "random") or has_trait(node.kind, "effect")
        or node.kind in ("Guard", "in_range", "math_result", "Opaque", "python_call")
    )  # fmt: skip
