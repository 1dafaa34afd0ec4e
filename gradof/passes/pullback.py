"""The gradient of what was emitted last, as ordinary nodes after it.

    %y = avg_pool(%x); a pullback of %g          %y = ...
                                                 %gx = window_spread(div(%g, 4))

For a trace that meets a backward op of torch's: it is the pullback of its forward op, by the same
rules that the reverse transform applies. What of the forward op these do not read is dead code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gradof.ir.core import Node, Value
from gradof.ir.opinfo import OPS
from gradof.ops.expr import Emitter, Expr, F, Like
from gradof.ops.registry import Op
from gradof.ops.rules import input_name, rule_arguments
from gradof.passes.expand_composites import expand_one


def pullback(
    emitter: Emitter, before: Node | None, y: Expr, g: Expr, wanted: Sequence[Expr]
) -> list[Expr]:
    """The gradients of `y` by each of `wanted`, for the cotangent `g`: of their shapes.

    `y` was emitted after the node `before`, of nothing but `wanted` and constants: by ops that
    have rules, none of which broadcasts an operand that a gradient goes to.
    """
    block = emitter.body.block
    y = _expanded(emitter, before, y)
    nodes = list(_after(before, block.returns))
    needs = {x.value for x in wanted}
    for node in nodes:
        if any(v in needs for v in node.inputs):
            needs.update(node.outputs)
    grads: dict[Value, Expr] = {y.value: g}
    for node in reversed(nodes):
        if any(out in grads for out in node.outputs):
            _pull(node, grads, needs, emitter)
    return [_gradient(grads, x, emitter) for x in wanted]


def _expanded(emitter: Emitter, before: Node | None, y: Expr) -> Expr:
    """The same result, of primitives."""
    holder = emitter.body.emit_node("detach", y.value)  # it reads what takes the result's place
    for node in list(_after(before, holder)):
        expand_one(node)
    (value,) = holder.inputs
    holder.erase()
    return emitter.wrap(value)


def _after(before: Node | None, stop: Node) -> Iterator[Node]:
    node = stop.block._head if before is None else before._next  # type: ignore[union-attr]
    while node is not None and node is not stop:
        following = node._next
        yield node
        node = following


def _pull(node: Node, grads: dict[Value, Expr], needs: set[Value], emitter: Emitter) -> None:
    record = OPS[node.kind]
    assert isinstance(record, Op)
    cotangents = {
        out: grads[out].value if out in grads else _zeros(out, emitter)
        for out in node.outputs if out.is_inexact
    }  # fmt: skip
    for name, rule in record.vjp.items():
        places = [i for i in range(len(node.inputs)) if input_name(record, i) == name]
        if rule is None or not any(node.inputs[i] in needs for i in places):
            continue
        made = rule(**rule_arguments(node, record, record.reads[name], cotangents, emitter))
        for i, grad in zip(places, list(made) if record.variadic else [made], strict=True):
            value = node.inputs[i]
            if grad is None or value not in needs:
                continue
            shape = emitter.wrap(value).shape
            grad = grad if grad.shape == shape else F.sum_to(grad, shape=shape)
            grads[value] = grads[value] + grad if value in grads else grad


def _zeros(value: Value, emitter: Emitter) -> Value:
    return Like(value, emitter).zeros().value


def _gradient(grads: dict[Value, Expr], x: Expr, emitter: Emitter) -> Expr:
    return grads[x.value] if x.value in grads else Like(x.value, emitter).zeros()
