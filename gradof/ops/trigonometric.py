"""Cosine and sine transforms of one dim, types 1 to 4, without a scale. The lowering needs scipy.

>>> F.trig_transform(x, cosine=True, type=2, dim=0)      # df: type 3 of g, its first element twice

scipy's definitions, in which type 3 counts one element once and all others twice; so the adjoint of
type 2 is type 3 but for that element, and type 1 is symmetric but for its ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradof.errors import InferenceError
from gradof.ir.attrs import Attr, Dense
from gradof.ir.types import Type
from gradof.ops.expr import Expr, F
from gradof.ops.families import known_shape, tensor
from gradof.ops.registry import Family, op

Array = NDArray[Any]


def _infer(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    x = tensor(inputs[0])
    dim = attrs["dim"]
    if x.dtype.kind != "float" or x.dtype.bits < 32 or attrs["type"] not in (1, 2, 3, 4):
        raise InferenceError(f"a transform of type 1 to 4 is of f32 or f64, not of {x}")
    if not isinstance(dim, int) or not 0 <= dim < len(known_shape(x)):
        raise InferenceError(f"{x} has no dim {dim}")
    return (x,)


def _np_transform(x: Array, *, cosine: bool, type: int, dim: int) -> Array:
    from scipy import fft

    if not x.size:
        return x.copy()
    result: Array = (fft.dct if cosine else fft.dst)(x, type=type, axis=dim)
    return result


def _weighted(x: Expr, dim: int, first: float, last: float) -> Expr:
    weights = np.ones(x.shape[dim])
    weights[0] *= first
    weights[-1] *= last
    shape = tuple(-1 if d == dim else 1 for d in range(x.rank))
    weight = Expr(x.emitter.body.constant(Dense.of(weights.reshape(shape))), x.emitter)
    return x * F.cast(weight, dtype=x.dtype)


def _vjp(g: Expr, cosine: bool, type: int, dim: int) -> Expr:
    def transform(x: Expr, type: int) -> Expr:
        return F.trig_transform(x, cosine=cosine, type=type, dim=dim)

    at_first, at_last = (2.0, 1.0) if cosine else (1.0, 2.0)
    if type == 1 and cosine:
        return _weighted(transform(_weighted(g, dim, 2.0, 2.0), 1), dim, 0.5, 0.5)
    if type == 2:
        return transform(_weighted(g, dim, at_first, at_last), 3)
    if type == 3:
        return _weighted(transform(g, 2), dim, 1 / at_first, 1 / at_last)
    return transform(g, type)


op("trig_transform(x; cosine, type, dim) -> y", family=Family(_infer), numpy=_np_transform,
   vjp={"x": _vjp}, traits={"linear"}, doc="scipy.fft.dct or dst without a norm.")
