"""Elementwise aten ops: torch's type promotion made explicit, and formulas of other ops."""

from __future__ import annotations

import math
from typing import Any

import torch

from gradof.ir.types import BOOL, F64, I64, DType, TensorType, dtype
from gradof.ops.expr import Expr, F, Number
from gradof.ops.registry import Op
from gradof.tracer.aten.half import (
    HALF,
    WideCall,
    exact,
    in_float32,
    is_number_beside,
    rounded_number,
    trunc_of_half,
)
from gradof.tracer.aten.registry import Call, Operand, aten, scalar_for


def elementwise(c: Call, op: Op, *operands: Operand) -> Expr:
    """Any elementwise op: operands are cast to the dtype torch computes in."""
    if "elementwise" not in op.traits:
        return F.__getattr__(op.name)(*operands)
    dtype = c.type().dtype if c.type().dtype is not BOOL else c.common_dtype()
    return apply(c, op.name, dtype, *operands)


def apply(c: Call, name: str, dtype: DType, *operands: Operand) -> Expr:
    """Op `name` with every tensor operand cast to `dtype`; numbers become numbers of its kind."""
    like = c.type().with_dtype(dtype)
    if name in _DIVIDES:
        operands = (operands[0], divisor(c, operands[1], dtype))
    cast = [
        x.cast(dtype) if isinstance(x, Expr) else scalar_for(x, like) for x in operands
    ]
    return F.__getattr__(name)(*cast)


_DIVIDES = frozenset({"remainder", "fmod", "floor_divide"})


def divisor(c: Call, b: Operand, dtype: DType) -> Operand:
    """The same: of integers on the CPU a zero is eager's RuntimeError."""
    if not isinstance(b, Expr) or dtype.kind not in ("int", "uint") or c.type().device != "cpu":
        return b
    b = b.cast(dtype)
    return b + F.in_range((b == 0).cast(dtype), size=1, wraps=False, error="divisor")


def _arithmetic(name: str, logical: str | None) -> Any:
    def adaptor(c: Call, a: Operand, b: Operand) -> Expr:
        dtype = c.type().dtype
        if dtype is BOOL and logical is not None:
            return apply(c, logical, dtype, a, b)
        return apply(c, name, dtype, a, b)

    return adaptor


_mul = _arithmetic("mul", "logical_and")


@aten("mul.Tensor", "mul.Scalar")
def mul(c: Call, a: Operand, b: Operand) -> Expr:
    # a number that is a tensor is not rounded to the half precision beside it, where it is second
    if is_number_beside(c, b, a):
        return exact(c, "mul", a, b)
    product: Expr = _mul(c, a, b)
    return product


@aten("div.Tensor", "div.Scalar")
def div(c: Call, a: Operand, b: Operand) -> Expr:
    if is_number_beside(c, b, a):
        return exact(c, "div", a, b)
    return apply(c, "div", c.type().dtype, a, b)


aten("maximum.default")(_arithmetic("maximum", None))
aten("minimum.default")(_arithmetic("minimum", None))


@aten("fmax.default", "fmin.default")
def fmax(c: Call, a: Expr, b: Expr) -> Expr:
    """The other where one is nan; unlike maximum, a tie's whole gradient goes to the first."""
    a, b = a.cast(c.type().dtype), b.cast(c.type().dtype)
    first = a >= b if c.func.name() == "aten::fmax" else a <= b
    return F.where(F.logical_or(first, b != b), a, b)


def _scaled(c: Call, b: Operand, alpha: Number) -> Operand:
    if alpha == 1:
        return b
    if isinstance(c, WideCall):  # torch rounds it, but not the product
        alpha = rounded_number(c, alpha)
    if not isinstance(b, Expr):
        return b * alpha
    return apply(c, "mul", c.type().dtype, b, alpha)


def _is_rounded_twice(c: Call, alpha: Number) -> bool:
    return alpha != 1 and c.type().dtype in HALF  # never in a WideCall


