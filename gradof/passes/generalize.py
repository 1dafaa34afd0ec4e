"""Two graphs of one function, traced for two lengths, as one graph for any.

    a: %y : f64[20] = slice[dim=0, start=1, stop=21, step=1](%x)      # of 21 numbers
    b: %y : f64[29] = slice[dim=0, start=1, stop=30, step=1](%x)      # of 30
    generalized(a, b, {"n": (21, 30)})     f64[n-1] = slice[..., stop=n](%x), with both examples

Sizes, and whole numbers among attributes, that differ are n, a multiple of it, or c+n or c-n of a
symbol (`gradof.ir.extent`); anything else makes the two graphs two (`Unsized`). What an op says of
its operands is asked again of the extents, so that it is a condition; and a place that moves with
the steps of a Loop is to be within its array, at the first and at the last step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gradof.errors import InferenceError
from gradof.ir.attrs import Dense, same_attr
from gradof.ir.clone import clone_graph
from gradof.ir.core import Block, Graph, Node, Value
from gradof.ir.extent import Amount, Extent, Form, Lengths, Unsized
from gradof.ir.loop import Loop, is_loop, loop_types
from gradof.ir.opinfo import OPS
from gradof.ir.types import TensorType, Type
from gradof.passes.unroll_loops import whole_number

Symbols = Mapping[str, tuple[int, int]]  # by name: the length of the first graph, of the second
_DYNAMIC = frozenset({"dynamic_slice", "dynamic_slice_scatter", "dynamic_unslice"})


def generalized(a: Graph, b: Graph, symbols: Symbols) -> tuple[Graph, Graph]:
    """The graph for any length, by the example of each of the two; or Unsized."""
    first, second = (Lengths({name: pair[k] for name, pair in symbols.items()}) for k in (0, 1))
    made = _Pair(a, b, symbols, (first, second)).graphs()
    for graph in made:
        _check(graph.block)
    return made


class _Pair:
    def __init__(
        self, a: Graph, b: Graph, symbols: Symbols, lengths: tuple[Lengths, Lengths]
    ) -> None:
        self.sources, self.symbols, self.lengths = (a, b), symbols, lengths
        self.maps: tuple[dict[Value, Value], dict[Value, Value]] = {}, {}
        self.pairs: dict[Value, Value] = {}

    def graphs(self) -> tuple[Graph, Graph]:
        made = []
        for source in self.sources:
            graph = Graph(source.name)
            graph.nan_safe, graph.small_kernels = source.nan_safe, source.small_kernels
            graph.whole = source.whole
            made.append(graph)
        a, b = self.sources
        if a.whole is not b.whole or a.small_kernels is not b.small_kernels:
            raise Unsized("what is worth a function")
        self.params(a.block, b.block, made[0].block, made[1].block)
        self.body(a.block, b.block, made[0].block, made[1].block)
        return made[0], made[1]

    def params(self, a: Block, b: Block, to_a: Block, to_b: Block) -> None:
        if len(a.params) != len(b.params):
            raise Unsized("other inputs")
        for x, y in zip(a.params, b.params, strict=True):
            types = self.types(x.type, y.type)
            self.pairs[x] = y
            self.maps[0][x] = to_a.add_param(types[0], x.hint)
            self.maps[1][y] = to_b.add_param(types[1], y.hint)

    def body(self, a: Block, b: Block, to_a: Block, to_b: Block) -> None:
        ours, theirs = list(a.nodes()), list(b.nodes())
        if len(ours) != len(theirs):
            raise Unsized("other ops")
        for x, y in zip(ours, theirs, strict=True):
            p, q = self.node(x, y)
            to_a.insert_before(to_a.returns, p)
            to_b.insert_before(to_b.returns, q)
        to_a.returns.set_inputs(self.operands(a.results, b.results, 0))
        to_b.returns.set_inputs(self.operands(a.results, b.results, 1))

    def operands(self, xs: Sequence[Value], ys: Sequence[Value], which: int) -> list[Value]:
        """The operands of one copy; both graphs must have the same."""
        if len(xs) != len(ys) or any(self.pairs[x] is not y for x, y in zip(xs, ys, strict=True)):
            raise Unsized("other operands")
        return [self.maps[which][v] for v in (xs, ys)[which]]

    def node(self, a: Node, b: Node) -> tuple[Node, Node]:
        if a.kind != b.kind or a.attrs.keys() != b.attrs.keys() or len(a.inputs) != len(b.inputs):
            raise Unsized(f"{a.kind} and {b.kind}")
        if len(a.blocks) != len(b.blocks) or len(a.outputs) != len(b.outputs):
            raise Unsized(f"another {a.kind}")
        attrs = {key: self.attr(a.attrs[key], b.attrs[key]) for key in a.attrs}
        copies = [
            Node(each.kind, self.operands(a.inputs, b.inputs, k),
                 {key: pair[k] for key, pair in attrs.items()}, each.loc)
            for k, each in enumerate((a, b))
        ]  # fmt: skip
        for x, y in zip(a.blocks, b.blocks, strict=True):
            p, q = (copy.add_block() for copy in copies)
            self.params(x, y, p, q)
            self.body(x, y, p, q)
        for out, other in zip(a.outputs, b.outputs, strict=True):
            types = self.types(out.type, other.type)
            self.pairs[out] = other
            self.maps[0][out] = copies[0].add_output(types[0], out.hint)
            self.maps[1][other] = copies[1].add_output(types[1], other.hint)
        return copies[0], copies[1]

    def types(self, a: Type, b: Type) -> tuple[Type, Type]:
        if not isinstance(a, TensorType) or not isinstance(b, TensorType):
            if a != b:
                raise Unsized(f"{a} and {b}")
            return a, b
        if (a.dtype, a.device) != (b.dtype, b.device) or a.shape is None or b.shape is None:
            raise Unsized(f"{a} and {b}")
        shapes = self.attr(a.shape, b.shape)
        return a.with_shape(shapes[0]), b.with_shape(shapes[1])

    def attr(self, a: Any, b: Any) -> tuple[Any, Any]:
        if type(a) is tuple and type(b) is tuple and len(a) == len(b):
            parts = [self.attr(x, y) for x, y in zip(a, b, strict=True)]
            return tuple(p for p, _ in parts), tuple(q for _, q in parts)
        if type(a) is int and type(b) is int and a != b:
            form = self.form(a, b)
            return self.lengths[0].of(form), self.lengths[1].of(form)
        if type(a) is float and type(b) is float and a != b and a.is_integer() and b.is_integer():
            form = self.form(int(a), int(b))
            return Amount(form, self.lengths[0]), Amount(form, self.lengths[1])
        if not (a == b if isinstance(a, Dense) else same_attr(a, b)):
            raise Unsized(f"{a!r} and {b!r}")
        return a, b

    def form(self, a: int, b: int) -> Form:
        """The one formula that gives both numbers."""
        found = set()
        for name, (p, q) in self.symbols.items():
            if p == q:
                continue
            if p and a * q == b * p and a % p == 0:
                found.add(Form(0, ((name, a // p),)))
            for sign in (1, -1):
                if b - a == sign * (q - p):
                    found.add(Form(a - sign * p, ((name, sign),)))
        if not found:
            raise Unsized(f"{a} and {b}")
        first, *others = sorted(found, key=str)
        for other in others:  # a call where they differ is another trace
            for lengths in self.lengths:
                lengths.compare(first.plus(other, -1), "eq")
        return first


def at_lengths(graph: Graph, values: Mapping[str, int]) -> Graph:
    """The graph of these lengths alone."""
    made = clone_graph(graph)
    for block in (made.block, *(b for node in made.walk() for b in node.blocks)):
        for value in (*block.params, *(v for node in block.nodes() for v in node.outputs)):
            value.type = _plain_type(value.type, values)
        for node in block.nodes():
            node.attrs = {key: plain(attr, values) for key, attr in node.attrs.items()}
    return made


def plain(attr: Any, values: Mapping[str, int]) -> Any:
    """An attribute, or a size, for these lengths."""
    if type(attr) is tuple:
        return tuple(plain(x, values) for x in attr)
    if isinstance(attr, Extent):
        return attr.form.value(values)
    return float(attr.form.value(values)) if isinstance(attr, Amount) else attr


def _plain_type(type_: Type, values: Mapping[str, int]) -> Type:
    if not isinstance(type_, TensorType) or type_.shape is None:
        return type_
    return type_.with_shape(plain(type_.shape, values))


# --- what must hold for any length ----------------------------------------------------------------


def _check(block: Block) -> None:
    """Ask each op again, of extents."""
    for node in block.nodes():
        if is_loop(node):
            _check(node.blocks[0])
            if Loop(node).count is not None or Loop(node).steps < 1:
                raise Unsized("steps that are counted")
            expected: Sequence[Type] = loop_types(node)
        elif node.kind in OPS:
            try:
                expected = OPS[node.kind].infer([v.type for v in node.inputs], node.attrs)
            except InferenceError as error:
                raise Unsized(error.message) from None
        else:
            raise Unsized(f"a {node.kind}")
        if [v.type for v in node.outputs] != list(expected):
            raise Unsized(f"a {node.kind} has another type")
        if any(n < 0 for v in node.outputs for n in _sizes(v.type)):
            raise Unsized(f"a {node.kind} has a size below zero")
        _check_places(node)


def _sizes(type_: Type) -> Sequence[int]:
    return type_.shape or () if isinstance(type_, TensorType) else ()


def _check_places(node: Node) -> None:
    """Slices are within their operand, at every step."""
    attrs: Any = node.attrs
    if node.kind == "slice":
        n = _sizes(node.inputs[0].type)[attrs["dim"]]
        if not (0 <= attrs["start"] <= attrs["stop"] <= n):
            raise Unsized("a slice that ends elsewhere")
    if node.kind not in _DYNAMIC:
        return
    before = 2 if node.kind == "dynamic_slice_scatter" else 1
    whole, part = _sizes(node.inputs[0].type), _sizes(node.output.type)
    if node.kind == "dynamic_slice_scatter":
        part = _sizes(node.inputs[1].type)
    elif node.kind == "dynamic_unslice":
        whole, part = part, whole
    for start, dim in zip(node.inputs[before:], attrs["dims"], strict=True):
        reach = _reach(start)
        if reach is None:
            if any(isinstance(n, Extent) for n in (whole[dim], part[dim])):
                raise Unsized("a place that is computed")
        elif reach[0] < 0 or reach[1] > whole[dim] - part[dim]:
            raise Unsized("a place that is outside")


def _reach(value: Value) -> tuple[int, int] | None:
    """The least and the largest that a place is; None where it is no formula of steps."""
    number = whole_number(value)
    if number is not None:
        return number, number
    node = value.node
    if node is None:
        return _reach_of_param(value)
    if node.kind not in ("add", "sub", "mul"):
        return None
    a, b = (_reach(v) for v in node.inputs)
    if a is None or b is None:
        return None
    if node.kind == "add":
        return a[0] + b[0], a[1] + b[1]
    if node.kind == "sub":
        return a[0] - b[1], a[1] - b[0]
    ends = [x * y for x in a for y in b]
    return min(ends), max(ends)


def _reach_of_param(value: Value) -> tuple[int, int] | None:
    owner = None if value.block is None else value.block.owner
    if not isinstance(owner, Node) or not is_loop(owner):
        return None
    loop = Loop(owner)
    if value is loop.index:
        return 0, loop.steps - 1
    for param, given in zip(loop.constant_params, loop.constants, strict=True):
        if value is param:
            return _reach(given)
    return None
