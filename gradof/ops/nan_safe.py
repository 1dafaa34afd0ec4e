"""`zero_unreached`: what a gradient is in an element that no cotangent reaches.

    y = where(x > 0, sqrt(x), 0)      at x = 0:  dy/dsqrt = 0,  dsqrt/dx = inf,  0 * inf = nan

Of graphs that are `nan_safe`, every contribution of an elementwise op goes through this op, which
selects zero where the cotangent is exactly zero and the contribution is not finite. Where it is
finite, so where eager has a number, nothing is changed, and the derivative of that is not either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradof.errors import InferenceError
from gradof.ir.attrs import Attr
from gradof.ir.core import Node, Value
from gradof.ir.types import TensorType, Type
from gradof.ops.expr import Emitter, Expr, F
from gradof.ops.registry import Family, Op, op

Array = NDArray[Any]


def _infer(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    if not all(isinstance(t, TensorType) for t in inputs):
        raise InferenceError("zero_unreached takes a gradient and a cotangent")
    return (inputs[0],)


def unreached(grad: Array, seed: Array) -> Any:
    """Where a gradient is 0 * inf."""
    return (seed == 0) & ~np.isfinite(grad)


def _select(grad: Array, seed: Array, name: str) -> Array:
    result: Array = np.where(unreached(grad, seed), grad.dtype.type(0), grad)
    return result


def _rule(g: Expr, grad: Expr, seed: Expr) -> Expr:
    mask = F.logical_and(F.eq(seed, 0.0), F.logical_not(F.isfinite(grad)))
    return F.where(mask, 0.0, g)


op("zero_unreached(grad, seed; name) -> y", family=Family(_infer), numpy=_select,
   vjp={"grad": _rule, "seed": None}, traits={"wirtinger"},
   doc="A gradient, zero where it is not finite and its cotangent is zero.")  # fmt: skip


def zero_where_unreached(
    node: Node, record: Op, grad: Expr, cotangents: Mapping[Value, Value], emitter: Emitter
) -> Expr:
    """A contribution of `node`, as a nan_safe graph has it; linear ops stay as they are."""
    if "elementwise" not in record.traits or "linear" in record.traits or len(cotangents) != 1:
        return grad
    (seed,) = cotangents.values()
    assert isinstance(seed.type, TensorType)
    if grad.type.shape != seed.type.shape:
        return grad
    return F.zero_unreached(grad, emitter.wrap(seed), name=node.kind)