@aten("add.Tensor", "add.Scalar")
def add(c: Call, a: Expr, b: Operand, alpha: Number = 1) -> Expr:
    if c.type().dtype is BOOL:  # a | (alpha & b)
        return apply(c, "logical_or", BOOL, a, b if alpha else False)
    if _is_rounded_twice(c, alpha):
        return in_float32(add)(c, a, b, alpha)
    return apply(c, "add", c.type().dtype, a, _scaled(c, b, alpha))


@aten("sub.Tensor", "sub.Scalar")
def sub(c: Call, a: Expr, b: Operand, alpha: Number = 1) -> Expr:
    if _is_rounded_twice(c, alpha):
        return in_float32(sub)(c, a, b, alpha)
    return apply(c, "sub", c.type().dtype, a, _scaled(c, b, alpha))


@aten("rsub.Scalar", "rsub.Tensor")
def rsub(c: Call, a: Expr, b: Operand, alpha: Number = 1) -> Expr:
    if _is_rounded_twice(c, alpha):
        return in_float32(rsub)(c, a, b, alpha)
    return apply(c, "sub", c.type().dtype, b, _scaled(c, a, alpha))


@aten("floor_divide.default", "floor_divide.Scalar")
def floor_divide(c: Call, a: Expr, b: Operand) -> Expr:
    return div_mode(c, a, b, rounding_mode="floor")


@aten("div.Tensor_mode", "div.Scalar_mode")
def div_mode(c: Call, a: Expr, b: Operand, *, rounding_mode: str | None = None) -> Expr:
    dtype = c.type().dtype
    if rounding_mode == "floor" and is_number_beside(c, b, a):
        return exact(c, "floor_divide", a, b)
    if rounding_mode == "floor":
        return apply(c, "floor_divide", dtype, a, b)
    if rounding_mode == "trunc" and not dtype.is_float:
        # what is left taken off first: integers would lose digits on the way through floats
        like = c.type().with_dtype(dtype)
        a, b = a.cast(dtype), divisor(c, b, dtype) if isinstance(b, Expr) else scalar_for(b, like)
        return F.floor_divide(a - F.fmod(a, b), b)
    if rounding_mode == "trunc" and dtype in HALF:
        return trunc_of_half(c, a, b)
    return apply(c, "div" if rounding_mode is None else "trunc_divide", dtype, a, b)


