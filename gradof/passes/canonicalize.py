"""Local simplifications that change no bit of any result in the range of its dtype.

    cast to its own dtype, reshape to its own shape, identity permute and expand, alias → operand
    reshape(reshape(x)), permute(permute(x)), detach(detach(x))                         → one node
    neg(neg(x)), x * 1, x / 1                                                           → x
    x * 2 * 0.1, and other numbers of which one is a power of two (`scaling`)           → x * 0.2
    a view of full[c]                                                        → full[c] of its shape
    x * full[c], x + full[c], x - full[c], x / full[c]                                  → x * c, ...
    full[c] * 2.0, and other arithmetic of what is uniform                              → full[2c]
    expand(reshape(x)) that adds dims in front                                          → expand(x)
    x * expand(y), and other elementwise ops that broadcast by themselves               → x * y
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from gradof.ir.attrs import to_numpy_dtype
from gradof.ir.builder import Builder
from gradof.ir.core import Graph, Node, Value
from gradof.ir.opinfo import OPS
from gradof.ir.types import F32, F64, ScalarType, TensorType
from gradof.passes.scaling import scaled_once

_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "neg": operator.neg,
}  # fmt: skip
_EXACT = 1 << 24  # integers that are floats of any dtype
_VIEWS = frozenset({"reshape", "permute", "expand", "slice", "flip"})
_LAYOUT = frozenset({"cast", "reshape", "permute", "expand", "sum_to"})


def canonicalize(graph: Graph) -> bool:
    """Simplify until nothing changes.

    Returns whether anything did. Graph outputs keep their types.
    """
    changed = False
    for node in graph.walk():
        if node.block is None:
            continue
        while _compose(node):
            changed = True
        changed |= _uniform_operand(node) or _broadcast_operand(node)
        replacement = _identity(node) or _uniform(node) or _computed(node)
        replacement = replacement or scaled_once(node)
        if replacement is not None:
            node.output.replace_all_uses_with(replacement)
            node.erase()
            changed = True
    return changed


def _identity(node: Node) -> Value | None:
    """The operand this node merely passes on, if any."""
    if node.kind == "alias":
        return node.inputs[0]
    if node.kind in _LAYOUT and node.inputs[0].type == node.output.type:
        if not isinstance(node.output.type, TensorType) or node.output.type.shape is None:
            return None
        dims = node.attrs.get("dims")
        if node.kind != "permute" or dims == tuple(range(len(node.output.type.shape))):
            return node.inputs[0]
    if node.kind in ("mul", "div"):
        return _times_one(node)
    if node.kind == "neg":
        inner = node.inputs[0].node
        if inner is not None and inner.kind == "neg":
            return inner.inputs[0]
    return None


def _times_one(node: Node) -> Value | None:
    x, y = node.inputs
    if _number(y) == 1 and x.type == node.output.type:
        return x
    if node.kind == "mul" and _number(x) == 1 and y.type == node.output.type:
        return y
    return None


def _number(value: Value) -> float | None:
    """The number a value is everywhere: a weak scalar's, or that of `full`."""
    node = value.node
    if node is None or node.kind not in ("full", "Constant"):
        return None
    number = node.attrs["value"]
    return number if type(number) in (int, float) else None  # type: ignore[return-value]


def _uniform(node: Node) -> Value | None:
    """A view of `full` as a `full` of its own."""
    if node.kind not in _VIEWS or not isinstance(node.output.type, TensorType):
        return None
    inner = node.inputs[0].node
    if inner is None or inner.kind != "full" or node.output.type.shape is None:
        return None
    assert node.block is not None
    attrs = {**inner.attrs, "shape": node.output.type.shape}
    return Builder(node.block, node, node.loc).emit("full", **attrs)


def _computed(node: Node) -> Value | None:
    """Arithmetic of `full`, and of numbers, as a `full`: computed in its dtype."""
    function = _ARITHMETIC.get(node.kind)
    if function is None:
        return None
    type_ = node.output.type
    if not isinstance(type_, TensorType) or type_.dtype not in (F32, F64):
        return None
    whole = [v for v in node.inputs if v.type == type_]
    numbers = [_number(v) for v in node.inputs]
    for value, number in zip(node.inputs, numbers, strict=True):
        if number is None or (abs(number) > _EXACT and type(number) is int):
            return None
        if value not in whole and not isinstance(value.type, ScalarType):
            return None
    with np.errstate(all="ignore"):
        result = float(function(*map(to_numpy_dtype(type_.dtype).type, numbers)))
    if not whole or not math.isfinite(result) or whole[0].node is None:
        return None
    assert node.block is not None
    attrs = {**whole[0].node.attrs, "value": result}
    return Builder(node.block, node, node.loc).emit("full", **attrs)


def _uniform_operand(node: Node) -> bool:
    """Arithmetic with `full` is done with its number, where the other operand has the type."""
    if node.kind not in ("add", "sub", "mul", "div") or node.block is None:
        return False
    for i, value in enumerate(node.inputs):
        number = _number(value)
        if number is None or not isinstance(value.type, TensorType):
            continue
        if node.inputs[1 - i].type == node.output.type:
            constant = Builder(node.block, node, node.loc).constant(number)
            node.replace_input(i, constant)
            return True
    return False


def _broadcast_operand(node: Node) -> bool:
    """An elementwise op, or another expand, broadcasts its operand itself."""
    changed = False
    for i, value in enumerate(node.inputs):
        inner = value.node
        if inner is None or inner.kind not in ("reshape", "expand"):
            continue
        if inner.kind == "expand":
            drop = _infers_alike(node, i, inner.inputs[0])
        else:
            drop = node.kind == "expand" and _adds_dims_in_front(inner)
        if drop:
            node.replace_input(i, inner.inputs[0])
            changed = True
    return changed


def _adds_dims_in_front(node: Node) -> bool:
    before, after = node.inputs[0].type, node.output.type
    assert isinstance(before, TensorType) and isinstance(after, TensorType)
    if before.shape is None or after.shape is None:
        return False
    extra = len(after.shape) - len(before.shape)
    return extra > 0 and after.shape == (1,) * extra + before.shape


def _infers_alike(node: Node, index: int, operand: Value) -> bool:
    """Whether an elementwise op gives the same type with another operand."""
    op = OPS.get(node.kind)
    if op is None or "elementwise" not in op.traits or len(node.inputs) < 2:
        return False
    types = [v.type for v in node.inputs]
    types[index] = operand.type
    return list(op.infer(types, node.attrs)) == [out.type for out in node.outputs]


def _compose(node: Node) -> bool:
    """Fold a reshape of a reshape, a permute of a permute, or a detach of a detach, into one."""
    if node.kind not in ("reshape", "permute", "detach"):
        return False
    inner = node.inputs[0].node
    if inner is None or inner.kind != node.kind:
        return False
    if node.kind == "permute":
        outer_dims, inner_dims = node.attrs["dims"], inner.attrs["dims"]
        assert isinstance(outer_dims, tuple) and isinstance(inner_dims, tuple)
        node.attrs["dims"] = tuple(inner_dims[d] for d in outer_dims if isinstance(d, int))
    node.replace_input(0, inner.inputs[0])
    return True
