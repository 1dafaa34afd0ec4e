"""Buffer planning: which statement may write into an array that is no longer needed.

Each value has a root: the array it lives in. Views share their operand's root; every other op makes a new one.
A root made by an op is free after the last statement that reads any value of it. An elementwise ufunc result
then goes into a free root of its dtype and shape, through `out=`. Inputs, constants and outputs are never
written.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from gradof.ir.core import Graph, Node, Value
from gradof.ir.opinfo import has_trait
from gradof.ir.types import TensorType, Type


class BufferPlan:
    """`out[value]` is the value whose array is overwritten; `root[value]` its array's first value."""

    def __init__(self, graph: Graph, takes_out: Mapping[Node, bool]) -> None:
        self.graph = graph
        self.root: dict[Value, Value] = {}
        self.out: dict[Value, Value] = {}
        nodes = list(graph.nodes())
        self._find_roots(nodes)
        self._assign(nodes, takes_out)

    def _find_roots(self, nodes: list[Node]) -> None:
        for value in self.graph.inputs:
            self.root[value] = value
        for node in nodes:
            for out in node.outputs:
                aliases = may_alias(node)
                self.root[out] = self.root[node.inputs[0]] if aliases else out

    def _assign(self, nodes: list[Node], takes_out: Mapping[Node, bool]) -> None:
        kept = {self.root[v] for v in self.graph.outputs} | set(self.graph.inputs)
        last: dict[Value, int] = {}
        for i, node in enumerate(nodes):
            for value in (*node.inputs, *node.outputs):
                last[self.root[value]] = i
        dying: dict[int, list[Value]] = defaultdict(list)
        for root, i in last.items():
            if root not in kept and isinstance(root.type, TensorType) and root.type.shape:
                if root.node is not None and not has_trait(root.node.kind, "constant"):
                    dying[i].append(root)
        free: dict[Type, list[Value]] = defaultdict(list)
        holder: dict[Value, Value] = {}  # root → the value whose variable names its array
        for i, node in enumerate(nodes):
            for root in dying[i]:
                if root not in node.outputs:
                    free[root.type].append(holder.get(root, root))
            if takes_out.get(node) and free[node.output.type]:
                self.out[node.output] = free[node.output.type].pop()
            for root in dying[i]:
                if root in node.outputs:
                    free[root.type].append(root)


def may_alias(node: Node) -> bool:
    """Whether the result may live in the first operand's array."""
    return bool(node.inputs) and (
        has_trait(node.kind, "view") or node.kind in ("_grad_sum_to_size", "expand_to_size")
    )
