"""Rematerialise across kernels: compute a value again where that reads fewer bytes than it has.

Given   %z = mm(%x, %w)
        %t = tanh(%z);  %y = mul(%t, %z)        a kernel, which would write %t for the other, too
        %q = mm(%y, %v)
        %s = mul(%t, %q);  %d = mul(%s, %t)     another
it is   %a = again(%z)
        %b = tanh(%a);  %s = mul(%b, %q);  %d = mul(%s, %b)

A function and its gradient as one graph (`autodiff.compose`) are full of this: every layer's
derivatives are computed beside its values, long before they are read, and were kept until then.
Results are the same bits, as the ops are the same. `again` keeps the second kernel from being
merged with the first.

What a kernel reads of an earlier one is computed again if nobody else reads it, by ops on cells
alone, few (`REMATERIALIZE_NODES`) and fewer that are many instructions (`REMATERIALIZE_CALLS`),
from fewer bytes than it has; and if it is not compared with what was selected from it, as that is
not computed again (Note [Torn comparisons]).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gradof import tuning
from gradof.codegen.fusion.access import follow, renames_axes
from gradof.codegen.fusion.groups import Group
from gradof.codegen.fusion.iteration_space import NUMBERS
from gradof.ir.builder import Builder
from gradof.ir.clone import clone_graph, clone_node
from gradof.ir.core import Graph, Node, Value
from gradof.ir.opinfo import has_trait
from gradof.ir.types import TensorType
from gradof.ops.cost import is_expensive
from gradof.passes.eliminate_dead_code import eliminate_dead_code
from gradof.passes.purity import is_pure
from gradof.passes.torn import jumps, torn


def computed_again(graph: Graph, groups: Sequence[Group], device: bool = False) -> Graph | None:
    """A copy of the graph whose groups read less; None where they would not.

    On a `device` also of what others read as well.
    """
    found = _Search(graph, groups, device).run()
    return _rewritten(graph, found) if found else None


class _Again:
    """The nodes whose results a group is to compute, from `leaves`; `values` it reads no more."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.nodes: set[Node] = set()
        self.leaves: set[Value] = set()
        self.values: set[Value] = set()


class _Search:
    def __init__(self, graph: Graph, groups: Sequence[Group], device: bool) -> None:
        self.device = device
        self.group_of = {node: g for g in groups for node in g.nodes}
        self.groups = groups
        self.readers: dict[Value, set[Group | None]] = {}  # None: not a group
        for node in (*graph.nodes(), graph.block.returns):
            if node.kind != "Constant" and not renames_axes(node):
                for value in node.inputs:
                    base = _base(value)
                    self.readers.setdefault(base, set()).add(self.group_of.get(node))
        self.gone: set[Value] = set()
        self.kept: set[Value] = set()

    def run(self) -> list[_Again]:
        found = []
        for group in self.groups:
            sources: dict[Group, list[Value]] = {}
            for value in dict.fromkeys(_base(v) for n in group.nodes for v in n.inputs):
                source = None if value.node is None else self.group_of.get(value.node)
                if source is not None and source is not group:
                    if self.is_spared(value, source, group):
                        sources.setdefault(source, []).append(value)
            again = _Again(group)
            for source, values in sources.items():
                self.extend(again, source, values)
            if again.values:
                found.append(again)
        return found

    def is_spared(self, value: Value, source: Group, group: Group) -> bool:
        """Whether the value need not be kept for this group."""
        if not self.device:
            return self.readers[value] <= {source, group}
        # what is in memory for something else is read, and windows are of what is in memory
        return None not in self.readers[value] and not any(
            use.node.kind == "pad" and self.group_of.get(use.node) is group for use in value.uses
        )

    def extend(self, again: _Again, source: Group, values: Sequence[Value]) -> None:
        """Let a group compute what it reads of another one, if it has less to read then."""
        one = _Again(again.group)
        for value in values:
            if value not in self.kept:
                self.trace(one, source, value)
        new = [v for v in one.leaves - again.leaves if again.group not in self.readers.get(v, ())]
        if not one.values or one.leaves & (self.gone | one.values) or _tears(again, one):
            return
        spared = sum(map(_bytes, one.values))
        if self.device:  # and what nobody reads is not written
            spared += sum(_bytes(v) for v in one.values if self.readers[v] <= {source, again.group})
        if sum(map(_bytes, new)) >= spared:
            return
        again.nodes |= one.nodes
        again.leaves |= one.leaves
        again.values |= one.values
        self.kept |= one.leaves
        self.gone |= one.values

    def trace(self, one: _Again, source: Group, value: Value) -> None:
        """Add a value that can be computed from what its group reads, or its reductions give."""
        nodes: set[Node] = set()
        leaves: set[Value] = set()
        todo = [value]
        while todo:
            at = todo.pop()
            node = at.node
            if node in nodes or _is_number(at):
                continue
            kept = self.device and at is not value and None in self.readers.get(at, ())
            if node is None or kept or self.group_of.get(node) is not source:
                leaves.add(at)
            elif _is_cells(node) and len(nodes) < tuning.REMATERIALIZE_NODES:
                nodes.add(node)
                todo += map(_base, node.inputs)
            elif _bytes(at) * tuning.REMATERIALIZE_RATIO <= _bytes(value):
                leaves.add(at)
            else:  # a reduction's result as large, or too many
                return
        if nodes and sum(is_expensive(n.kind) for n in nodes) <= tuning.REMATERIALIZE_CALLS:
            one.nodes |= nodes
            one.leaves |= leaves
            one.values.add(value)


