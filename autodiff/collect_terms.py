"""Equal contributions to a gradient, added once.

    p = d * x                          the two gradients of x * x are the same value
    s = add a p
    t = add s p              →         t = add a (mul p 2)

Both are the sum; this one is rounded once less. Only sums that the reverse transform made are
rewritten: what is added in a function stays as it was written.
"""

from __future__ import annotations

from collections.abc import Collection

from gradof.ir.builder import Builder
from gradof.ir.core import Graph, Node, Value
from gradof.ir.origins import joined


def collect_terms(graph: Graph, sums: Collection[Node]) -> bool:
    """Rewrite the `sums` that are left of a graph; returns whether any was."""
    changed = False
    for node in list(graph.nodes()):
        found = _collected(node, sums) if node in sums else None
        if found is not None:
            found.hint = found.hint or node.output.hint
            node.output.replace_all_uses_with(found)
            node.erase()
            changed = True
    return changed


def _collected(node: Node, sums: Collection[Node]) -> Value | None:
    a, b = node.inputs
    if a is b:
        return _doubled(a, node)
    for before, term in ((a, b), (b, a)):
        inner = before.node
        if inner is None or inner not in sums or term not in inner.inputs:
            continue
        if term.type != node.output.type:  # a number by now
            continue
        first, second = inner.inputs
        other = second if first is term else first
        assert node.block is not None
        builder = Builder(node.block, node, joined(node.loc, inner.loc))
        return builder.emit("add", other, _doubled(term, node))
    return None


def _doubled(term: Value, before: Node) -> Value:
    """Twice a value, as if the line that made it had said so."""
    assert before.block is not None
    emit = Builder(before.block, before, None if term.node is None else term.node.loc)
    return emit.emit("mul", term, emit.constant(2.0))
