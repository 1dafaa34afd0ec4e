"""What a rule of an op reads, by the names of its parameters: see `gradof.ops.registry`.

    vjp={"x": lambda g, y: g * y}        g: the cotangent of y; y: the op's own result
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradof.ir.core import Node, Value
from gradof.ir.types import TensorType
from gradof.ops.custom import behind_hooks
from gradof.ops.expr import Emitter, Expr, F, Like
from gradof.ops.registry import Op


def input_name(record: Op, index: int) -> str:
    """The schema's name of operand `index` (the one name of a variadic op)."""
    return record.inputs[0] if record.variadic else record.inputs[index]


def rule_arguments(
    node: Node, record: Op, reads: Sequence[str], cotangents: dict[Value, Value], emitter: Emitter
) -> dict[str, Any]:
    """What a rule asked for, by the names of its parameters (see gradof.ops.registry)."""
    values: dict[str, Any] = {**node.attrs, "block": node.blocks[0] if node.blocks else None}
    if record.variadic_outputs:
        grads = [cotangents.get(out) for out in node.outputs]
        values["g"] = [None if grad is None else emitter.wrap(grad) for grad in grads]
        values[record.outputs[0]] = [emitter.wrap(behind_hooks(out)) for out in node.outputs]
    outputs = () if record.variadic_outputs else tuple(
        zip(record.outputs, node.outputs, strict=True)
    )
    if record.variadic:
        values[record.inputs[0]] = [emitter.wrap(v) for v in node.inputs]
        values[record.inputs[0] + "_like"] = [Like(v, emitter) for v in node.inputs]
        named = list(outputs)
    else:
        named = [*zip(record.inputs, node.inputs, strict=True), *outputs]
    for name, value in named:
        values[name] = emitter.wrap(value)
        values[f"{name}_like"] = Like(value, emitter)
    for name, value in outputs:
        values[name] = emitter.wrap(behind_hooks(value))
        if value in cotangents:
            cotangent_name = "g" if len(record.outputs) == 1 else f"g_{name}"
            values[cotangent_name] = emitter.wrap(cotangents[value])
    if "wirtinger" in record.traits:
        return {name: values[name] for name in reads}
    own = {*record.inputs, *record.outputs}
    return {n: _conjugate(values[n]) if n in own else values[n] for n in reads}


def _conjugate(value: Any) -> Any:
    """What a rule reads; see Note [Gradients of complex numbers]."""
    if isinstance(value, list):
        return [_conjugate(v) for v in value]
    assert isinstance(value, Expr)
    if isinstance(value.scalar, complex):
        return value.emitter.wrap(value.emitter.body.constant(value.scalar.conjugate()))
    type_ = value.value.type
    return F.conj(value) if isinstance(type_, TensorType) and type_.dtype.is_complex else value
