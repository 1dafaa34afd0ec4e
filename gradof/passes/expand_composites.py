"""Inlining composites into the primitives they stand for.

    Given   %y = softmax[dim=1](%x)
    Result  %m = amax(%x) ... %y = div(%e, %s)

An expansion of f16 or bf16 operands runs in f32 and is rounded once, at its end, as torch's own
kernels do: x * x overflows in f16 where the norm of x does not.

A composite that has a gradient of its own (softmax) is left for the reverse transform to see, which
inlines it afterwards: `with_rules=False`.

The result takes the composite's name hint; all new nodes take the user's line.
"""

from __future__ import annotations

from collections.abc import Iterator

from gradof.errors import InferenceError
from gradof.ir.builder import Builder
from gradof.ir.core import Block, Graph, Node
from gradof.ir.opinfo import OPS
from gradof.ir.types import BF16, F16, F32, TensorType, Type
from gradof.ops.expr import Emitter, Expansion, Expr
from gradof.ops.registry import Op


def expand_composites(graph: Graph, with_rules: bool = True) -> bool:
    """Inline every composite, nested blocks included, until none is left; returns changed?

    Those that have a gradient of their own only `with_rules`.
    """
    return expand_composites_in(graph.block, with_rules)


def expand_composites_in(block: Block, with_rules: bool = True) -> bool:
    """The same for one block."""
    changed = False
    for node in block.nodes():
        for inner in node.blocks:
            changed |= expand_composites_in(inner, with_rules)
        changed |= expand_one(node, with_rules)
    return changed


def expand_one(node: Node, with_rules: bool = True) -> bool:
    """The same for one node."""
    record = _composite(node, with_rules)
    if record is not None:
        _expand(node, record, with_rules)
    return record is not None


def _composite(node: Node, with_rules: bool) -> Op | None:
    """The record of a node that is to be inlined."""
    record = OPS.get(node.kind)
    if not isinstance(record, Op) or not record.is_composite:
        return None
    return record if with_rules or not record.vjp else None


def _is_half(type_: Type) -> bool:
    return isinstance(type_, TensorType) and type_.dtype in (F16, BF16)


def _widened(operand: Expr) -> Expr:
    """The operand in float32 where it has half precision; see the module docstring."""
    return operand.cast(F32) if _is_half(operand.value.type) else operand


def inline(node: Node, expand: Expansion) -> list[Node] | None:
    """Replace a node by what `expand` makes of its operands; returns the new nodes.

    None, and nothing is replaced, where it makes None of them.
    """
    assert node.block is not None
    before = node._prev
    emitter = Emitter(Builder(node.block, node, node.loc))
    operands = [_widened(emitter.wrap(v)) for v in node.inputs]
    result = expand(*operands, **node.attrs)
    if result is None:
        return None
    results: tuple[Expr, ...] = result if isinstance(result, tuple) else (result,)
    for out, made in zip(node.outputs, results, strict=True):
        new = made.cast(out.type.dtype) if _is_half(out.type) else made  # type: ignore[union-attr]
        if out.type != new.value.type:
            raise InferenceError(
                f"the expansion of {node.kind} gives {new.value.type}, not {out.type}",
                loc=node.loc,
            )
        out.replace_all_uses_with(new.value)
    first = before.next if before is not None else next(iter(node.block.nodes()))
    made_nodes = list(_between(first, node))
    node.erase()
    return made_nodes


def _between(node: Node | None, stop: Node) -> Iterator[Node]:
    while node is not None and node is not stop:
        yield node
        node = node.next


def _expand(node: Node, record: Op, with_rules: bool) -> None:
    """Replace one composite; its expansion may hold composites, which are expanded next."""
    assert record.expand is not None
    for each in inline(node, record.expand) or ():
        inner = _composite(each, with_rules)
        if inner is not None:
            _expand(each, inner, with_rules)
