"""Elementwise ops: arithmetic, exponentials, trigonometry, comparisons, selection.

Conventions at ties, bounds and non-smooth points are torch's: relu'(0) = 0, |x|' = sign x,
maximum and minimum split ties in half, clamp passes the gradient at its bounds. Formulas:
Abramowitz & Stegun, chapters 4 (elementary) and 7 (error function).
"""

from __future__ import annotations

import cmath
import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradof.errors import InferenceError
from gradof.ir.attrs import Attr
from gradof.ir.types import BOOL, TensorType, Type
from gradof.ops.complex_numbers import real_dtype
from gradof.ops.cost import CALL, DIVISION
from gradof.ops.expr import Expr, F, zeros_for
from gradof.ops.families import (
    ALL,
    ANY,
    ARITHMETIC,
    INEXACT,
    NUMBERS,
    binary,
    common,
    tensor,
    unary,
)
from gradof.ops.registry import Family, op

LN2, LN10 = math.log(2.0), math.log(10.0)
TWO_OVER_SQRT_PI = 2.0 / math.sqrt(math.pi)

# --- arithmetic ---------------------------------------------------------------------------------

op("add(a, b) -> y", family=binary(ARITHMETIC), traits={"commutative"}, numpy="np.add",
   vjp={"a": lambda g: g, "b": lambda g: g},
   names=["numpy.add"], formula="a + b")
op("sub(a, b) -> y", family=binary(ARITHMETIC), numpy="np.subtract",
   vjp={"a": lambda g: g, "b": lambda g: -g},
   names=["numpy.subtract"], formula="a - b")
op("mul(a, b) -> y", family=binary(ARITHMETIC), traits={"commutative"}, numpy="np.multiply",
   vjp={"a": lambda g, b: g * b, "b": lambda g, a: g * a},
   names=["aten.mul.Tensor", "aten.mul.Scalar", "numpy.multiply"], formula="a*b")
op("div(a, b) -> y", family=binary(INEXACT), cost=DIVISION, numpy="np.true_divide",
   vjp={"a": lambda g, b: g / b, "b": lambda g, b, y: -(g * (y / b))},
   names=["aten.div.Tensor", "aten.div.Scalar", "numpy.true_divide"], formula="a/b",
   domain=((-2, 2), (0.5, 2)))
op("neg(x) -> y", family=unary(ARITHMETIC), numpy="np.negative", vjp={"x": lambda g: -g},
   traits={"linear"}, names=["aten.neg", "numpy.negative"], formula="-x")
op("reciprocal(x) -> y", family=unary(INEXACT), cost=DIVISION, numpy="np.reciprocal",
   scalar=lambda x: 1.0 / x, vjp={"x": lambda g, y: -(g * (y * y))},
   names=["aten.reciprocal", "numpy.reciprocal"], formula="1/x", domain=(0.5, 2))


def _sign_product(g: Expr, x: Expr) -> Expr:
    return g.cast(x.dtype) * F.sgn(x)


