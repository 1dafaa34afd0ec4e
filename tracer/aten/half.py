"""What torch's kernels of half precision compute in float32 as a whole, and round once.

    @aten("addcmul.default")
    @in_float32
    def addcmul(c: Call, x: Expr, a: Expr, b: Expr, *, value: Number = 1) -> Expr:
        ...                     # operands are float32 where the result is of half precision

Rounded step by step a * b overflows in float16 where x + a * b is finite.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from gradof.ir.types import BF16, F16, F32, F64, TensorType
from gradof.ops.expr import Expr, F, Number
from gradof.tracer.aten.registry import Call, Operand, aten, scalar_for

HALF = (F16, BF16)


class WideCall(Call):
    """A call whose results of half precision are to be made in float32."""

    __slots__ = ()

    def type(self, index: int = 0) -> TensorType:
        """The IR type of a result before it is rounded."""
        found = super().type(index)
        return found.with_dtype(F32) if found.dtype in HALF else found


def in_float32(adaptor: Callable[..., Expr]) -> Callable[..., Expr]:
    """An adaptor of one result that is rounded to half precision at its end alone."""

    @functools.wraps(adaptor)
    def run(c: Call, *args: Any, **kwargs: Any) -> Expr:
        dtype = c.type().dtype
        if dtype not in HALF:
            return adaptor(c, *args, **kwargs)
        wide = [a.cast(dtype).cast(F32) if isinstance(a, Expr) else a for a in args]
        call = WideCall(c.func, c.args, c.kwargs, c.results, c.emitter)
        return adaptor(call, *wide, **kwargs).cast(dtype)

    return run


def is_number_beside(c: Call, number: Operand, other: Operand) -> bool:
    """Whether one operand is a wider number without dims, the other an array of half precision."""
    if not isinstance(number, Expr) or not isinstance(other, Expr) or number.rank or not other.rank:
        return False
    return number.dtype in (F32, F64) and other.dtype in HALF and c.type().dtype in HALF


def exact(c: Call, name: str, a: Operand, b: Operand) -> Expr:
    """A product or quotient with such a number, which torch does not round."""
    operands = [x.cast(F32) if isinstance(x, Expr) else x for x in (a, b)]
    result: Expr = F.__getattr__(name)(*operands)
    return result.cast(c.type().dtype)


def trunc_of_half(c: Call, a: Expr, b: Operand) -> Expr:
    """The whole part of a quotient, which torch rounds before, but by one number."""
    dtype = c.type().dtype
    if not isinstance(b, Expr):
        return F.trunc_divide(a.cast(F32), b).cast(dtype)
    a = a.cast(dtype)
    if math.prod(b.shape) == 1:
        number = b if b.rank == 0 else b.cast(dtype)
        return F.trunc_divide(a.cast(F32), number.cast(F32)).cast(dtype)
    b = b.cast(dtype)
    exact_part, rounded = F.trunc_divide(a, b), F.trunc(F.detach(a) / F.detach(b))
    return F.where(F.eq(exact_part, rounded), exact_part, rounded)  # the first has the gradient


def rounded_number(c: Call, value: Number) -> Number:
    """A number as some of torch's kernels take it: of the half precision of the result."""
    dtype = c.results[0].dtype
    if dtype not in (torch.float16, torch.bfloat16):
        return value
    rounded: float = torch.tensor(value, dtype=dtype).item()
    return rounded


@aten("addcmul.default")
@in_float32
def addcmul(c: Call, x: Expr, a: Expr, b: Expr, *, value: Number = 1) -> Expr:
    dtype = c.type().dtype
    a = a.cast(dtype) if value == 1 else a.cast(dtype) * scalar_for(value, c.type())
    return x.cast(dtype) + a * b.cast(dtype)  # in torch's order: it may overflow in another


@aten("addcdiv.default")
@in_float32
def addcdiv(c: Call, x: Expr, a: Expr, b: Expr, *, value: Number = 1) -> Expr:
    dtype = c.type().dtype
    a = a.cast(dtype) if value == 1 else a.cast(dtype) * scalar_for(value, c.type())
    return x.cast(dtype) + a / b.cast(dtype)


@aten("lerp.Scalar", "lerp.Tensor")
@in_float32
def lerp(c: Call, a: Expr, b: Expr, weight: Operand) -> Expr:
    if not isinstance(weight, Expr):
        # the form that is exact at the nearer end, as torch chooses it
        if isinstance(weight, complex):
            weight_of_a: Number = 1.0 - weight
        elif a.dtype == F32:  # torch's number is one, too, and so is what is left to 1
            weight = float(np.float32(weight))
            weight_of_a = float(np.float32(1.0) - np.float32(weight))
        else:
            weight_of_a = 1.0 - weight
        return a + (b - a) * weight if abs(weight) < 0.5 else b - (b - a) * weight_of_a
    near = a + weight * (b - a)
    return F.where(F.abs(weight) < 0.5, near, b - (b - a) * (1.0 - weight))


_LEAST, _LARGEST = 2.0**-133, 3.3895313892515355e38  # of bfloat16, which has eight digits


@aten("nextafter.default")
def nextafter(c: Call, a: Expr, b: Expr) -> Expr:
    """bfloat16 is held in float32, whose neighbours are others: by its own digits."""
    dtype = c.type().dtype
    if dtype != BF16:
        return F.nextafter(a.cast(dtype), b.cast(dtype))
    x, y = (v.cast(dtype).cast(F32) for v in (a, b))
    now, far = F.detach(x), F.detach(y)
    size = F.abs(now)
    mantissa, _ = F.frexp.multiple(size)
    up, positive = now < far, now > 0.0
    away = F.eq(now, 0.0) | F.eq(up, positive)
    # towards zero from a power of two, digits are half as far apart
    digit = ((away | F.ne(mantissa, 0.5)).cast(F32) + 1.0) * 2.0**-9
    step = F.maximum(size * digit / F.where(F.eq(size, 0.0), 1.0, mantissa), _LEAST)
    moved = now + F.where(up, step, -step)
    moved = F.where(F.isinf(now), (positive.cast(F32) * 2.0 - 1.0) * _LARGEST, moved)
    near = F.nextafter(x, y)  # which has the gradient; the rest of the way is exact
    found = F.where(F.eq(now, far), near, near + (moved - F.detach(near)))
    return F.where(F.eq(found, 0.0) & F.ne(now, 0.0), x * 0.0, found).cast(dtype)  # -0 below 0
