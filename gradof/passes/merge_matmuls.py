"""Products that share an operand, and sums of products, as one product each.

    mm(x, a); mm(x, b); mm(x, c)         → p = mm(x, cat(a, b, c, dim=1)); its columns
    mm(x, a) + mm(y, b)                  → mm(cat(x, y, dim=1), cat(a, b, dim=0))

A library's product of one wide operand takes less time than several of narrow ones: queries, keys
and values of an attention, and the gradients of their weights. (XLA's DotMerger does the first.)

Only float32 products of a middling size are merged, where what is copied for it is little beside
them: small ones cost next to nothing, and large ones fill the cores by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gradof import tuning
from gradof.ir.builder import Builder
from gradof.ir.core import Graph, Node, Value
from gradof.ir.origins import joined
from gradof.ir.types import F32, TensorType


def may_merge(graph: Graph) -> bool:
    """Whether the graph has products that `merge_matmuls` looks at."""
    return sum(map(_is_middling, graph.nodes())) > 1


def merge_matmuls(graph: Graph) -> bool:
    """Merge products that share an operand, and sums of products, into one product each."""
    merged = [_shared(graph, nodes, anchor) for nodes, anchor in list(_sharing(graph))]
    summed = [_summed(terms) for terms in list(_sums(graph))]
    return any(merged) or any(summed)


def _is_middling(node: Node) -> bool:
    if node.kind != "mm":
        return False
    a, b = (v.type for v in node.inputs)
    if not isinstance(a, TensorType) or not isinstance(b, TensorType):
        return False
    if a.shape is None or b.shape is None or a.dtype != F32 or a.device != "cpu":
        return False
    return tuning.MERGED_LEAST < _multiplications(node) <= tuning.MERGED_MOST




def _multiplications(node: Node) -> int:
    (m, k), n = node.inputs[0].known_shape, node.inputs[1].known_shape[1]
    return m * k * n


# --- products with one first operand -------------------------------------------------------------


def _sharing(graph: Graph) -> Iterator[tuple[list[Node], Node]]:
    """Products of the same first operand, in order, and where they can be one.

    Those whose other operands are there at the first of them are one there, whatever else reads
    that operand later: f alone has the same products as f with its gradients.
    """
    found: dict[Value, list[Node]] = {}
    for node in graph.nodes():
        if _is_middling(node):
            found.setdefault(node.inputs[0], []).append(node)
    for nodes in found.values():
        early = [n for n in nodes if _is_there(n.inputs[1], nodes[0])]
        if len(early) > 1:
            yield early, early[0]
        late = [n for n in nodes if n not in early] if len(early) > 1 else nodes
        if len(late) > 1 and _is_unread_until(late[-1], late):
            yield late, late[-1]


def _is_unread_until(last: Node, nodes: Sequence[Node]) -> bool:
    """Whether nothing reads the products before the last of them."""
    assert last.block is not None
    users = {use.node for n in nodes for use in n.output.uses} - {last.block.returns}
    return all(last.is_before(user) for user in users)


def _shared(graph: Graph, nodes: list[Node], anchor: Node) -> bool:
    """Merge products of one first operand before `anchor`, if it pays."""
    outputs = set(graph.outputs)
    copied = sum(_size(n.inputs[1]) + (n.output in outputs) * _size(n.output) for n in nodes)
    if copied * tuning.MERGED_WORTH > sum(map(_multiplications, nodes)):
        return False
    wide = _joined([n.inputs[1] for n in nodes], 1, anchor)
    assert anchor.block is not None
    builder = Builder(anchor.block, anchor, joined(*(n.loc for n in nodes)))
    product = builder.emit("mm", nodes[0].inputs[0], wide)
    start = 0
    for node in nodes:
        stop = start + node.output.known_shape[1]
        builder.loc = node.loc
        part = builder.emit("slice", product, dim=1, start=start, stop=stop, step=1)
        if node.output in outputs:  # an array of its own
            part = builder.emit("copy", part)
        part.hint = node.output.hint
        node.output.replace_all_uses_with(part)
        start = stop
    for node in nodes:
        node.erase()
    return True


def _is_there(value: Value, node: Node) -> bool:
    return value.node is None or value.node.is_before(node)


# --- sums of products ----------------------------------------------------------------------------


def _sums(graph: Graph) -> Iterator[list[Node]]:
    """Additions of products, from the last one: it, and then the products."""
    for node in reversed(list(graph.nodes())):
        if node.kind != "add" or node.block is None:
            continue
        above = node.output.uses[0].node if len(node.output.uses) == 1 else None
        if above is not None and above.kind == "add" and _terms(above):
            continue  # part of a longer sum
        terms = _terms(node)
        if terms:
            yield [node, *terms]


def _terms(node: Node) -> list[Node]:
    """The products that a tree of additions adds up, which nothing else reads; else none."""
    found: list[Node] = []
    for value in node.inputs:
        maker = value.node
        if maker is None or len(value.uses) != 1 or value.type != node.output.type:
            return []
        if maker.kind == "add":
            inner = _terms(maker)
            if not inner:
                return []
            found += inner
        elif _is_middling(maker):
            found.append(maker)
        else:
            return []
    return found


def _summed(nodes: Sequence[Node]) -> bool:
    """Merge a sum of products, where it pays."""
    total, *terms = nodes
    lefts, rights = zip(*(t.inputs for t in terms), strict=True)
    fresh = _size_to_join(lefts, 1, total) + sum(map(_size, rights))
    if fresh * tuning.MERGED_WORTH > sum(map(_multiplications, terms)):
        return False
    assert total.block is not None
    plain = [_transposed(v) for v in rights]
    builder = Builder(total.block, total, joined(*(n.loc for n in nodes)))
    if all(v is not None for v in plain):
        across = _joined([v for v in plain if v is not None], 1, total)
        wide = builder.emit("permute", across, dims=(1, 0))
    else:
        wide = _joined(rights, 0, total)
    result = builder.emit("mm", _joined(lefts, 1, total), wide)
    result.hint = total.output.hint
    total.output.replace_all_uses_with(result)
    _erase(total)
    return True


def _erase(node: Node) -> None:
    """An addition or a product that nothing reads any more, and what only it has read."""
    sources = [v.node for v in node.inputs]
    node.erase()
    for source in sources:
        if source is not None and source.kind in ("add", "mm", "permute"):
            if source.block is not None and not source.output.has_uses:
                _erase(source)


def _transposed(value: Value) -> Value | None:
    """What a value is the transpose of."""
    node = value.node
    return node.inputs[0] if node is not None and node.kind == "permute" else None


# --- operands side by side -----------------------------------------------------------------------


def _joined(values: Sequence[Value], dim: int, reader: Node) -> Value:
    """The values side by side: what is there already, or a new array as soon as all are there."""
    found = _find_joined(values, dim, reader)
    if found is not None:
        return found
    makers = [v.node for v in values if v.node is not None]
    block = values[0].owning_block
    anchor = next(block.nodes())
    if makers:
        latest = makers[0]
        for maker in makers[1:]:
            latest = maker if latest.is_before(maker) else latest
        anchor = latest.next or block.returns
    loc = joined(*(m.loc for m in makers)) or anchor.loc
    return Builder(block, anchor, loc).emit("cat", *values, dim=dim)


def _find_joined(values: Sequence[Value], dim: int, reader: Node) -> Value | None:
    for use in values[0].uses:
        node = use.node
        if node.kind == "cat" and node.attrs["dim"] == dim and node.inputs == tuple(values):
            if node.is_before(reader):
                return node.output
    return None


def _size_to_join(values: Sequence[Value], dim: int, reader: Node) -> int:
    return 0 if _find_joined(values, dim, reader) is not None else sum(map(_size, values))


def _size(value: Value) -> int:
    assert isinstance(value.type, TensorType)
    return value.type.size
