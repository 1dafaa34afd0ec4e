"""Scaling by a power of two is exact: it is left to another number, or done where it is cheap.

    x * 2.0 * 0.1          → x * 0.2
    x * 3.0 / 4.0          → x * 0.75
    x / 1000 * 2           → x / 500
    (x * 0.1) * y * 2.0    → (x * 0.2) * y
    (row * x) * 2.0        → (row * 2.0) * x        row: fewer numbers than x
    row * (x * 2.0)        → (row * 2.0) * x
    -x / 3.0               → x / -3.0
    sum(-x)                → -sum(x)

Rounding is the same, as long as nothing is out of the range of its dtype; a sum of zeros may have
the other sign. Means of squares and their gradients are full of these.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from gradof.ir.builder import Builder
from gradof.ir.core import Node, Value
from gradof.ir.types import F32, F64, TensorType

_POWERS = 2.0**12  # what is moved: float32 has 2^-126 to 2^127
_RANGE = 2.0**60


class _Scaling(NamedTuple):
    """`x * number`, or `x / number`."""

    x: Value
    kind: str
    number: float

    def scaled(self, power: float) -> float:
        """The number that scales by `power` as well."""
        return self.number * power if self.kind == "mul" else self.number / power

    @property
    def power(self) -> float | None:
        """What x is multiplied by, if that is a power of two of either sign."""
        if not 1 / _POWERS <= abs(self.number) <= _POWERS or abs(math.frexp(self.number)[0]) != 0.5:
            return None
        return self.number if self.kind == "mul" else 1 / self.number


def scaled_once(node: Node, dying: frozenset[Node] = frozenset()) -> Value | None:
    """What `node` scales, scaled with what computed it: by one number, or a factor of its.

    `dying` nodes will be dead.
    """
    assert node.block is not None
    builder = Builder(node.block, node, node.loc)
    outer = _scaling(node)
    if outer is None:
        return _scaled_sum(node, builder, dying) or _scaled_smaller(node, builder, dying)
    if outer.x.node is None:
        return None
    inner = _scaling(outer.x.node)
    if inner is None:
        return None if outer.power is None else _scaled_factor(outer.x, outer.power, builder, dying)
    if outer.power is not None:
        kind, number = inner.kind, inner.scaled(outer.power)
    elif inner.power is not None:
        kind, number = outer.kind, outer.scaled(inner.power)
    else:
        return None
    if not 1 / _RANGE <= abs(number) <= _RANGE:
        return None
    return builder.emit(kind, inner.x, builder.constant(number))


def _scaled_factor(
    product: Value, power: float, builder: Builder, dying: frozenset[Node]
) -> Value | None:
    """A product nobody else reads, one of its factors scaled by a power of two."""
    assert product.node is not None
    if product.node.kind != "mul" or not _is_read_once(product, dying):
        return None
    dying |= {product.node}
    for factor, other in (product.node.inputs, product.node.inputs[::-1]):
        scaling = None if factor.node is None else _scaling(factor.node)
        if scaling is not None and _is_read_once(factor, dying - {product.node}):
            number = scaling.scaled(power)
            if 1 / _RANGE <= abs(number) <= _RANGE:
                scaled = builder.emit(scaling.kind, scaling.x, builder.constant(number))
                return builder.emit("mul", scaled, other)
        elif _is_smaller(factor, product):
            scaled = _times(factor, power, builder, dying)
            return builder.emit("mul", scaled, other)
    return None


def _scaled_smaller(node: Node, builder: Builder, dying: frozenset[Node]) -> Value | None:
    """A product of which the smaller factor is scaled in the place of the larger."""
    if node.kind != "mul":
        return None
    for small, large in (node.inputs, node.inputs[::-1]):
        scaling = None if large.node is None else _scaling(large.node)
        if scaling is None or scaling.power is None or large.type != node.output.type:
            continue
        if _is_smaller(small, large) and _is_read_once(large, dying):
            return builder.emit("mul", _times(small, scaling.power, builder, dying), scaling.x)
    return None


def _scaled_sum(node: Node, builder: Builder, dying: frozenset[Node]) -> Value | None:
    """The sum of what is scaled, scaled in its place."""
    terms = node.inputs[0] if node.kind in ("sum", "sum_to") else None
    scaling = None if terms is None or terms.node is None else _scaling(terms.node)
    if terms is None or scaling is None or scaling.power is None:
        return None
    if not _is_read_once(terms, dying):
        return None
    total = builder.emit(node.kind, scaling.x, **node.attrs)
    return _times(total, scaling.power, builder, dying)


def _is_read_once(value: Value, dying: frozenset[Node]) -> bool:
    return len([use for use in value.uses if use.node not in dying]) <= 1


def _times(x: Value, power: float, builder: Builder, dying: frozenset[Node]) -> Value:
    if power == -1:
        return builder.emit("neg", x)
    scaled = builder.emit("mul", x, builder.constant(power))
    assert scaled.node is not None
    sooner = scaled_once(scaled.node, dying)
    if sooner is None:
        return scaled
    scaled.node.erase()
    return sooner


def _is_smaller(factor: Value, product: Value) -> bool:
    a, b = factor.type, product.type
    if not isinstance(a, TensorType) or not isinstance(b, TensorType) or a.dtype != b.dtype:
        return False
    return a.shape is not None and b.shape is not None and math.prod(a.shape) < math.prod(b.shape)


def _scaling(node: Node) -> _Scaling | None:
    type_ = node.output.type if len(node.outputs) == 1 else None
    if node.kind not in ("mul", "div", "neg") or not isinstance(type_, TensorType):
        return None
    if type_.dtype not in (F32, F64):
        return None
    if node.kind == "neg":
        return _Scaling(node.inputs[0], "mul", -1.0)
    x, other = node.inputs
    if node.kind == "mul" and _constant(x) is not None:
        x, other = other, x
    number = _constant(other)
    if number is None or x.type != type_:
        return None
    return _Scaling(x, node.kind, number)


def _constant(value: Value) -> float | None:
    """A weak number that float32 holds exactly scaled, zero left out."""
    node = value.node
    number = node.attrs["value"] if node is not None and node.kind == "Constant" else None
    if type(number) not in (int, float):
        return None
    assert isinstance(number, int | float)
    return float(number) if 1 / _RANGE <= abs(number) <= _RANGE else None
