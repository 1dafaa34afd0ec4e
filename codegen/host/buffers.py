"""Buffer planning: which statement writes into a dead array, and which arrays are let go.

    h = np.matmul(x, w)
    y = np.tanh(h, out=h)        h is dead and has y's type: out[y] = h
    s = np.sum(y, ...)
    del h, y                     a large array nobody writes into: frees[sum] = (h, y)

Each value has a root: the value whose statement made the array it lives in. Views share their
operand's root; every other op makes a new array. After the last statement that reads any value of a
root, its array goes to the next ufunc result of its dtype and shape, or, if there is none and it is
large, back to the system. Graph inputs, constants and outputs are never written, and of inputs only
those let go that are `consumed`: Note [Consumed inputs] in `gradof.codegen.host.emitter`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from gradof import tuning
from gradof.codegen.lowering.numpy import Writes, writes_zeros
from gradof.ir.core import Graph, Node, Value
from gradof.ir.opinfo import has_trait
from gradof.ir.types import TensorType, Type


class BufferPlan:
    """`out[value]` is the value written over; `frees[node]` are deleted after a statement.

    `root[value]` is the value that was made together with the array `value` lives in.
    """

    def __init__(
        self, graph: Graph, writes: Mapping[Node, Writes],
        parts: Mapping[Value, Value] | None = None, updates: Collection[Node] = (),
        copies: Collection[Node] = (), consumed: Collection[Value] = (),
    ) -> None:  # fmt: skip
        self.graph = graph
        self.updates = updates  # these write into the array of their first operand
        self.copies = copies  # views that are copied
        self.consumed = consumed  # inputs that are let go, too, and not written into
        self.parts = parts or {}  # values that are written into the array of a later one
        self.root: dict[Value, Value] = {}
        self.out: dict[Value, Value] = {}
        self.frees: dict[Node, tuple[Value, ...]] = {}
        nodes = list(graph.nodes())
        self._find_roots(nodes)
        dying = self._deaths(nodes)
        self._assign(nodes, dying, writes)
        self._free(nodes, dying)

    def _find_roots(self, nodes: list[Node]) -> None:
        for value in self.graph.inputs:
            self.root[value] = value
        for node in nodes:
            aliases = node in self.updates or (may_alias(node) and node not in self.copies)
            for out in node.outputs:
                own = self.parts.get(out, out)
                self.root[out] = self.root[node.inputs[0]] if aliases else own

    def _deaths(self, nodes: list[Node]) -> dict[Node, list[Value]]:
        """The roots of which no value is read after a node."""
        kept = {self.root[v] for v in self.graph.outputs}
        kept.update(v for v in self.graph.inputs if v not in self.consumed)
        last: dict[Value, Node] = {}
        for node in nodes:
            for value in (*node.inputs, *node.outputs):
                last[self.root[value]] = node
        dying: dict[Node, list[Value]] = defaultdict(list)
        for root, node in last.items():
            if root not in kept and isinstance(root.type, TensorType):
                if root.node is None or root.node.kind != "Constant":
                    dying[node].append(root)
        return dying

    def _assign(
        self, nodes: list[Node], dying: Mapping[Node, list[Value]], writes: Mapping[Node, Writes]
    ) -> None:
        free: dict[Type, list[Value]] = defaultdict(list)
        for node in nodes:
            how = writes.get(node, "never")
            dead = [r for r in dying.get(node, ()) if r not in self.consumed]
            read = [r for r in dead if r not in node.outputs]
            if how == "in place":
                self._release(read, free)
            if how != "never" and free[node.output.type]:
                self.out[node.output] = free[node.output.type].pop()
            if how != "in place":
                self._release(read, free)
            self._release([r for r in dead if r in node.outputs], free)

    def _release(self, roots: list[Value], free: dict[Type, list[Value]]) -> None:
        for root in roots:
            # 0-d results are numpy scalars, which have no buffer, and unknown shapes may not fit
            if isinstance(root.type, TensorType) and root.type.shape:
                free[root.type].append(root)

    def _free(self, nodes: list[Node], dying: Mapping[Node, list[Value]]) -> None:
        # root → every value that lives in its array
        names: dict[Value, list[Value]] = {v: [v] for v in self.consumed}
        for node in nodes:
            for value in node.outputs:
                root = self.root[value]
                if root is value:
                    names[value] = names[self.out[value]] if value in self.out else []
                if root in names:
                    names[root].append(value)
        reused = set(self.out.values())
        for node in nodes[:-1]:
            values = [
                v for root in dying.get(node, ()) if root not in reused and is_large(root.type)
                for v in names[root]
            ]  # fmt: skip
            if values:
                self.frees[node] = tuple(values)


def may_alias(node: Node) -> bool:
    """Whether the result may live in the first operand's array."""
    return bool(node.inputs) and (
        has_trait(node.kind, "view") or node.kind in ("_grad_sum_to_size", "expand_to_size")
        or writes_zeros(node)
    )  # fmt: skip


def is_large(type_: Type) -> bool:
    """Whether an array is worth letting go before the function returns."""
    if not isinstance(type_, TensorType):
        return False
    return type_.shape is None or type_.nbytes >= tuning.FREED_BYTES