def _infer_abs(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    (x,) = unary(ARITHMETIC).infer(inputs, attrs)
    return (tensor(x).with_dtype(real_dtype(tensor(x).dtype)),)


op("abs(x) -> y", family=Family(_infer_abs, frozenset({"elementwise"})), numpy="np.absolute",
   vjp={"x": _sign_product}, traits={"wirtinger"},
   names=["aten.abs", "numpy.absolute", "numpy.fabs"], formula="Abs(x)")
op("square(x) -> y", family=unary(ARITHMETIC), numpy="np.square",
   scalar=lambda x: x * x,
   vjp={"x": lambda g, x: g * (x * 2.0)}, names=["aten.square", "numpy.square"], formula="x**2")


def _pow_base(g: Expr, a: Expr, b: Expr) -> Expr:
    # d/da a^b = b a^(b-1); zero where b is zero, also at a = 0 (torch's convention).
    p = b.scalar
    if p is not None:
        if p == 2:
            return g * (a * 2.0)
        return zeros_for(g) if p == 0 else g * (F.pow(a, p - 1) * p)
    # where that is 0 without being set it stays computed: derived by b, it is a^(b-1) there
    grad = g * (b * F.pow(a, b - 1.0))
    return F.where((b == 0.0) & (grad != grad), 0.0, grad)


def _real_part(x: Expr) -> Expr:
    return F.real(x) if x.dtype.is_complex else x


def _pow_exponent(g: Expr, a: Expr, b: Expr, y: Expr) -> Expr:
    # d/db a^b = a^b log a; zero at a = 0 with b >= 0, where the limit is zero.
    base = a.scalar
    if base is not None:
        if base == 0:
            # below zero y is inf; times -inf, what is not chosen would be nan once more derived
            return g * F.where(_real_part(b) >= 0.0, 0.0, -y)
        if b.dtype.is_complex:
            return g * (y * cmath.log(base))
        log = math.log(base) if base.real > 0 else math.nan  # type: ignore[arg-type]
        return g * (y * log)
    at_zero = F.logical_and(a == 0.0, _real_part(b) >= 0.0) if b.scalar is None else (a == 0.0)
    return g * F.where(at_zero, 0.0, y * F.log(F.where(at_zero, 1.0, a)))


op("pow(a, b) -> y", family=binary(INEXACT), cost=CALL, numpy="np.power",
   vjp={"a": _pow_base, "b": _pow_exponent}, names=["numpy.power", "numpy.float_power"],
   formula="a**b", domain=((0.5, 2), (-2, 2)))


def _fmod_divisor(g: Expr, a: Expr, b: Expr) -> Expr:
    return -(g * F.trunc_divide(a, b))


def _remainder_divisor(g: Expr, a: Expr, b: Expr) -> Expr:
    return -(g * F.floor_divide(a, b))  # floor(a / b) would be inf, not nan, for infinite a


op("fmod(a, b) -> y", family=binary(), cost=CALL, numpy="np.fmod",
   vjp={"a": lambda g: g, "b": _fmod_divisor},
   names=["aten.fmod.Tensor", "aten.fmod.Scalar", "numpy.fmod"], domain=((1.1, 1.9), (2.1, 2.9)))


def _remainder(a: Expr, b: Expr) -> Expr:
    rest = F.fmod(a, b)
    return F.where((rest != 0) & F.logical_xor(rest < 0, b < 0), rest + b, rest)


op("remainder(a, b) -> y", family=binary(), cost=CALL, numpy="np.remainder",
   scalar=_remainder, vjp={"a": lambda g: g, "b": _remainder_divisor},
   names=["aten.remainder.Tensor", "aten.remainder.Scalar", "numpy.remainder"],
   domain=((1.1, 1.9), (2.1, 2.9)))


def _floor_divide(a: Expr, b: Expr) -> Expr | None:
    if not a.dtype.is_float:
        return None
    # a / b may round up to a whole number that it is not; that of what fmod leaves is whole
    rest, quotient = F.fmod(a, b), a / b
    below = (rest != 0.0) & F.logical_xor(rest < 0.0, b < 0.0)
    near = (a - rest) / b
    whole = F.round(F.where(below, near - 1.0, near))
    return F.where(b == 0.0, quotient, F.where(whole == 0.0, quotient * 0.0, whole))


op("floor_divide(a, b) -> y", family=binary(), cost=CALL, numpy="np.floor_divide",
   scalar=_floor_divide, vjp={"a": zeros_for, "b": zeros_for},
   names=["aten.floor_divide", "numpy.floor_divide"])
# Without a gradient of its own the quotient's would be in the way: zero times one that is infinite.
op("trunc_divide(a, b) -> y", family=binary(frozenset({"float"})), numpy="np.trunc({a} / {b})",
   torch="torch.div({a}, {b}, rounding_mode='trunc')", scalar=lambda a, b: F.trunc(a / b),
   vjp={"a": zeros_for, "b": zeros_for})

# --- extrema ------------------------------------------------------------------------------------


def _larger(g: Expr, mine: Expr, other: Expr) -> Expr:
    # asked by what loses, so that both get the gradient where one is nan, as in torch
    return F.where(mine < other, 0.0, F.where(mine == other, g * 0.5, g))


def _smaller(g: Expr, mine: Expr, other: Expr) -> Expr:
    return F.where(mine > other, 0.0, F.where(mine == other, g * 0.5, g))


def _either(a: Expr, b: Expr) -> Expr | None:
    return F.logical_or(a, b) if a.dtype == BOOL else None


def _both(a: Expr, b: Expr) -> Expr | None:
    return F.logical_and(a, b) if a.dtype == BOOL else None


op("maximum(a, b) -> y", family=binary(ANY), traits={"commutative", "selects"}, numpy="np.maximum",
   scalar=_either,
   vjp={"a": lambda g, a, b: _larger(g, a, b), "b": lambda g, a, b: _larger(g, b, a)},
   names=["aten.maximum", "numpy.maximum"], formula="Max(a, b)")
op("minimum(a, b) -> y", family=binary(ANY), traits={"commutative", "selects"}, numpy="np.minimum",
   scalar=_both,
   vjp={"a": lambda g, a, b: _smaller(g, a, b), "b": lambda g, a, b: _smaller(g, b, a)},
   names=["aten.minimum", "numpy.minimum"], formula="Min(a, b)")
op("relu(x) -> y", family=unary(NUMBERS), numpy="np.maximum({x}, 0)",
   traits={"selects"}, scalar=lambda x: F.where(x < 0, 0, x),
   vjp={"x": lambda g, y: F.where(y <= 0.0, 0.0, g)}, names=["aten.relu"], formula="Max(x, 0)")

# --- exponentials, logarithms, roots ------------------------------------------------------------

op("exp(x) -> y", family=unary(INEXACT), cost=CALL, numpy="np.exp", vjp={"x": lambda g, y: g * y},
   names=["aten.exp", "numpy.exp"], formula="exp(x)")
op("exp2(x) -> y", family=unary(INEXACT), cost=CALL, numpy="np.exp2",
   vjp={"x": lambda g, y: g * (y * LN2)},
   names=["aten.exp2", "numpy.exp2"], formula="2**x")
# Not y + 1, which loses exp(x) where x is large and negative.
op("expm1(x) -> y", family=unary(INEXACT), cost=CALL, numpy="np.expm1",
   vjp={"x": lambda g, x: g * F.exp(x)},
   names=["aten.expm1", "numpy.expm1"], formula="exp(x) - 1")
op("log(x) -> y", family=unary(INEXACT), cost=CALL, numpy="np.log", vjp={"x": lambda g, x: g / x},
   names=["aten.log", "numpy.log"], formula="log(x)", domain=(0.3, 3))
op("log2(x) -> y", family=unary(INEXACT), cost=CALL, numpy="np.log2",
   vjp={"x": lambda g, x: g / (x * LN2)},
   names=["aten.log2", "numpy.log2"], formula="log(x)/log(2)", domain=(0.3, 3))
op("log10(x) -> y", family=unary(INEXACT), cost=CALL, numpy="np.log10",
   vjp={"x": lambda g, x: g / (x * LN10)},
   names=["aten.log10", "numpy.log10"], formula="log(x)/log(10)", domain=(0.3, 3))
op("log1p(x) -> y", family=unary(INEXACT), cost=CALL, numpy="np.log1p",
   vjp={"x": lambda g, x: g / (x + 1.0)},
   names=["aten.log1p", "numpy.log1p"], formula="log(1 + x)", domain=(-0.5, 3))
op("sqrt(x) -> y", family=unary(INEXACT), cost=DIVISION, numpy="np.sqrt",
   vjp={"x": lambda g, y: g / (y * 2.0)},
   names=["aten.sqrt", "numpy.sqrt"], formula="sqrt(x)", domain=(0.3, 3))
op("cbrt(x) -> y", family=unary(), cost=CALL, numpy="np.cbrt",
   vjp={"x": lambda g, y: g / (y * y * 3.0)},
   names=["numpy.cbrt"], formula="cbrt(x)", domain=(0.3, 3))
op("rsqrt(x) -> y", family=unary(INEXACT), cost=DIVISION, numpy="1 / np.sqrt({x})",
   scalar=lambda x: 1.0 / F.sqrt(x), vjp={"x": lambda g, y: g * (y * y * y * -0.5)},
   names=["aten.rsqrt"], formula="1/sqrt(x)", domain=(0.3, 3))


def logistic(x: Expr) -> Expr:
    """sigmoid(x), of which neither value nor derivative is a difference of rounded numbers."""
    tail = F.sigmoid(F.where(x > 0.0, -x, x))
    return F.where(x > 0.0, 1.0 - tail, tail)


def _logaddexp_vjp(g: Expr, mine: Expr, other: Expr) -> Expr:
    # not exp(mine - y): inf - inf; not 1 / (exp(other - mine) + 1): its derivative is inf / inf
    return g * logistic(mine - other)


def _logaddexp(a: Expr, b: Expr) -> Expr:
    sum_ = F.where(a >= b, a, b) + F.log1p(F.exp(-F.abs(a - b)))
    return F.where(a == b, a + LN2, sum_)  # infinite ones have no difference


op("logaddexp(a, b) -> y", family=binary(frozenset({"float"})), cost=CALL, numpy="np.logaddexp",
   scalar=_logaddexp,
   vjp={"a": lambda g, a, b: _logaddexp_vjp(g, a, b), "b": lambda g, a, b: _logaddexp_vjp(g, b, a)},
   names=["aten.logaddexp", "numpy.logaddexp"], formula="log(exp(a) + exp(b))")

# --- trigonometric and hyperbolic ---------------------------------------------------------------

op("sin(x) -> y", family=unary(INEXACT), cost=CALL, numpy="np.sin",
   vjp={"x": lambda g, x: g * F.cos(x)},
   names=["aten.sin", "numpy.sin"], formula="sin(x)")
op("cos(x) -> y", family=unary(INEXACT), cost=CALL, numpy="np.cos",
   vjp={"x": lambda g, x: -(g * F.sin(x))},
   names=["aten.cos", "numpy.cos"], formula="cos(x)")
op("tan(x) -> y", family=unary(INEXACT), cost=CALL, numpy="np.tan",
   vjp={"x": lambda g, y: g * (y * y + 1.0)},
   names=["aten.tan", "numpy.tan"], formula="tan(x)", domain=(-1.2, 1.2))
op("asin(x) -> y", family=unary(INEXACT), cost=CALL, numpy="np.arcsin",
   vjp={"x": lambda g, x: g * F.rsqrt(1.0 - x * x)},
   names=["aten.asin", "numpy.arcsin"], formula="asin(x)", domain=(-0.9, 0.9))
op("acos(x) -> y", family=unary(INEXACT), cost=CALL, numpy="np.arccos",
   vjp={"x": lambda g, x: -(g * F.rsqrt(1.0 - x * x))},
   names=["aten.acos", "numpy.arccos"], formula="acos(x)", domain=(-0.9, 0.9))
op("atan(x) -> y", family=unary(INEXACT), cost=CALL, numpy="np.arctan",
   vjp={"x": lambda g, x: g / (x * x + 1.0)},
   names=["aten.atan", "numpy.arctan"], formula="atan(x)")


def _atan2_vjp(g: Expr, a: Expr, b: Expr, numerator: Expr) -> Expr:
    square = a * a + b * b
    origin = square == 0.0  # torch's zero, of all orders
    return F.where(origin, 0.0, g * (numerator / F.where(origin, 1.0, square)))


op("atan2(a, b) -> y", family=binary(frozenset({"float"})), cost=CALL, numpy="np.arctan2",
   vjp={"a": lambda g, a, b: _atan2_vjp(g, a, b, b), "b": lambda g, a, b: _atan2_vjp(g, a, b, -a)},
   names=["aten.atan2", "numpy.arctan2"], formula="atan2(a, b)", domain=((0.5, 2), (0.5, 2)))


op("sinh(x) -> y", family=unary(INEXACT), cost=CALL, numpy="np.sinh",
   vjp={"x": lambda g, x: g * F.cosh(x)},
   names=["aten.sinh", "numpy.sinh"], formula="sinh(x)")
op("cosh(x) -> y", family=unary(INEXACT), cost=CALL, numpy="np.cosh",
   vjp={"x": lambda g, x: g * F.sinh(x)},
   names=["aten.cosh", "numpy.cosh"], formula="cosh(x)")
op("tanh(x) -> y", family=unary(INEXACT), cost=CALL, numpy="np.tanh",
   vjp={"x": lambda g, y: g * (1.0 - y * y)},
   names=["aten.tanh", "numpy.tanh"], formula="tanh(x)")
op("asinh(x) -> y", family=unary(INEXACT), cost=CALL, numpy="np.arcsinh",
   vjp={"x": lambda g, x: g * F.rsqrt(x * x + 1.0)},
   names=["aten.asinh", "numpy.arcsinh"], formula="asinh(x)")


def _acosh_x(g: Expr, x: Expr) -> Expr:
    if x.dtype.is_complex:  # the root of the product has its cut elsewhere
        return g * (F.rsqrt(x - 1.0) * F.rsqrt(x + 1.0))
    return g * F.rsqrt(x * x - 1.0)


op("acosh(x) -> y", family=unary(INEXACT), cost=CALL, numpy="np.arccosh",
   vjp={"x": _acosh_x},
   names=["aten.acosh", "numpy.arccosh"], formula="acosh(x)", domain=(1.2, 3))
op("atanh(x) -> y", family=unary(INEXACT), cost=CALL, numpy="np.arctanh",
   vjp={"x": lambda g, x: g / (1.0 - x * x)},
   names=["aten.atanh", "numpy.arctanh"], formula="atanh(x)", domain=(-0.9, 0.9))


def _np_sigmoid(x: NDArray[Any]) -> NDArray[Any]:
    if x.dtype.kind == "c":
        plain: NDArray[Any] = 1 / (1 + np.exp(-x))
        return plain
    # 0.5 (1 + tanh(x/2)) neither overflows nor loses the tails' sign.
    e = np.exp(-np.abs(x))
    result: NDArray[Any] = np.where(x >= 0, 1, e) / (1 + e)
    return result


op("sigmoid(x) -> y", family=unary(INEXACT), cost=CALL, numpy=_np_sigmoid, torch="torch.sigmoid",
   scalar=lambda x: 1.0 / (1.0 + F.exp(-x)), vjp={"x": lambda g, y: g * ((1.0 - y) * y)},
   names=["aten.sigmoid", "scipy.special.expit"], formula="1/(1 + exp(-x))")

# --- error function -----------------------------------------------------------------------------


def error_function(name: str) -> Callable[..., Any]:
    """scipy's, or Python's own, number by number, where scipy is not there."""
    try:
        special = importlib.import_module("scipy.special")
    except ImportError:
        special = None
    function: Callable[..., Any] = (
        np.frompyfunc(getattr(math, name), 1, 1) if special is None else getattr(special, name)
    )
    return function


def _np_erf(x: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(error_function("erf")(x)).astype(x.dtype, copy=False)


def _np_erfc(x: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(error_function("erfc")(x)).astype(x.dtype, copy=False)


op("erf(x) -> y", family=unary(), cost=CALL, numpy=_np_erf, torch="torch.erf",
   vjp={"x": lambda g, x: g * (F.exp(-(x * x)) * TWO_OVER_SQRT_PI)},
   names=["aten.erf", "scipy.special.erf"], formula="erf(x)")
op("erfc(x) -> y", family=unary(), cost=CALL, numpy=_np_erfc, torch="torch.special.erfc",
   vjp={"x": lambda g, x: -(g * (F.exp(-(x * x)) * TWO_OVER_SQRT_PI))},
   names=["aten.erfc", "scipy.special.erfc"], formula="erfc(x)")

# --- selection ----------------------------------------------------------------------------------


def _infer_where(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    dt, device, shape = common(inputs[1:], ALL)
    cond = tensor(inputs[0], "the condition")
    _, _, full = common([cond, TensorType(cond.dtype, shape, device)], frozenset({"bool"}))
    return (TensorType(dt, full, device),)


op("where(c, a, b) -> y", family=Family(_infer_where, frozenset({"elementwise"})),
   numpy="np.where({c}, {a}, {b})", traits={"selects"},
   vjp={"c": None, "a": lambda g, c: F.where(c, g, 0.0), "b": lambda g, c: F.where(c, 0.0, g)},
   names=["numpy.where"])


def _clamp_vjp(g: Expr, x: Expr, low: float | None, high: float | None) -> Expr:
    inside = None
    if low is not None:
        inside = x >= low
    if high is not None:
        inside = (x <= high) if inside is None else F.logical_and(inside, x <= high)
    return g if inside is None else F.where(inside, g, 0.0)


def _np_clamp(x: NDArray[Any], low: float | None, high: float | None) -> NDArray[Any]:
    # minimum(maximum(x, low), high), so that low > high gives high, as in torch and numpy
    if low is not None:
        x = np.maximum(x, low)
    result: NDArray[Any] = x if high is None else np.minimum(x, high)
    return result.copy() if low is None and high is None else result


def _infer_clamp(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    (result,) = unary(NUMBERS).infer(inputs, {})
    for bound in (attrs["low"], attrs["high"]):
        if isinstance(bound, float) and not tensor(result).dtype.is_float:
            raise InferenceError(f"a float bound does not fit {result}; insert a cast")
    return (result,)


def _clamp(x: Expr, low: float | None, high: float | None) -> Expr:
    x = x if low is None else F.maximum(x, low)
    return x if high is None else F.minimum(x, high)


op("clamp(x; low, high) -> y", family=Family(_infer_clamp, frozenset({"elementwise"})),
   numpy=_np_clamp, scalar=_clamp, traits={"selects"}, vjp={"x": _clamp_vjp},
   doc="Bounds may be None; the gradient passes at the bounds.")
