"""Local simplifications that change no bit of any result.

    cast to its own dtype, reshape to its own shape, identity permute and expand, alias → operand
    reshape(reshape(x)), permute(permute(x)), detach(detach(x))                         → one node
    neg(neg(x))                                                                         → x
"""

from __future__ import annotations

from gradof.ir.core import Graph, Node, Value
from gradof.ir.types import TensorType

_LAYOUT = frozenset({"cast", "reshape", "permute", "expand", "sum_to"})


def canonicalize(graph: Graph) -> bool:
    """Simplify until nothing changes.

    Returns whether anything did. Graph outputs keep their types.
    """
    changed = False
    for node in graph.walk():
        if node.block is None:
            continue
        while _compose(node):
            changed = True
        replacement = _identity(node)
        if replacement is not None:
            node.output.replace_all_uses_with(replacement)
            node.erase()
            changed = True
    return changed


def _identity(node: Node) -> Value | None:
    """The operand this node merely passes on, if any."""
    if node.kind == "alias":
        return node.inputs[0]
    if node.kind in _LAYOUT and node.inputs[0].type == node.output.type:
        if not isinstance(node.output.type, TensorType) or node.output.type.shape is None:
            return None
        dims = node.attrs.get("dims")
        if node.kind != "permute" or dims == tuple(range(len(node.output.type.shape))):
            return node.inputs[0]
    if node.kind == "neg":
        inner = node.inputs[0].node
        if inner is not None and inner.kind == "neg":
            return inner.inputs[0]
    return None


def _compose(node: Node) -> bool:
    """Fold a reshape of a reshape, a permute of a permute, or a detach of a detach, into one."""
    if node.kind not in ("reshape", "permute", "detach"):
        return False
    inner = node.inputs[0].node
    if inner is None or inner.kind != node.kind:
        return False
    if node.kind == "permute":
        outer_dims, inner_dims = node.attrs["dims"], inner.attrs["dims"]
        assert isinstance(outer_dims, tuple) and isinstance(inner_dims, tuple)
        node.attrs["dims"] = tuple(inner_dims[d] for d in outer_dims if isinstance(d, int))
    node.replace_input(0, inner.inputs[0])
    return True
