"""The verifier: scoping, use lists, and every type inferred anew.

`verify(graph)` returns None or raises VerifyError, whose message shows the node, the user's line
and the nodes around it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gradof.errors import InferenceError, VerifyError
from gradof.ir.core import Block, Graph, Node, Use, Value
from gradof.ir.loop import is_loop, loop_types
from gradof.ir.opinfo import DISPLAY, OPS, STRUCTURAL
from gradof.ir.printer import Names, format_node
from gradof.ir.types import Type

_HINT = "with GRADOF_CHECK=1 graphs are verified after each pass: that names the one at fault"
_AROUND = 3  # nodes shown on each side of the offending one


def verify(graph: Graph) -> None:
    """Check every invariant of the graph; raises VerifyError at the first one broken."""
    _Verifier(graph).block(graph.block, set())


class _Verifier:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def fail(self, message: str, node: Node) -> VerifyError:
        names = Names()
        for param in self.graph.inputs:
            names[param]
        lines: list[str] = []
        mark = -1
        for each in [*self.graph.walk(), self.graph.block.returns]:
            if each is node or any(inner.returns is node for inner in each.blocks):
                mark = len(lines)
            lines.append(("> " if mark == len(lines) else "  ") + format_node(each, names))
        mark = max(mark, 0)
        window = lines[max(0, mark - _AROUND) : mark + _AROUND + 1]
        return VerifyError("\n".join([message, *window]), loc=node.loc, hint=_HINT)

    def block(self, block: Block, visible: set[Value]) -> None:
        """`visible` are the values defined so far; those of the block are gone at its end."""
        defined = list(block.params)
        visible.update(defined)
        for i, param in enumerate(block.params):
            if param.block is not block or param.index != i or _stale(param):
                raise self.fail(f"input {i} of the block is stale", block.returns)
        for node in block.nodes():
            self.node(node, block, visible)
            defined += node.outputs
            visible.update(node.outputs)
        self.operands(block.returns, visible)
        visible.difference_update(defined)

    def operands(self, node: Node, visible: set[Value]) -> None:
        for i, value in enumerate(node.inputs):
            if value not in visible:
                raise self.fail(f"operand {i} of {node.kind} is used before it is defined", node)
            if Use(node, i) not in value._uses:
                raise self.fail(f"operand {i} of {node.kind} is missing in its use list", node)

    def node(self, node: Node, block: Block, visible: set[Value]) -> None:
        if node.block is not block:
            raise self.fail(f"{node.kind} does not know its block", node)
        self.operands(node, visible)
        for i, out in enumerate(node.outputs):
            if out.node is not node or out.index != i:
                raise self.fail(f"output {i} of {node.kind} does not know its node", node)
            if _stale(out):
                raise self.fail(f"output {i} of {node.kind} has a stale use", node)
        for inner in node.blocks:
            if inner.owner is not node:
                raise self.fail(f"a block of {node.kind} does not know its node", node)
            self.block(inner, set() if is_loop(node) else visible)
        self.types(node)

    def types(self, node: Node) -> None:
        actual = [v.type for v in node.outputs]
        if is_loop(node):
            expected = self.inferred(node, lambda: loop_types(node))
        elif node.kind in STRUCTURAL:
            expected = [v.type for inner in node.blocks for v in inner.results]
        elif node.kind in DISPLAY:
            expected = []
        else:
            if node.kind not in OPS:
                raise self.fail(f"unknown op {node.kind!r}", node)
            types = [v.type for v in node.inputs]
            expected = self.inferred(node, lambda: OPS[node.kind].infer(types, node.attrs))
        if actual != expected:
            shown = ", ".join(map(str, expected))
            raise self.fail(f"{node.kind} should have the result types ({shown})", node)

    def inferred(self, node: Node, infer: Callable[[], Sequence[Type]]) -> list[Type]:
        try:
            return list(infer())
        except InferenceError as error:
            raise self.fail(error.message, node) from error


def _stale(value: Value) -> bool:
    """Whether the value counts a use that is none."""
    for node, index in value._uses:
        inputs = node._inputs
        if index >= len(inputs) or inputs[index] is not value or node.block is None:
            return True
    return False