def _tears(again: _Again, one: _Again) -> bool:
    """Whether the group would compare what it computes again with what was selected from it."""
    nodes = again.nodes | one.nodes
    inside = [n for n in again.group.nodes if jumps(n)]
    made = nodes.union(again.group.nodes)
    return bool(inside) and bool(torn(inside, lambda v: _base(v).node not in made))


def _rewritten(graph: Graph, found: Sequence[_Again]) -> Graph:
    result = clone_graph(graph)
    pairs = list(zip(graph.nodes(), result.nodes(), strict=True))
    nodes = dict(pairs)
    values = dict(zip(graph.inputs, result.inputs, strict=True))
    for old, new in pairs:
        values.update(zip(old.outputs, new.outputs, strict=True))
    originals = {v: k for k, v in values.items()}
    for again in found:
        made: dict[Value, Value] = {}
        for old in again.group.nodes:
            node = nodes[old]
            for i, value in enumerate(node.inputs):
                original = originals.get(value)
                if original is not None and _base(original) in again.values | again.leaves:
                    node.replace_input(i, _copied(original, again, made, node, values))
    eliminate_dead_code(result)
    return result


def _copied(
    value: Value, again: _Again, made: dict[Value, Value], anchor: Node,
    values: Mapping[Value, Value],
) -> Value:  # fmt: skip
    """A value as the group has it: computed again before `anchor`, unless it is there already."""
    todo = [value]
    while todo:
        at = todo[-1]
        node = at.node
        if at in made:
            todo.pop()
        elif _is_number(at):
            made[at] = values[at]
        elif node is not None and (node in again.nodes or renames_axes(node)):
            missing = [v for v in node.inputs if v not in made]
            if missing:
                todo += missing
            else:
                assert anchor.block is not None
                anchor.block.insert_before(anchor, clone_node(node, made))
        else:
            assert anchor.block is not None
            made[at] = Builder(anchor.block, anchor).emit("again", values[at], region=0)
            made[at].hint = at.hint
    return made[value]


def _base(value: Value) -> Value:
    return value if value.shape is None else follow(value).base


def _is_cells(node: Node) -> bool:
    """Whether it computes each cell by itself, and the same ones whenever it is run."""
    return has_trait(node.kind, "elementwise") and is_pure(node)


def _is_number(value: Value) -> bool:
    """Whether it is a constant, which is part of every kernel that reads it."""
    if not isinstance(value.type, TensorType):
        return value.node is not None
    return value.node is not None and value.node.kind in NUMBERS


def _bytes(value: Value) -> int:
    return value.type.nbytes if isinstance(value.type, TensorType) else 0

