"""Functions of how a float is stored: its exponent, its neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradof.errors import InferenceError
from gradof.ir.attrs import Attr
from gradof.ir.types import I32, Type
from gradof.ops.cost import CALL
from gradof.ops.expr import Expr, F, zeros_for
from gradof.ops.families import FLOATS, binary, tensor, unary
from gradof.ops.registry import Family, op

op("nextafter(a, b) -> y", family=binary(FLOATS), cost=CALL, numpy="np.nextafter",
   vjp={"a": lambda g, a, b: F.where(a == b, 0.0, g), "b": zeros_for},  # as torch's
   names=["numpy.nextafter"],
   doc="The float after a towards b; it moves as a does.")
op("spacing(x) -> y", family=unary(FLOATS), cost=CALL, numpy="np.spacing", vjp={"x": zeros_for},
   names=["numpy.spacing"], doc="Piecewise constant, as floor is.")


def _infer_frexp(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    x = tensor(inputs[0])
    if x.dtype.kind != "float":
        raise InferenceError(f"frexp of {x}")
    return (x, x.with_dtype(I32))


def _frexp_x(g_mantissa: Expr, exponent: Expr) -> Expr:
    return g_mantissa * F.exp2(-(exponent.cast(g_mantissa.dtype)))


def _np_frexp(x: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    mantissa, exponent = np.frexp(x)
    return np.asarray(mantissa), np.asarray(exponent)


op("frexp(x) -> mantissa, exponent", family=Family(_infer_frexp), numpy=_np_frexp,
   vjp={"x": _frexp_x}, names=["numpy.frexp"],
   doc="x = mantissa 2^exponent; the exponent is piecewise constant.")