@aten("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def pow_(c: Call, a: Operand, b: Operand) -> Expr:
    dtype = c.type().dtype
    if isinstance(a, Expr) and b == 2 and not isinstance(b, Expr):
        return F.square(a.cast(dtype))
    if isinstance(a, Expr) and not isinstance(b, Expr) and b == 0.5:
        return F.sqrt(a.cast(dtype))
    return apply(c, "pow", dtype, a, b)


for _name in ("gt", "ge", "lt", "le", "eq", "ne"):

    def _compare(c: Call, a: Expr, b: Operand, _name: str = _name) -> Expr:
        dtype = c.common_dtype()
        if dtype is BOOL and not isinstance(b, Expr):
            b = bool(b)
        return apply(c, _name, dtype, a, b)

    aten(f"{_name}.Tensor", f"{_name}.Scalar")(_compare)

for _name in ("logical_and", "logical_or", "logical_xor"):

    def _logical(c: Call, a: Expr, b: Expr, _name: str = _name) -> Expr:
        return F.__getattr__(_name)(_truth(a), _truth(b))

    aten(f"{_name}.default")(_logical)

for _name in ("bitwise_and", "bitwise_or", "bitwise_xor"):

    def _bitwise(c: Call, a: Operand, b: Operand, _name: str = _name) -> Expr:
        dtype = c.type().dtype
        name = _name.replace("bitwise", "logical") if dtype is BOOL else _name
        return apply(c, name, dtype, a, b)

    aten(f"{_name}.Tensor", f"{_name}.Scalar")(_bitwise)


for _name, _short in (("left_shift", "lshift"), ("right_shift", "rshift")):

    def _shift(c: Call, a: Expr, b: Operand, _name: str = _name) -> Expr:
        return apply(c, _name, c.type().dtype, a, b)

    aten(
        f"__{_short}__.Scalar", f"__{_short}__.Tensor", f"bitwise_{_name}.Tensor",
        f"bitwise_{_name}.Tensor_Scalar",
    )(_shift)  # fmt: skip


def _truth(x: Expr) -> Expr:
    return x if x.dtype is BOOL else x != scalar_for(0, x.type)


@aten("bitwise_not.default")
def bitwise_not(c: Call, x: Expr) -> Expr:
    return F.logical_not(x) if x.dtype is BOOL else F.bitwise_not(x)


@aten("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def where(c: Call, cond: Expr, a: Operand, b: Operand) -> Expr:
    type_ = c.type()
    sides = [x.cast(type_.dtype) if isinstance(x, Expr) else scalar_for(x, type_) for x in (a, b)]
    if not any(isinstance(x, Expr) for x in sides):
        sides[0] = c.full(sides[0])  # type: ignore[arg-type]  # a number: neither side is a tensor
    return F.where(cond.cast(BOOL), *sides)


@aten("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(c: Call, x: Expr, mask: Expr, value: Operand) -> Expr:
    filling = value.cast(x.dtype) if isinstance(value, Expr) else scalar_for(value, x.type)
    return F.where(mask, filling, x)


@aten("clamp.default")
def clamp(c: Call, x: Expr, low: Number | None = None, high: Number | None = None) -> Expr:
    type_ = c.type()
    bounds = [None if v is None else scalar_for(v, type_) for v in (low, high)]
    return F.clamp(x.cast(type_.dtype), low=bounds[0], high=bounds[1])


@aten("clamp_min.default")
def clamp_min(c: Call, x: Expr, low: Number) -> Expr:
    return clamp(c, x, low, None)


@aten("clamp_max.default")
def clamp_max(c: Call, x: Expr, high: Number) -> Expr:
    return clamp(c, x, None, high)


@aten("clamp.Tensor")
def clamp_tensor(c: Call, x: Expr, low: Expr | None = None, high: Expr | None = None) -> Expr:
    # As clamp does, and maximum does not: at a tie the whole gradient goes to x. At nan nobody has
    # one, and where the bounds have no room between them the upper one has it.
    dtype = c.type().dtype
    x = x.cast(dtype)
    low, high = (None if v is None else v.cast(dtype) for v in (low, high))
    if high is None:
        assert low is not None
        return F.where(x >= low, x, F.where(x < low, low, F.detach(x + low)))
    if low is None:
        return F.where(x <= high, x, F.where(x > high, high, F.detach(x + high)))
    above = (x > high) | (high < low)
    below = F.where((x < low) & (low < high), low, F.detach(low))
    chosen = F.where((x >= low) & (x <= high), x, F.where(above, high, below))
    is_nan = (x != x) | (low != low) | (high != high)
    return F.where(is_nan, chosen + math.nan, chosen) if dtype.is_float else chosen


@aten("clamp_min.Tensor")
def clamp_min_tensor(c: Call, x: Expr, low: Expr) -> Expr:
    return clamp_tensor(c, x, low, None)


@aten("clamp_max.Tensor")
def clamp_max_tensor(c: Call, x: Expr, high: Expr) -> Expr:
    return clamp_tensor(c, x, None, high)


@aten("_to_copy.default", "to.dtype")
def to_copy(c: Call, x: Expr, *_: Any, **__: Any) -> Expr:
    dtype = c.type().dtype
    if dtype is BOOL and x.dtype is not BOOL:
        return x != scalar_for(0, x.type)
    if x.dtype.is_complex and not dtype.is_complex and dtype is not BOOL:
        x = F.real(x)  # as torch does, with a warning
    if str(getattr(c.args[0], "device", c.type().device)) != c.type().device:  # `x` was moved
        return x.cast(dtype).to_device(c.type().device)  # fresh memory by that alone
    return F.copy(x) if dtype == x.dtype else x.cast(dtype)


@aten("clone.default", "alias.default", "lift_fresh_copy.default")
def clone(c: Call, x: Expr, *, memory_format: Any = None) -> Expr:
    return F.copy(x) if c.func.name().startswith("aten::clone") else F.alias(x)


@aten("detach.default", "detach_copy.default")
def detach(c: Call, x: Expr) -> Expr:
    return F.detach(x)


_OF_NUMBERS: tuple[tuple[type, DType], ...] = (
    (bool, BOOL), (int, I64), (float, F64), (complex, dtype("c128")),
)  # fmt: skip


@aten("copy.default")
def copy(c: Call, x: Expr, src: Expr | complex, non_blocking: bool = False) -> Expr:
    if not isinstance(src, Expr):  # a number, which is cast as a tensor would be
        kind = next(d for number, d in _OF_NUMBERS if isinstance(src, number))
        src = c.full(src, TensorType(kind, (), c.type().device))
    return src.cast(c.type().dtype).to_device(c.type().device).expand(x.shape)


@aten("fill.Scalar", "fill.Tensor")
def fill(c: Call, x: Expr, value: Operand) -> Expr:
    return value.cast(x.dtype).expand(x.shape) if isinstance(value, Expr) else c.full(value)


@aten("zero.default")
def zero(c: Call, x: Expr) -> Expr:
    return c.full(0)


@aten("sgn.default", "sign.default")
def sign(c: Call, x: Expr) -> Expr:
    return F.sgn(x) if x.dtype.is_complex else F.sign(x)


@aten("frac.default")
def frac(c: Call, x: Expr) -> Expr:
    return x - F.trunc(x)


@aten("deg2rad.default")
def deg2rad(c: Call, x: Expr) -> Expr:
    return x.cast(c.type().dtype) * (math.pi / 180.0)


@aten("rad2deg.default")
def rad2deg(c: Call, x: Expr) -> Expr:
    return x.cast(c.type().dtype) * (180.0 / math.pi)


@aten("xlogy.Tensor", "xlogy.Scalar_Other", "xlogy.Scalar_Self")
def xlogy(c: Call, x: Operand, y: Operand) -> Expr:
    return apply(c, "xlogy", c.type().dtype, x, y)


@aten("special_xlog1py.default", "special_xlog1py.other_scalar", "special_xlog1py.self_scalar")
def xlog1py(c: Call, x: Operand, y: Operand) -> Expr:
    return apply(c, "xlog1py", c.type().dtype, x, y)


@aten("hypot.default")
def hypot(c: Call, a: Expr, b: Expr) -> Expr:
    return apply(c, "hypot", c.type().dtype, a, b)


@aten("nan_to_num.default")
def nan_to_num(
    c: Call, x: Expr, nan: float | None = None, posinf: float | None = None,
    neginf: float | None = None,
) -> Expr:  # fmt: skip
    if x.dtype.is_complex:
        parts = [nan_to_num(c, part(x), nan, posinf, neginf) for part in (F.real, F.imag)]
        return F.complex(*parts)
    if not x.dtype.is_float:
        return F.copy(x)
    info = torch.finfo(c.results[0].dtype)
    y = F.where(F.isnan(x), 0.0 if nan is None else float(nan), x)
    y = F.where(x == math.inf, info.max if posinf is None else float(posinf), y)
    return F.where(x == -math.inf, info.min if neginf is None else float(neginf), y)


@aten("logit.default")
def logit(c: Call, x: Expr, eps: float | None = None) -> Expr:
    return F.logit(x.cast(c.type().dtype), eps=eps)


@aten("sinc.default")
def sinc(c: Call, x: Expr) -> Expr:
    return F.sinc(x.cast(c.type().dtype))


@aten("special_ndtr.default")
def ndtr(c: Call, x: Expr) -> Expr:
    return F.ndtr(x.cast(c.type().dtype))


@aten("float_power.Tensor_Scalar")
def float_power(c: Call, a: Expr, b: Number) -> Expr:
    return apply(c, "pow", c.type().dtype, a, b)


@aten("isclose.default")
def isclose(
    c: Call, a: Expr, b: Expr, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Expr:
    if not a.dtype.is_inexact:
        a, b = a.cast(F64), b.cast(F64)
    same = a == b
    if equal_nan:
        same = F.logical_or(same, F.logical_and(a != a, b != b))
    gap = F.abs(a - b)
    near = F.logical_and(gap <= F.abs(b * rtol) + atol, gap * 0.0 == 0.0)  # inf is near inf only
    return F.logical_or(same, near)
