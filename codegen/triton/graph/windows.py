"""Concatenations, and slices set into something, as part of the loops that make or read them.

    cat(-a, b) * c          → where(position < len(a), -pad(a), pad(b)) * c
    unslice(d * e) + g      → where(inside, pad(d) * pad(e), 0) + g

A `pad` of what is in memory is a masked load (Note [Windows] in
`gradof.codegen.fusion.iteration_space`), so nothing is written that is only put together
afterwards. What a part is computed by is computed for every position, and kept where the part is.
So parts that take long, and many parts, are left as they are; and so is what neither comes of a
loop nor is read by one, which is torch's to copy. Equal parts that no loop reads again stay a
`cat`, too: the loop that makes them stores each in its place.
"""

from __future__ import annotations

from collections.abc import Sequence

from gradof import tuning
from gradof.codegen.fusion.access import pads_of, renames_axes
from gradof.codegen.fusion.iteration_space import REDUCTIONS
from gradof.codegen.triton.graph.one_hot import is_cells, shape_of
from gradof.ir.builder import Builder
from gradof.ir.core import Graph, Node, Value
from gradof.ir.types import BF16, BOOL, F16, F32, F64, I32, I64, TensorType
from gradof.ops.cost import is_expensive

_DTYPES = (F32, F64, F16, BF16, I32, I64, BOOL)
_Range = tuple[int, int]


def put_into_loops(graph: Graph) -> None:
    """Rewrite every `cat`, `unslice`, `slice_scatter` and `pad` that a loop makes or reads."""
    for node in list(graph.nodes()):
        if node.kind in _PARTS and _is_for_loops(node) and not _is_stored_by_one_loop(node):
            made = _Parts(node).run()
            if made is not None:
                made.hint = node.output.hint
                node.output.replace_all_uses_with(made)
                node.erase()


def _parts_of_cat(node: Node) -> list[tuple[Value, int, _Range]]:
    dim, at, found = node.attrs["dim"], 0, []
    assert isinstance(dim, int)
    for value in node.inputs:
        n = shape_of(value)[dim]
        found.append((value, dim, (at, at + n)))
        at += n
    return found


def _slice(node: Node) -> list[tuple[Value, int, _Range]]:
    dim, start, stop, step = (node.attrs[k] for k in ("dim", "start", "stop", "step"))
    assert isinstance(dim, int) and isinstance(start, int) and isinstance(stop, int)
    return [(node.inputs[-1], dim, (start, stop))] if step == 1 else []


def _inside(node: Node) -> list[tuple[Value, int, _Range]]:
    padded = [(k, p) for k, p in enumerate(pads_of(node)) if p != (0, 0)]
    if len(padded) != 1:
        return []
    dim, (low, high) = padded[0]
    if min(low, high) < 0:
        return []
    return [(node.inputs[0], dim, (low, low + shape_of(node.inputs[0])[dim]))]


# Per kind: its parts, each with the dim and the positions that it has.
_PARTS = {"cat": _parts_of_cat, "unslice": _slice, "slice_scatter": _slice, "pad": _inside}


def _is_for_loops(node: Node) -> bool:
    """Whether a loop makes a part or reads the whole."""
    whole = node.output.type
    if not isinstance(whole, TensorType) or whole.dtype not in _DTYPES or not whole.shape:
        return False
    if 0 in whole.shape or any(0 in shape_of(v) for v in node.inputs):
        return False
    return _is_read_by_loops(node.output) or any(_is_above(v) for v in node.inputs)


def _is_read_by_loops(value: Value) -> bool:
    users = [use.node for use in value.uses]
    return any(
        is_cells(u) or u.kind in REDUCTIONS or (renames_axes(u) and _is_read_by_loops(u.output))
        for u in users
    )  # fmt: skip


def _is_above(value: Value) -> bool:
    """Whether a loop computes a value, and nothing else but loops read it."""
    node = value.node
    if node is None or not is_cells(node):
        return False
    return all(is_cells(u.node) or u.node.kind in _PARTS for u in value.uses)


def _is_stored_by_one_loop(node: Node) -> bool:
    """Whether it is a `cat` of equal parts, all made of the same cells, that no loop reads."""
    if node.kind != "cat" or _is_read_by_loops(node.output):
        return False
    return len({shape_of(v) for v in node.inputs}) == 1 and all(map(_is_above, node.inputs))


