"""Compute products in the layout in which they are read, in place of copying them to it.

    permute(mm(a, b))                    →  mm(permute(b), permute(a))     and bmm, by its last dims
    bmm of a batch of one                →  mm
    reshape(permute(reshape(x))), where the reshapes only add and drop dims of size 1 → permute(x)

The gradient of a linear layer's weight is x^T g, transposed. As g^T x it has the layout of the
weight, and nobody has to copy it. einsum hides such products behind dims of size 1. A library may
add in another order, so that last bits may change.
"""

from __future__ import annotations

from gradof.ir.builder import Builder
from gradof.ir.core import Graph, Node, Value
from gradof.passes.eliminate_dead_code import eliminate_dead_code

_SWAPS: dict[str, tuple[int, ...]] = {"mm": (1, 0), "bmm": (0, 2, 1)}


def transpose_products(graph: Graph) -> bool:
    """Rewrite until nothing changes; returns whether anything did."""
    changed = False
    for rewrite in (_batch_of_one, _plain_view, _transposed_product):
        for node in list(graph.walk()):
            if node.block is not None:
                changed |= rewrite(node)
        if changed:  # views that nobody reads any more would count as readers
            eliminate_dead_code(graph)
    return changed


# --- products ------------------------------------------------------------------------------------


def _batch_of_one(node: Node) -> bool:
    """A bmm of one batch as a mm."""
    shapes = [v.shape for v in node.inputs] if node.kind == "bmm" else []
    if not shapes or any(s is None or len(s) != 3 or s[0] != 1 for s in shapes):
        return False
    assert node.block is not None
    builder = Builder(node.block, node, node.loc)
    operands = [builder.emit("reshape", v, shape=(v.shape or ())[1:]) for v in node.inputs]
    product = builder.emit("mm", *operands)
    shape = node.output.shape
    _replace(node, builder.emit("reshape", product, shape=shape))
    return True


def _transposed_product(node: Node) -> bool:
    """A product that is only read transposed as that of the transposed operands."""
    product = node.inputs[0].node if node.kind == "permute" else None
    if product is None or node.attrs["dims"] != _SWAPS.get(product.kind):
        return False
    if len(product.output.uses) != 1 or product.block is not node.block:
        return False
    if any(len(v.shape or ()) != len(_SWAPS[product.kind]) for v in product.inputs):
        return False  # one matrix for every batch
    assert product.block is not None
    a, b = product.inputs
    builder = Builder(product.block, product, product.loc)
    operands = [_transposed(v, product.kind, builder) for v in (b, a)]
    _replace(node, builder.emit(product.kind, *operands))
    product.erase()
    return True


def _transposed(value: Value, kind: str, builder: Builder) -> Value:
    """The value with its last two dims swapped: what it is the transpose of, or a view."""
    dims = _SWAPS[kind]
    if value.node is not None and value.node.kind == "permute" and value.node.attrs["dims"] == dims:
        return value.node.inputs[0]
    return builder.emit("permute", value, dims=dims)


def _replace(node: Node, value: Value) -> None:
    value.hint = node.output.hint
    node.output.replace_all_uses_with(value)
    node.erase()


# --- views ---------------------------------------------------------------------------------------


def _plain_view(node: Node) -> bool:
    """Views that add and drop dims of size 1, and move dims, as one permute of what is below."""
    found = _below(node) if node.kind in ("reshape", "permute") else None
    if found is None:
        return False
    base, dims = found
    if dims == tuple(range(len(dims))):
        node.output.replace_all_uses_with(base)
        node.erase()
        return True
    assert node.block is not None
    _replace(node, Builder(node.block, node, node.loc).emit("permute", base, dims=dims))
    return True


def _below(node: Node) -> tuple[Value, tuple[int, ...]] | None:
    """The furthest value without dims of size 1 that views lead to, and its dims in their order."""
    shape = node.output.shape
    if not shape or 1 in shape:
        return None
    places = list(range(len(shape)))  # of the result's dims, among those of `value`
    value, steps, found = node.output, 0, None
    while value.node is not None and value.node.kind in ("reshape", "permute"):
        view, outer, inner = value.node, value.shape, value.node.inputs[0].shape
        if outer is None or inner is None:
            break
        if view.kind == "permute":
            dims = view.attrs["dims"]
            assert isinstance(dims, tuple)
            places = [d for p in places if isinstance(d := dims[p], int)]
        else:
            if [n for n in outer if n != 1] != [n for n in inner if n != 1]:
                break
            ranks = {p: k for k, p in enumerate(p for p, n in enumerate(outer) if n != 1)}
            kept = [p for p, n in enumerate(inner) if n != 1]
            places = [kept[ranks[p]] for p in places]
        value, steps = view.inputs[0], steps + 1
        if steps > 1 and 1 not in inner and len(inner) == len(places):
            found = value, tuple(places)
    return found
