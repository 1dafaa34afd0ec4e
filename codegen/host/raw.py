"""Raw and held bfloat16 in a graph that is to be emitted (Note [Half precision] in `half`).

Given   graph f(%x : bf16[n]):  %h = mm(%x, %x);  %y = FusionGroup(%h, %x);  return (%y)
for a torch caller the result is
        graph f(%x : u16[n]):   %x_f32 : bf16[n] = WidenBF16(%x)
                                %h : bf16[n] = mm(%x_f32, %x_f32)
                                %h_bf16 : u16[n] = NarrowBF16(%h)
                                %y : u16[n] = FusionGroup(%h_bf16, %x);  return (%y)

What is raw has the type of its bits, so that the buffer plan never writes float32 into it. Every
value is widened and narrowed once at most, and only where something reads it so. A result that is
read raw alone is rounded as it is narrowed (`unrounded`). Views are taken of either. Where torch
multiplies bfloat16 well, products read and write raw arrays, too (`half_products`).
"""

from __future__ import annotations

from typing import NamedTuple

from gradof.ir.clone import clone_node
from gradof.ir.core import Graph, Node, Value
from gradof.ir.opinfo import has_trait
from gradof.ir.types import BF16, TensorType, Type, dtype

WIDEN, NARROW = "WidenBF16", "NarrowBF16"
CONVERSIONS = {WIDEN: "widen_bf16", NARROW: "narrow_bf16"}
MOVES = frozenset({"cat", "unslice"})  # numbers as they are, and zeros
_BITS = dtype("u16")


class RawGraph(NamedTuple):
    """A graph whose raw values have the types of their bits.

    `unrounded` values are only narrowed; `products` are the nodes that are to multiply raw arrays.
    """

    graph: Graph
    unrounded: frozenset[Value] = frozenset()
    products: frozenset[Node] = frozenset()


def with_raw(graph: Graph, border: bool, products: frozenset[str] = frozenset()) -> RawGraph:
    """The graph with conversions; itself if it needs none.

    `border` says that inputs and outputs are raw; else they are held. `products` are the kinds of
    nodes that read and write raw arrays as kernels do.
    """
    ends = [*graph.inputs, *graph.outputs] if border else []
    for node in graph.nodes():
        if node.kind == "FusionGroup" or node.kind in products:
            ends += [*node.inputs, *node.outputs]
    if not any(map(_is_bf16, ends)):
        return RawGraph(graph)
    return _Rebuild(graph, border, products).run()


class _Rebuild:
    def __init__(self, graph: Graph, border: bool, products: frozenset[str]) -> None:
        self.source = graph
        self.border = border
        self.kinds = products
        self.products: set[Node] = set()
        self.graph = Graph(graph.name)
        self.raw: dict[Value, Value] = {}
        self.held: dict[Value, Value] = {}  # and what is no bfloat16
        self.views: dict[Value, Node] = {}
        self.unrounded: set[Value] = set()

    def run(self) -> RawGraph:
        for param in self.source.inputs:
            raw = self.border and _is_bf16(param)
            type_ = _bits_of(param.type) if raw else param.type
            (self.raw if raw else self.held)[param] = self.graph.block.add_param(type_, param.hint)
        for node in self.source.nodes():
            if self.is_raw(node):
                self.kernel(node)
            elif _is_view(node):
                self.views[node.output] = node  # taken where it is read
            else:
                self.plain(node)
        results = [self.at_border(v) for v in self.source.outputs]
        self.graph.set_outputs(results)
        return RawGraph(self.graph, frozenset(self.unrounded), frozenset(self.products))

    def at_border(self, value: Value) -> Value:
        return self.raw_of(value) if self.border and _is_bf16(value) else self.held_of(value)

    def is_raw(self, node: Node) -> bool:
        """Whether a node reads and writes raw arrays."""
        if node.kind in self.kinds or (self.border and node.kind in MOVES):
            return all(map(_is_bf16, (*node.inputs, *node.outputs)))
        return node.kind == "FusionGroup"

    def kernel(self, node: Node) -> None:
        mapping = {v: self.raw_of(v) if _is_bf16(v) else self.held_of(v) for v in node.inputs}
        copy = self.graph.block.append(clone_node(node, mapping))
        for old, new in zip(node.outputs, copy.outputs, strict=True):
            if _is_bf16(old):
                new.type = _bits_of(old.type)
            (self.raw if _is_bf16(old) else self.held)[old] = new
        if node.kind in self.kinds:
            self.products.add(copy)

    def plain(self, node: Node) -> None:
        mapping = {v: self.held_of(v) for v in node.inputs}
        copy = self.graph.block.append(clone_node(node, mapping))
        self.held.update(zip(node.outputs, copy.outputs, strict=True))
        for out in node.outputs:
            if _is_bf16(out) and self.is_read_raw(out):
                self.unrounded.add(self.held[out])
                self.raw_of(out)

    def is_read_raw(self, value: Value) -> bool:
        """Whether all that reads a value reads it raw."""
        return value.has_uses and all(
            self.border if use.node is self.source.block.returns
            else self.is_read_raw(use.node.output) if _is_view(use.node)
            else self.is_raw(use.node)
            for use in value.uses
        )  # fmt: skip

    def raw_of(self, value: Value) -> Value:
        if value not in self.raw:
            node = self.views.get(value)
            if node is not None and (self.has_raw(node.inputs[0]) or not _is_part(node)):
                self.raw[value] = self.view(node, self.raw_of(node.inputs[0]))
                self.raw[value].type = _bits_of(value.type)
            else:
                self.raw[value] = self.convert(NARROW, self.held_of(value), _bits_of(value.type))
        return self.raw[value]

    def has_raw(self, value: Value) -> bool:
        while value not in self.raw and value in self.views:
            value = self.views[value].inputs[0]
        return value in self.raw

    def held_of(self, value: Value) -> Value:
        if value not in self.held:
            node = self.views.get(value)
            if node is not None and (
                node.inputs[0] in self.held or not self.has_raw(value) or not _is_part(node)
            ):
                self.held[value] = self.view(node, self.held_of(node.inputs[0]))
            else:
                self.held[value] = self.convert(WIDEN, self.raw_of(value), value.type)
        return self.held[value]

    def view(self, node: Node, of: Value) -> Value:
        mapping = {v: self.held_of(v) for v in node.inputs[1:]}
        mapping[node.inputs[0]] = of
        return self.graph.block.append(clone_node(node, mapping)).output

    def convert(self, kind: str, value: Value, type_: Type) -> Value:
        loc = value.node.loc if value.node is not None else None
        node = Node(kind, [value], loc=loc)
        hint = f"{value.hint}_{'f32' if kind == WIDEN else 'bf16'}" if value.hint else None
        node.add_output(type_, hint)
        return self.graph.block.append(node).output


def _is_bf16(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype == BF16


def _is_view(node: Node) -> bool:
    return has_trait(node.kind, "view") and _is_bf16(node.inputs[0]) and _is_bf16(node.output)


def _is_part(node: Node) -> bool:
    """Whether a view has fewer elements than its operand, so that it is converted by itself."""
    whole, part = node.inputs[0].type, node.output.type
    assert isinstance(whole, TensorType) and isinstance(part, TensorType)
    return whole.shape is None or part.shape is None or part.size < whole.size


def _bits_of(type_: Type) -> Type:
    assert isinstance(type_, TensorType)
    return type_.with_dtype(_BITS)