class _Parts:
    def __init__(self, node: Node) -> None:
        self.node = node
        self.whole = shape_of(node.output)
        assert node.block is not None
        self.builder = Builder(node.block, node, node.loc)
        self.ops: list[str] = []

    def run(self) -> Value | None:
        """The value put together; None where that would take long."""
        parts = _PARTS[self.node.kind](self.node)
        if not parts or len(parts) > tuning.WINDOW_PARTS:
            return None
        for value, _, _ in parts:
            self.count(value)
        calls = sum(is_expensive(op) for op in self.ops)
        if len(self.ops) > tuning.WINDOW_OPS or calls > tuning.WINDOW_CALLS:
            return None
        if self.node.kind == "cat":
            return self.cat(parts)
        ((value, dim, place),) = parts
        if self.node.kind == "slice_scatter":
            return self.chosen(dim, place, self.of(value, dim, place, {}), self.node.inputs[0])
        outside = self.node.attrs.get("value", 0)
        assert isinstance(outside, (bool, int, float))
        if not _is_above(value):
            return self.padded(value, dim, place, outside)
        other = self.full(outside)
        return self.chosen(dim, place, self.of(value, dim, place, {}), other)

    def count(self, value: Value) -> None:
        if _is_above(value):
            assert value.node is not None
            self.ops.append(value.node.kind)
            for v in value.node.inputs:
                self.count(v)

    def cat(self, parts: Sequence[tuple[Value, int, _Range]]) -> Value:
        *others, (value, dim, place) = parts
        made = self.of(value, dim, place, {})
        for value, dim, place in reversed(others):
            mine = self.of(value, dim, place, {})
            made = self.chosen(dim, (0, place[1]), mine, made)
        return made

    def chosen(self, dim: int, place: _Range, inside: Value, outside: Value) -> Value:
        shape = tuple(n if k == dim else 1 for k, n in enumerate(self.whole))
        type_ = self.node.output.type
        assert isinstance(type_, TensorType)
        mask = self.builder.emit(
            "within", shape=shape, dim=dim, start=place[0], stop=place[1], device=type_.device
        )
        return self.builder.emit("where", mask, inside, outside)

    def full(self, number: bool | int | float) -> Value:
        type_ = self.node.output.type
        assert isinstance(type_, TensorType)
        number = float(number) if type_.dtype.is_float else number
        return self.builder.emit("full", dtype=type_.dtype, shape=self.whole, value=number,
                                 device=type_.device)  # fmt: skip

    def of(self, value: Value, dim: int, place: _Range, made: dict[Value, Value]) -> Value:
        """A part at every position of the whole; what it has where it is not does not matter."""
        back = len(self.whole) - dim  # from the last dim
        mine = len(shape_of(value)) - back
        if not isinstance(value.type, TensorType) or mine < 0:
            return value
        if shape_of(value)[mine] != place[1] - place[0]:
            return value  # one for all positions
        if value not in made:
            if _is_above(value):
                assert value.node is not None
                operands = [self.of(v, dim, place, made) for v in value.node.inputs]
                made[value] = self.builder.emit(value.node.kind, *operands, **value.node.attrs)
            else:
                made[value] = self.leaf(value, mine, place)
        return made[value]

    def leaf(self, value: Value, dim: int, place: _Range) -> Value:
        """What is in memory, or made of numbers, at every position of the whole."""
        node, shape = value.node, shape_of(value)
        n = self.whole[dim + len(self.whole) - len(shape)]
        if node is None or node.kind not in ("full", "within", "pad"):
            return self.padded(value, dim, place, 0)
        attrs = dict(node.attrs)
        if node.kind == "within" and attrs["dim"] != dim:
            return value  # one for all positions
        if node.kind == "pad":
            attrs["pads"] = tuple(
                (a + place[0], b + n - place[1]) if k == dim else (a, b)
                for k, (a, b) in enumerate(pads_of(node))
            )
            return self.builder.emit("pad", node.inputs[0], **attrs)
        attrs["shape"] = tuple(n if k == dim else size for k, size in enumerate(shape))
        if node.kind == "within":
            for name in ("start", "stop"):
                at = attrs[name]
                assert isinstance(at, int)
                attrs[name] = at + place[0]
        return self.builder.emit(node.kind, **attrs)

    def padded(self, value: Value, dim: int, place: _Range, number: bool | int | float) -> Value:
        n = self.whole[dim + len(self.whole) - len(shape_of(value))]
        if place == (0, n):
            return value
        pads = tuple(
            (place[0], n - place[1]) if k == dim else (0, 0) for k in range(len(shape_of(value)))
        )
        return self.builder.emit("pad", value, pads=pads, value=number)
