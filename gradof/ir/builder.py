"""Emitting nodes at an insert point, with inferred types.

>>> g = Graph("f"); x = g.block.add_param(TensorType(F32, (3,)), "x")
>>> b = Builder(g.block)
>>> y = b.emit("mul", x, b.constant(2.0))
>>> g.set_outputs([y]); print(g)
graph f(%x : f32[3]):
  %0 : float = Constant[value=2.0]()
  %1 : f32[3] = mul(%x, %0)
  return (%1)
"""

from __future__ import annotations

from gradof.errors import InferenceError
from gradof.ir.attrs import Attr, Dense
from gradof.ir.core import Block, Loc, Node, Value
from gradof.ir.opinfo import lookup


class Builder:
    """Inserts nodes before `anchor` (default: at the end of `block`). `loc` is stamped on each."""

    def __init__(self, block: Block, anchor: Node | None = None, loc: Loc | None = None) -> None:
        self.block = block
        self.anchor = block.returns if anchor is None else anchor
        self.loc = loc

    def emit_node(self, kind: str, *inputs: Value, **attrs: Attr) -> Node:
        """Insert a node of a registered op; raises InferenceError for operands that do not fit."""
        try:
            types = lookup(kind).infer([v.type for v in inputs], attrs)
        except InferenceError as error:
            if error.loc is not None or self.loc is None:
                raise
            raise InferenceError(error.message, loc=self.loc, hint=error.hint) from None
        node = Node(kind, inputs, attrs, self.loc)
        for type_ in types:
            node.add_output(type_)
        self.block.insert_before(self.anchor, node)
        return node

    def emit(self, kind: str, *inputs: Value, **attrs: Attr) -> Value:
        """`emit_node` for an op with one output; returns that output."""
        return self.emit_node(kind, *inputs, **attrs).output

    def constant(self, value: bool | int | float | complex | Dense) -> Value:
        """A weak scalar, or a dense tensor, constant."""
        return self.emit("Constant", value=value)
