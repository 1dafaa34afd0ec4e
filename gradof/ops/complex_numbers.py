"""Complex numbers: parts, conjugates, and what is made of them.

Note [Gradients of complex numbers]
The gradient of a real loss L in z = x + iy is dL/dx + i dL/dy, as torch's is: the direction of
steepest ascent. With it, a rule of a holomorphic op multiplies by the conjugate of the derivative.
No rule says so: the reverse hands every rule the conjugates of the complex values it reads, and so
`g * b` is right for both kinds of numbers. That is right for ops with f(conj z) = conj f(z), which
are all that are given by real power series, and products. Ops between real and complex numbers have
the trait `wirtinger`: their rules get the values as they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradof.errors import InferenceError
from gradof.ir.attrs import Attr
from gradof.ir.types import C64, C128, F32, F64, DType, TensorType, Type
from gradof.ops.expr import Expr, F, zeros_for
from gradof.ops.families import ARITHMETIC, common, tensor, unary
from gradof.ops.registry import Family, op

_COMPLEX_OF = {F32: C64, F64: C128}
_REAL_OF = {C64: F32, C128: F64}


def real_dtype(dtype: DType) -> DType:
    """The dtype of the parts of numbers of `dtype` (itself if they are real)."""
    return _REAL_OF.get(dtype, dtype)


def complex_dtype(dtype: DType) -> DType:
    """The dtype of complex numbers with parts of `dtype`; InferenceError if there is none."""
    if dtype.is_complex:
        return dtype
    if dtype not in _COMPLEX_OF:
        raise InferenceError(f"no complex numbers have parts of dtype {dtype}; insert a cast")
    return _COMPLEX_OF[dtype]


def _infer_part(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    z = tensor(inputs[0])
    if not z.dtype.is_complex:
        raise InferenceError(f"a complex tensor is due, not {z}")
    return (z.with_dtype(real_dtype(z.dtype)),)


def _infer_complex(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    dtype, device, shape = common(inputs, frozenset({"float"}))
    return (TensorType(complex_dtype(dtype), shape, device),)


op("conj(x) -> y", family=unary(ARITHMETIC), numpy="np.conjugate", traits={"wirtinger"},
   vjp={"x": lambda g: F.conj(g)},
   names=["aten._conj", "aten.conj_physical", "aten._conj_physical", "numpy.conjugate"])


def _to_complex(g: Expr) -> Expr:
    return g.cast(complex_dtype(g.dtype))


op("real(x) -> y", family=Family(_infer_part, frozenset({"elementwise"})),
   numpy="{x}.real.copy()", vjp={"x": _to_complex}, traits={"wirtinger", "linear"})
op("imag(x) -> y", family=Family(_infer_part, frozenset({"elementwise"})),
   numpy="{x}.imag.copy()", vjp={"x": lambda g: F.complex(zeros_for(g), g)},
   traits={"wirtinger", "linear"})


def _complex(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    shape = np.broadcast_shapes(np.shape(a), np.shape(b))
    dtype = np.complex64 if np.result_type(a, b) == np.float32 else np.complex128
    z: NDArray[Any] = np.empty(shape, dtype)
    z.real, z.imag = a, b
    return z


op("complex(a, b) -> y", family=Family(_infer_complex, frozenset({"elementwise"})),
   numpy=_complex, vjp={"a": lambda g: F.real(g), "b": lambda g: F.imag(g)},
   traits={"wirtinger"})


def _polar(a: Expr, b: Expr) -> Expr:
    return F.complex(a * F.cos(b), a * F.sin(b))


op("polar(a, b) -> y", family=Family(_infer_complex, frozenset({"elementwise"})), expand=_polar)


def _angle(x: Expr) -> Expr:
    if x.dtype.is_complex:
        return F.atan2(F.imag(x), F.real(x))
    return F.where(F.isnan(x), F.detach(x), F.where(x < 0.0, math.pi, 0.0 * F.sign(x)))


def _infer_angle(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    (result,) = unary(frozenset({"float", "complex"})).infer(inputs, attrs)
    return (tensor(result).with_dtype(real_dtype(tensor(result).dtype)),)


op("angle(x) -> y", family=Family(_infer_angle, frozenset({"elementwise"})), expand=_angle)


def _sgn(x: Expr) -> Expr:
    if not x.dtype.is_complex:
        return F.sign(x)
    size = F.abs(x)
    at_zero = size == 0.0  # asked before the division, so that no gradient is nan there
    return F.where(at_zero, 0.0, x / F.where(at_zero, 1.0, size).cast(x.dtype))


op("sgn(x) -> y", family=unary(ARITHMETIC), expand=_sgn, names=["aten.sgn"])


def _view_as_real(x: Expr) -> Expr:
    pair = (*x.shape, 1)
    return F.cat(F.real(x).reshape(pair), F.imag(x).reshape(pair), dim=x.rank)


def _infer_view_as_real(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    (part,) = _infer_part(inputs, attrs)
    shape = tensor(part).shape
    return (tensor(part).with_shape(None if shape is None else (*shape, 2)),)


op("view_as_real(x) -> y", family=Family(_infer_view_as_real), expand=_view_as_real,
   names=["aten.view_as_real", "aten.view_as_real_copy"])


def _view_as_complex(x: Expr) -> Expr:
    shape, last = x.shape[:-1], x.rank - 1
    parts = [F.slice(x, dim=last, start=i, stop=i + 1, step=1).reshape(shape) for i in (0, 1)]
    return F.complex(*parts)


def _infer_view_as_complex(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    x = tensor(inputs[0])
    if x.shape is not None and x.shape[-1:] != (2,):
        raise InferenceError(f"the last dim holds a real and an imaginary part, not {x}")
    shape = None if x.shape is None else x.shape[:-1]
    return (TensorType(complex_dtype(x.dtype), shape, x.device),)


op("view_as_complex(x) -> y", family=Family(_infer_view_as_complex), expand=_view_as_complex,
   names=["aten.view_as_complex", "aten.view_as_complex_copy"])
