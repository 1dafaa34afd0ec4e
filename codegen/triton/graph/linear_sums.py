"""Sums over long rows as sums over parts of them, none of which waits for another one.

    sum[dims=(1, 2)](%g * %w * (%x - %m))   →   sum[dims=(1,)](%w * sum[dims=(2,)](%g * (%x - %m)))
    sum[dims=(1, 2)](%a + %b)               →   sum[dims=(1, 2)](%a) + sum[dims=(1, 2)](%b)
    sum[dims=(0, 2)]((%x - %m) ** 2)
          →   sum[dims=(0,)](sum[dims=(2,)]((%x - %p) ** 2)
                       + (%p - %m) * (2 * sum[dims=(2,)](%x - %p) + n * (%p - %m)))   of means %p

A row that no program can hold is read once more for each sum that waits for one. So what is small,
as a weight, a mean or a sum is, leaves the sum as a factor. What is summed are products of large
operands, and of their distances from a mean: those of a norm's gradient are made in one pass, equal
ones once. A distance stays whole, since sums of its two sides would cancel. The third line holds
for every m and p; the means of its inner rows, which are short enough to be held, leave little to
add (Chan, Golub, LeVeque), but their rounding shows where a mean is large.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from gradof import tuning
from gradof.codegen.triton.graph.one_hot import shape_of
from gradof.codegen.triton.ops import HALF
from gradof.ir.builder import Builder
from gradof.ir.core import Graph, Node, Value
from gradof.ir.types import TensorType

Dims = tuple[int, ...]


@dataclass
class _Term:
    """A product: large operands, and small ones that are multiplied, or divided by."""

    large: list[Value]
    times: list[Value] = field(default_factory=list)
    over: list[Value] = field(default_factory=list)
    negative: bool = False

    @property
    def small(self) -> list[Value]:
        return [*self.times, *self.over]

    @property
    def distance(self) -> Node | None:
        """Of a square of x - m: that difference."""
        first = self.large[0].node
        same = len(self.large) == 2 and self.large[0] is self.large[1]
        return first if same and first is not None and first.kind == "sub" else None


def split_linear_sums(graph: Graph) -> None:
    """Take small factors and terms out of sums over rows that are too long to be held."""
    means: dict[tuple[Value, Dims], Dims] = {}
    nodes = list(graph.nodes())
    for node in nodes:
        if node.kind == "sum" and (found := _terms_of(node)) is not None:
            inner = _inner(node, found)
            distance = found[0].distance if len(found) == 1 and not found[0].small else None
            if distance is not None:
                inner = _held(node, distance, inner)
                if inner:
                    means[distance.inputs[0], _dims(node)] = inner
            elif len(found) == 1 and not found[0].small:
                continue
            if _cells(shape_of(node.inputs[0]), inner) >= tuning.SPLIT_CELLS:
                _Sum(node, inner, nodes).run(found)
    for node in nodes:
        if node.block is None:
            continue
        parts = means.get((node.inputs[0], _dims(node))) if node.kind == "sum" else None
        if parts is not None and _dims(node) != parts:
            _Sum(node, parts, nodes).run([_Term([node.inputs[0]])])


def _dims(node: Node) -> Dims:
    dims = node.attrs["dims"]
    assert isinstance(dims, tuple)
    return tuple(d for d in dims if isinstance(d, int))


def _cells(shape: Dims, dims: Dims) -> int:
    return math.prod(shape[d] for d in dims) if dims else 0


def _terms_of(node: Node) -> list[_Term] | None:
    """What is summed; None where rows can be held, or where it is not as simple."""
    value = node.inputs[0]
    whole = shape_of(value)
    type_ = value.type
    if not isinstance(type_, TensorType) or not type_.dtype.is_float or type_.dtype in HALF:
        return None
    if 0 in whole or _cells(whole, _dims(node)) <= tuning.ROW_BLOCK:
        return None
    found = _terms(value, whole)
    if len(found) > tuning.SUMMED_TERMS:
        return None
    for term in found:
        shapes = [shape_of(v) for v in term.large]
        fits = all(s == () or len(s) == len(whole) for s in map(shape_of, term.small))
        if not term.large or not fits or whole not in shapes:
            return None
    return found


def _terms(value: Value, whole: Dims) -> list[_Term]:
    node = value.node
    if node is not None and node.kind in ("add", "sub", "mul", "div", "neg", "square"):
        small = [_is_small(v, whole) for v in node.inputs]
        if node.kind in ("add", "sub") and not any(small):
            left, right = (_terms(v, whole) for v in node.inputs)
            for term in right if node.kind == "sub" else []:
                term.negative = not term.negative
            return [*left, *right]
        if node.kind == "neg":
            found = _terms(node.inputs[0], whole)
            for term in found:
                term.negative = not term.negative
            return found
        if node.kind == "mul" and any(small) and not all(small):
            found = _terms(node.inputs[small.index(False)], whole)
            for term in found:
                term.times.append(node.inputs[small.index(True)])
            return found
        if node.kind == "div" and small == [False, True]:
            found = _terms(node.inputs[0], whole)
            for term in found:
                term.over.append(node.inputs[1])
            return found
        if node.kind == "mul" and not any(small):
            left, right = (_terms(v, whole) for v in node.inputs)
            if len(left) == len(right) == 1:
                a, b = left[0], right[0]
                return [_Term([*a.large, *b.large], [*a.times, *b.times], [*a.over, *b.over],
                              a.negative != b.negative)]  # fmt: skip
        if node.kind == "square":
            return [_Term([node.inputs[0]] * 2)]
    return [_Term([value])]


def _is_small(value: Value, whole: Dims) -> bool:
    return math.prod(shape_of(value)) * tuning.SPLIT_CELLS <= math.prod(whole)


def _inner(node: Node, found: list[_Term]) -> Dims:
    """The dims along which nothing small varies."""
    small = [shape_of(v) for term in found for v in term.small]
    return tuple(d for d in _dims(node) if all(s == () or s[d] == 1 for s in small))


def _held(node: Node, distance: Node, inner: Dims) -> Dims:
    """Of a square, the last dims that make a row which can be held; () where there is no gain."""
    x, m = distance.inputs
    whole = shape_of(node.inputs[0])
    small = shape_of(m)
    if shape_of(x) != whole or not _is_small(m, whole):
        return ()
    inner = tuple(d for d in inner if small == () or small[d - len(whole) + len(small)] == 1)
    while inner and _cells(whole, inner) > tuning.ROW_BLOCK:
        inner = inner[1:]
    return inner


class _Sum:
    """A sum in two steps: over `inner` of what is large, then over the other dims.

    The first step stands as early among the `nodes` as it can, where loops find it that read the
    same operands.
    """

    def __init__(self, node: Node, inner: Dims, nodes: list[Node]) -> None:
        assert node.block is not None
        self.node, self.inner, self.nodes = node, inner, nodes
        self.outer = tuple(d for d in _dims(node) if d not in inner)
        self.builder = Builder(node.block, node, node.loc)

    def run(self, found: list[_Term]) -> None:
        total: Value | None = None
        for term in found:
            value = self.of(term)
            if total is None:
                total = self.emit("neg", value) if term.negative else value
            else:
                total = self.emit("sub" if term.negative else "add", total, value)
        assert total is not None
        total = self.emit_like("reshape", total, shape=shape_of(self.node.output))
        total.hint = self.node.output.hint
        self.node.output.replace_all_uses_with(total)
        self.node.erase()

    def of(self, term: _Term) -> Value:
        distance = term.distance
        part = self.square(distance) if distance is not None and not term.small else None
        if part is None:
            early = self.early(term.large)
            first, *others = sorted(term.large, key=_is_distance)
            for value in others:
                first = early.emit("mul", first, value)
            part = early.emit("sum", first, dims=self.inner, keepdims=True)
        waiting = [v for v in term.times if self.varies(v)]
        divisors = [v for v in term.over if self.varies(v)]
        for value in waiting:
            part = self.emit("mul", part, value)
        for value in divisors:
            part = self.emit("div", part, value)
        part = self.sum(part, self.outer)
        for value in (v for v in term.times if v not in waiting):
            part = self.emit("mul", part, value)
        for value in (v for v in term.over if v not in divisors):
            part = self.emit("div", part, value)
        return part

    def early(self, values: list[Value]) -> Builder:
        """A builder behind the values."""
        made = {v.node for v in values if v.node is not None}
        left = iter(self.nodes)
        while made:
            made.discard(next(left))
        place = next(n for n in left if n.block is not None)
        assert place.block is not None
        return Builder(place.block, place, self.node.loc)

    def square(self, distance: Node) -> Value:
        """The third line of the module docstring, but for the outer sum."""
        x, m = distance.inputs
        n = float(_cells(shape_of(x), self.inner))
        mean = self.emit("div", self.sum(x, self.inner), self.number(n))
        near = self.emit("sub", x, mean)
        off = self.emit("sub", mean, m)
        squares = self.sum(self.emit("mul", near, near), self.inner)
        twice = self.emit("mul", self.sum(near, self.inner), self.number(2.0))
        more = self.emit("add", twice, self.emit("mul", off, self.number(n)))
        return self.emit("add", squares, self.emit("mul", off, more))

    def varies(self, value: Value) -> bool:
        """Whether a small operand varies along the dims that are summed last."""
        shape = shape_of(value)
        return shape != () and any(shape[d] != 1 for d in self.outer)

    def sum(self, value: Value, dims: Dims) -> Value:
        return self.builder.emit("sum", value, dims=dims, keepdims=True) if dims else value

    def number(self, n: float) -> Value:
        return self.builder.emit("Constant", value=n)

    def emit(self, kind: str, *operands: Value) -> Value:
        return self.builder.emit(kind, *operands)

    def emit_like(self, kind: str, value: Value, shape: Dims) -> Value:
        return value if shape_of(value) == shape else self.builder.emit(kind, value, shape=shape)


def _is_distance(value: Value) -> bool:
    return value.node is not None and value.node.kind == "sub"
