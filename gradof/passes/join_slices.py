"""Slices that are written back one by one become one op.

    unslice(unslice(x, dim=1), dim=0)                           → pad(x)
    unslice(x, 0:2) + unslice(y, 2:5)  of a dim of size 5       → cat(x, y)

The gradients of slices are zeros with the slice set, one whole array each, and their sum. Only
steps of 1 are meant, and arrays that nothing else reads. The sign of a zero may change.
"""

from __future__ import annotations

from gradof.ir.builder import Builder
from gradof.ir.core import Graph, Node, Value
from gradof.ir.origins import joined

_JOINED = frozenset({"unslice", "add", "pad"})


def join_slices(graph: Graph) -> bool:
    """Join until nothing changes; returns whether anything did."""
    changed = False
    for node in list(graph.walk()):
        joined = None if node.block is None else _nested(node) or _sum(node)
        if joined is not None:
            joined.hint = node.output.hint
            node.output.replace_all_uses_with(joined)
            _erase(node)
            changed = True
    return changed


def _erase(node: Node) -> None:
    """A node that nothing reads any more, and what only it has read."""
    sources = [value.node for value in node.inputs]
    node.erase()
    for source in sources:
        if source is not None and source.kind in _JOINED and not source.output.uses:
            _erase(source)


def _nested(node: Node) -> Value | None:
    """An unslice, or a pad by zeros, of an unslice as one pad."""
    inner = node.inputs[0].node if node.kind == "unslice" and _is_plain(node) else None
    if inner is None or node.block is None:
        return None
    if not (inner.kind == "unslice" and _is_plain(inner)) and not _is_zero_pad(inner):
        return None
    if len(inner.output.uses) != 1:
        return None
    pads = [a + b for a, b in zip(_pads(node), _pads(inner), strict=True)]
    pairs = tuple(zip(pads[::2], pads[1::2], strict=True))
    builder = Builder(node.block, node, joined(node.loc, inner.loc))
    return builder.emit("pad", inner.inputs[0], pads=pairs, value=0.0)


def _is_plain(node: Node) -> bool:
    return node.attrs["step"] == 1


def _is_zero_pad(node: Node) -> bool:
    return node.kind == "pad" and node.attrs["value"] == 0 and not isinstance(
        node.attrs["value"], bool
    )


def _pads(node: Node) -> list[int]:
    """Elements of zero before and after, per dim, flat."""
    if node.kind == "pad":
        pads = node.attrs["pads"]
        assert isinstance(pads, tuple)
        return [n for pair in pads if isinstance(pair, tuple) for n in pair if isinstance(n, int)]
    shape = node.output.known_shape
    found = [0] * (2 * len(shape))
    dim, start, stop = _place(node)
    found[2 * dim], found[2 * dim + 1] = start, shape[dim] - stop
    return found


def _sum(node: Node) -> Value | None:
    """A sum of slices next to one another that are the whole, as their concatenation."""
    if node.kind != "add" or node.block is None or _is_part_of_sum(node):
        return None
    parts = _leaves(node)
    if parts is None or len({_place(p)[0] for p in parts}) != 1:
        return None
    dim = _place(parts[0])[0]
    parts.sort(key=lambda p: _place(p)[1:])
    ends = [0, *(_place(p)[2] for p in parts)]
    starts = [*(_place(p)[1] for p in parts), node.output.known_shape[dim]]
    if starts != ends or any(p.output.known_shape != node.output.known_shape for p in parts):
        return None
    builder = Builder(node.block, node, joined(node.loc, *(p.loc for p in parts)))
    return builder.emit("cat", *(p.inputs[0] for p in parts), dim=dim)


def _is_part_of_sum(node: Node) -> bool:
    uses = list(node.output.uses)
    return len(uses) == 1 and uses[0].node.kind == "add"


def _leaves(node: Node) -> list[Node] | None:
    """The unslices that a tree of sums adds up; None where it adds anything else."""
    found: list[Node] = []
    todo = list(node.inputs)
    while todo:
        inner = todo.pop().node
        if inner is None or len(inner.outputs) != 1 or len(inner.output.uses) != 1:
            return None
        if inner.kind == "add":
            todo += inner.inputs
        elif inner.kind == "unslice" and _is_plain(inner):
            found.append(inner)
        else:
            return None
    return found


def _place(node: Node) -> tuple[int, int, int]:
    dim, start, stop = (node.attrs[k] for k in ("dim", "start", "stop"))
    assert isinstance(dim, int) and isinstance(start, int) and isinstance(stop, int)
    return dim, start, stop


