"""Slices move up through elementwise ops, and sums through concatenations, so that loops join.

    h = x + b; h[:, :n], h[:, n:]        →  x[:, :n] + b[:n], x[:, n:] + b[n:]
    sum(cat(a, b, dim=1), dim=0)         →  cat(sum(a), sum(b))

The gates of an LSTM, or of a gated unit, are slices of one product with its bias: what adds the
bias would be a loop of its own, whose result every gate reads again. No cell is computed twice:
the slices of a value do not overlap, and nothing else reads it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from gradof import tuning
from gradof.ir.attrs import Attr
from gradof.ir.builder import Builder
from gradof.ir.core import Graph, Node, Value
from gradof.ir.opinfo import has_trait
from gradof.ir.types import TensorType


def may_hoist(graph: Graph) -> bool:
    """Whether the graph has slices or sums that `hoist_slices` moves."""
    return any(_sliced(n) or _summed_cat(n) is not None for n in graph.nodes())


def hoist_slices(graph: Graph) -> bool:
    """Move slices up through elementwise ops, and sums through concatenations."""
    changed = False
    for node in reversed(list(graph.nodes())):
        slices = _sliced(node)
        if slices:
            for each in slices:
                _move_up(each, node)
            node.erase()
            changed = True
    for node in list(graph.nodes()):
        cat = _summed_cat(node)
        if cat is not None:
            _sum_parts(node, cat)
            changed = True
    return changed


# --- slices --------------------------------------------------------------------------------------


def _sliced(node: Node) -> list[Node]:
    """The slices that are all that reads a large elementwise result, if they do not overlap."""
    if not has_trait(node.kind, "elementwise") or len(node.outputs) != 1:
        return []
    type_ = node.output.type
    if not isinstance(type_, TensorType) or type_.shape is None or type_.size < tuning.KERNEL_CELLS:
        return []
    users = [use.node for use in node.output.uses]
    if not users or any(u.kind != "slice" or u.attrs["step"] != 1 for u in users):
        return []
    if len({u.attrs["dim"] for u in users}) > 1:
        return []
    ranges = sorted(_range(u) for u in users)
    if any(low == high for low, high in ranges):
        return []  # of a dim of size 1 there would be nothing left that is empty
    apart = all(a[1] <= b[0] for a, b in itertools.pairwise(ranges))
    return users if apart else []


def _range(node: Node) -> tuple[int, int]:
    start, stop = node.attrs["start"], node.attrs["stop"]
    assert isinstance(start, int) and isinstance(stop, int)
    return start, stop


def _move_up(part: Node, node: Node) -> None:
    """A slice of an elementwise op as the op of slices."""
    assert part.block is not None
    builder = Builder(part.block, part, node.loc)
    operands = [_part_of(value, part, node.output, builder) for value in node.inputs]
    result = builder.emit(node.kind, *operands, **node.attrs)
    result.hint = part.output.hint
    part.output.replace_all_uses_with(result)
    part.erase()


def _part_of(value: Value, part: Node, whole: Value, builder: Builder) -> Value:
    """The cells of an operand that a slice of the result needs."""
    shape, full = value.shape or (), whole.shape or ()
    dim = part.attrs["dim"]
    assert isinstance(dim, int)
    mine = dim - (len(full) - len(shape))
    if mine < 0 or shape[mine] == 1:  # it has one cell there, for every one of the result
        return value
    where: dict[str, Attr] = {name: part.attrs[name] for name in ("start", "stop", "step")}
    return builder.emit("slice", value, dim=mine, **where)


# --- sums ----------------------------------------------------------------------------------------


def _summed_cat(node: Node) -> Node | None:
    """The concatenation of large arrays that a sum over other dims reads."""
    cat = node.inputs[0].node if node.kind == "sum" else None
    if cat is None or cat.kind != "cat" or not all(_is_large(v) for v in cat.inputs):
        return None
    dims = node.attrs["dims"]
    assert isinstance(dims, tuple)
    return None if cat.attrs["dim"] in dims else cat


def _is_large(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.size >= tuning.KERNEL_CELLS


def _sum_parts(node: Node, cat: Node) -> None:
    """The sum of a concatenation as the concatenation of sums."""
    assert node.block is not None
    builder = Builder(node.block, node, node.loc)
    parts = [builder.emit("sum", value, **node.attrs) for value in cat.inputs]
    dim = cat.attrs["dim"]
    if not node.attrs["keepdims"]:
        dim = sum(1 for d in _kept(node) if isinstance(dim, int) and d < dim)
    result = builder.emit("cat", *parts, dim=dim)
    result.hint = node.output.hint
    node.output.replace_all_uses_with(result)
    node.erase()


def _kept(node: Node) -> Iterator[int]:
    dims = node.attrs["dims"]
    assert isinstance(dims, tuple)
    return (d for d in range(len(node.inputs[0].shape or ())) if d not in dims)
