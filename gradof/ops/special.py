"""Special functions (Abramowitz & Stegun; DLMF). The numpy lowerings need scipy.

>>> F.lgamma(x)                      # df: g * digamma(x), whose df is polygamma(x, n=1), ...
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradof.errors import CodegenError
from gradof.ir.types import F64
from gradof.ops.cost import CALL
from gradof.ops.elementwise import LN2, logistic
from gradof.ops.expr import Expr, F
from gradof.ops.families import binary, unary
from gradof.ops.registry import op

Array = NDArray[Any]
FLOAT = frozenset({"float"})
SQRT_HALF, SQRT_PI, SQRT_TWO_PI = math.sqrt(0.5), math.sqrt(math.pi), math.sqrt(2.0 * math.pi)


def scipy_special(name: str) -> Callable[..., Any]:
    """`scipy.special.<name>`, loaded when it is called; CodegenError without scipy."""
    try:
        module = importlib.import_module("scipy.special")
    except ModuleNotFoundError:
        raise CodegenError(
            f"{name} needs scipy where the arrays are numpy's", hint="pip install scipy"
        ) from None
    function: Callable[..., Any] = getattr(module, name)
    return function


def _lowering(name: str) -> Callable[..., Array]:
    def call(*operands: Array) -> Array:
        result: Array = np.asarray(scipy_special(name)(*operands))
        return result.astype(operands[0].dtype, copy=False)

    return call


# --- gamma --------------------------------------------------------------------------------------

op("lgamma(x) -> y", family=unary(), cost=CALL, numpy=_lowering("gammaln"), torch="torch.lgamma",
   vjp={"x": lambda g, x: g * F.digamma(x)}, names=["aten.lgamma", "scipy.special.gammaln"],
   formula="loggamma(x)", domain=(0.5, 4))


def _digamma(x: Expr) -> Expr:
    """On [1, 2] Boost's quotient times the distance from the root, which cancels nowhere.

    Beyond 10 the asymptotic series; steps of 1 between them; below 0 the reflection.
    """
    below = x < 0.0
    y = F.where(below, 1.0 - x, x)
    far = y >= 10.0
    steps = F.where(y < 1.0, -1.0 / y, 0.0)
    near = F.where(far, 1.0, F.where(y < 1.0, y + 1.0, y))
    for _ in range(8):
        over = near > 2.0
        near = F.where(over, near - 1.0, near)
        steps = steps + F.where(over, 1.0 / near, 0.0)
    quotient = _horner(near - 1.0, _DIGAMMA_P) / _horner(near - 1.0, _DIGAMMA_Q)
    away = (near - 1.4616321325302124) - 1.2438149938918909e-08
    middle = away * 0.99558162689208984 + away * quotient + steps
    top = F.where(far, y, 10.0)
    w = 1.0 / (top * top)
    series = F.log(top) - 0.5 / top - w * _horner(w, _DIGAMMA_SERIES)
    value = F.where(far, series, middle)
    rest = x - F.floor(x + 0.5)
    turn = rest * math.pi
    mirrored = value - math.pi * F.cos(turn) / F.sin(turn)
    return F.where(below, F.where(rest == 0.0, math.nan, mirrored), value)


def _horner(x: Expr, coefficients: Sequence[float]) -> Expr:
    """A polynomial; the first coefficient is that of the highest power."""
    result: Any = coefficients[0]
    for coefficient in coefficients[1:]:
        result = x * result + coefficient
    assert isinstance(result, Expr)
    return result


_DIGAMMA_P = (-0.0020713321167745952, -0.045251321448739056, -0.28919126444774784,
              -0.65031853770896507, -0.32555031186804491, 0.25479851061131551)
_DIGAMMA_Q = (-0.55789841321675513e-6, 0.0021284987017821144, 0.054151797245674225,
              0.43593529692665969, 1.4606242909763515, 2.0767117023730469, 1.0)
_DIGAMMA_SERIES = (1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12)


op("digamma(x) -> y", family=unary(), cost=CALL, numpy=_lowering("digamma"), torch="torch.digamma",
   scalar=_digamma,
   vjp={"x": lambda g, x: g * F.polygamma(x, n=1)}, names=["aten.digamma", "scipy.special.psi"],
   formula="digamma(x)", domain=(0.5, 4))


def _np_polygamma(x: Array, *, n: int) -> Array:
    result: Array = np.asarray(scipy_special("polygamma")(n, x)).astype(x.dtype, copy=False)
    return result


op("polygamma(x; n) -> y", family=unary(), cost=CALL, numpy=_np_polygamma,
   torch="torch.polygamma({n}, {x})", vjp={"x": lambda g, x, n: g * F.polygamma(x, n=n + 1)},
   formula="polygamma(n, x)", domain=(0.5, 4))

# --- error function and normal distribution -----------------------------------------------------

op("erfinv(x) -> y", family=unary(), cost=CALL, numpy=_lowering("erfinv"), torch="torch.erfinv",
   vjp={"x": lambda g, y: g * (F.exp(y * y) * (SQRT_PI / 2.0))},
   names=["aten.erfinv", "scipy.special.erfinv"], formula="erfinv(x)", domain=(-0.9, 0.9))


def far_slope(x: Expr, near: Expr, far: Expr, factor: float) -> Expr:
    """A slope `near` that is a difference of near numbers where x is `far`, |x| of 10 or more.

    There it is `factor` times the sum over k >= 1 of (2k - 1)!! t^k (DLMF 7.12.1). For dawsn the
    factor is -1 and t is 1/(2x^2); for erfcx it is 2/sqrt(pi), and t is -1/(2x^2).
    """
    over = 1.0 / F.where(far, x, 10.0)
    t = over * over * (-0.5 if factor > 0 else 0.5)
    total: Expr | float = 1.0
    for k in range(15, 0, -1):
        total = t * total * (2.0 * k + 1.0) + 1.0
    return F.where(far, t * total * factor, near)


op("erfcx(x) -> y", family=unary(), cost=CALL, numpy=_lowering("erfcx"),
   torch="torch.special.erfcx",
   vjp={"x": lambda g, x, y: g * far_slope(
       x, x * y * 2.0 - 2.0 / SQRT_PI, x > 10.0, 2.0 / SQRT_PI)},
   names=["aten.special_erfcx", "scipy.special.erfcx"], formula="exp(x**2)*erfc(x)")


def _ndtr(x: Expr) -> Expr:
    return F.erfc(x * -SQRT_HALF) * 0.5  # 1 + erf would lose the lower tail


op("ndtr(x) -> y", family=unary(), expand=_ndtr, names=["scipy.special.ndtr"],
   formula="erfc(-x/sqrt(2))/2")


def _log_ndtr(x: Expr) -> Expr:
    # in the lower tail erfc is small, and erfcx is what it is times exp(t t)
    t = x * SQRT_HALF
    low = F.log(F.erfcx(-t) * 0.5) - t * t
    return F.where(x < -1.0, low, F.log1p(F.erfc(t) * -0.5))


def _inverse_mills_slope(g: Expr, x: Expr, y: Expr) -> Expr:
    # -y (y + x), in which y and -x cancel far below zero, where y is -x - 1/x + 2/x^3 - 10/x^5 ...
    far = x < (-100.0 if x.dtype == F64 else -12.0)
    w = 1.0 / F.square(F.where(far, x, 1.0))
    series = -1.0 + w * (1.0 + w * (-6.0 + w * (50.0 + w * -518.0)))
    return g * F.where(far, series, -(y * (y + F.where(far, 0.0, x))))


def _np_inverse_mills(x: Array) -> Array:
    with np.errstate(divide="ignore"):  # far out the distribution function is 0
        result: Array = (2.0 / SQRT_TWO_PI) / _lowering("erfcx")(x * -SQRT_HALF)
    return result


# The density over the distribution function of the normal distribution.
op("inverse_mills(x) -> y", family=unary(), cost=CALL, numpy=_np_inverse_mills,
   torch=f"({2.0 / SQRT_TWO_PI!r} / torch.special.erfcx({{x}} * {-SQRT_HALF!r}))",
   scalar=lambda x: (2.0 / SQRT_TWO_PI) / F.erfcx(x * -SQRT_HALF),
   vjp={"x": _inverse_mills_slope}, formula="sqrt(2/pi)*exp(-x**2/2)/erfc(-x/sqrt(2))")
op("log_ndtr(x) -> y", family=unary(), cost=CALL, numpy=_lowering("log_ndtr"),
   torch="torch.special.log_ndtr", names=["aten.special_log_ndtr", "scipy.special.log_ndtr"],
   scalar=_log_ndtr, vjp={"x": lambda g, x: g * F.inverse_mills(x)},
   formula="log(erfc(-x/sqrt(2))/2)")
op("ndtri(x) -> y", family=unary(), cost=CALL, numpy=_lowering("ndtri"),
   torch="torch.special.ndtri",
   vjp={"x": lambda g, y: g * (F.exp(y * y * 0.5) * SQRT_TWO_PI)},
   names=["aten.special_ndtri", "scipy.special.ndtri"],
   formula="sqrt(2)*erfinv(2*x - 1)", domain=(0.1, 0.9))

# --- Bessel -------------------------------------------------------------------------------------


def _over_x(y: Expr, x: Expr, scaled: bool = False) -> Expr:
    """I1(x)/x, by its series near 0; `scaled` by exp(-|x|)."""
    near = F.abs(x) < 1e-3  # a quotient's own derivative would subtract equal numbers there
    small = F.where(near, x, 0.0)
    series = small * small * 0.0625 + 0.5
    series = series * F.exp(-F.abs(small)) if scaled else series
    return F.where(near, series, y / F.where(near, 1.0, x))


op("i0(x) -> y", family=unary(), cost=CALL, numpy=_lowering("i0"), torch="torch.special.i0",
   vjp={"x": lambda g, x: g * F.i1(x)}, names=["aten.i0", "scipy.special.i0"],
   formula="besseli(0, x)", domain=(0.1, 2))
op("i1(x) -> y", family=unary(), cost=CALL, numpy=_lowering("i1"), torch="torch.special.i1",
   vjp={"x": lambda g, x, y: g * (F.i0(x) - _over_x(y, x))},
   names=["aten.special_i1", "scipy.special.i1"], formula="besseli(1, x)", domain=(0.1, 2))
op("i0e(x) -> y", family=unary(), cost=CALL, numpy=_lowering("i0e"), torch="torch.special.i0e",
   vjp={"x": lambda g, x, y: g * (F.i1e(x) - F.sign(x) * y)},
   names=["aten.special_i0e", "scipy.special.i0e"], formula="exp(-x)*besseli(0, x)",
   domain=(0.1, 2), doc="exp(-|x|) I0(x); the formula is of x > 0.")
op("i1e(x) -> y", family=unary(), cost=CALL, numpy=_lowering("i1e"), torch="torch.special.i1e",
   vjp={"x": lambda g, x, y: g * (F.i0e(x) - _over_x(y, x, True) - F.sign(x) * y)},
   names=["aten.special_i1e", "scipy.special.i1e"], formula="exp(-x)*besseli(1, x)",
   domain=(0.1, 2), doc="exp(-|x|) I1(x); the formula is of x > 0.")

# --- logarithms with a zero ---------------------------------------------------------------------


def _np_xlogy(a: Array, b: Array) -> Array:
    result: Array = np.where((a == 0) & ~np.isnan(b), 0, a * np.log(b))
    return result


def _np_xlog1py(a: Array, b: Array) -> Array:
    result: Array = np.where((a == 0) & ~np.isnan(b), 0, a * np.log1p(b))
    return result


def _xlogy_a(g: Expr, a: Expr, b: Expr) -> Expr:
    b = F.cast(b, dtype=a.dtype)  # it may be a number
    none = (a == 0.0) & (b <= 0.0)
    return F.where(none, 0.0, F.xlogy(g, F.where(none, 1.0, b)))


def _xlog1py_a(g: Expr, a: Expr, b: Expr) -> Expr:
    b = F.cast(b, dtype=a.dtype)
    none = (a == 0.0) & (b <= -1.0)
    return F.where(none, 0.0, F.xlog1py(g, F.where(none, 0.0, b)))


op("xlogy(a, b) -> y", family=binary(FLOAT), cost=CALL, numpy=_np_xlogy, torch="torch.xlogy",
   scalar=lambda a, b: F.where((a == 0.0) & (b == b), 0.0, a * F.log(b)),
   vjp={"a": _xlogy_a, "b": lambda g, a, b: g * (a / b)}, names=["scipy.special.xlogy"],
   formula="a*log(b)", domain=((-2, 2), (0.3, 3)), doc="0 where a is 0, whatever b (but nan).")
op("xlog1py(a, b) -> y", family=binary(FLOAT), cost=CALL, numpy=_np_xlog1py,
   torch="torch.special.xlog1py",
   scalar=lambda a, b: F.where((a == 0.0) & (b == b), 0.0, a * F.log1p(b)),
   vjp={"a": _xlog1py_a, "b": lambda g, a, b: g * (a / (b + 1.0))},
   names=["scipy.special.xlog1py"], formula="a*log(1 + b)", domain=((-2, 2), (-0.5, 3)))


def _np_entr(x: Array) -> Array:
    inside = -x * np.log(np.where(x > 0, x, 1))
    result: Array = np.where(x > 0, inside, np.where(x == 0, 0, np.where(x < 0, -np.inf, x)))
    return result


def _entr_x(g: Expr, x: Expr) -> Expr:
    return -g * (F.log(x) + 1.0)  # infinite at 0, and nan below, where entr is minus infinity


def _entr(x: Expr) -> Expr:
    return F.where(x > 0.0, -x * F.log(x), F.where(x < 0.0, -math.inf, x))


op("entr(x) -> y", family=unary(), cost=CALL, numpy=_np_entr, torch="torch.special.entr",
   scalar=_entr, vjp={"x": _entr_x}, formula="-x*log(x)", domain=(0.3, 3),
   names=["aten.special_entr", "scipy.special.entr"])


def _logit(x: Expr, eps: float | None) -> Expr:
    if eps is not None:
        x = F.clamp(x, low=float(eps), high=1.0 - float(eps))
    return F.log(x / (1.0 - x))


def _logit_x(g: Expr, x: Expr, eps: float | None) -> Expr:
    slope = g / (x * (1.0 - x))  # that of the quotient's parts would be infinity minus infinity
    if eps is None:
        return F.where((x < 0.0) | (x > 1.0), math.nan, slope)
    return F.where((x >= float(eps)) & (x <= 1.0 - float(eps)), slope, 0.0)


op("logit(x; eps) -> y", family=unary(), cost=CALL, expand=_logit, vjp={"x": _logit_x},
   formula="log(x/(1 - x))", domain=(0.1, 0.9),
   doc="With eps not None, of x clamped to [eps, 1 - eps].")


def _sinc(x: Expr) -> Expr:
    z = x * math.pi
    at_zero = z == 0.0
    safe = F.where(at_zero, 1.0, z)
    return F.where(at_zero, 1.0, F.sin(safe) / safe)


def _sinc_x(g: Expr, x: Expr) -> Expr:
    # (cos z - sin(z)/z)/z at z = pi x; near 0, where it cancels, the sum of
    # (-1)^k 2k z^(2k-1)/(2k+1)!
    z = x * math.pi
    near = F.abs(z) < 1.0
    small, far = F.where(near, z, 0.0), F.where(near, 1.0, z)
    square, series = small * small, small * 0.0
    for k in range(10, 0, -1):
        series = series * square + (-1) ** k * 2 * k / math.factorial(2 * k + 1)
    return g * (F.where(near, small * series, (F.cos(far) - F.sin(far) / far) / far) * math.pi)


op("sinc(x) -> y", family=unary(), expand=_sinc, cost=CALL, vjp={"x": _sinc_x},
   formula="sin(pi*x)/(pi*x)", domain=(0.4, 2), doc="sin(pi x) / (pi x), 1 at 0.")


def _logaddexp2(a: Expr, b: Expr) -> Expr:
    sum_ = F.where(a >= b, a, b) + F.log1p(F.exp2(-F.abs(a - b))) * (1 / LN2)
    return F.where(a == b, a + 1.0, sum_)  # infinite ones have no difference


def _logaddexp2_vjp(g: Expr, mine: Expr, other: Expr) -> Expr:
    return g * logistic((mine - other) * LN2)


op("logaddexp2(a, b) -> y", family=binary(FLOAT), cost=CALL, numpy="np.logaddexp2",
   scalar=_logaddexp2,
   vjp={"a": lambda g, a, b: _logaddexp2_vjp(g, a, b),
        "b": lambda g, a, b: _logaddexp2_vjp(g, b, a)},
   names=["aten.logaddexp2", "numpy.logaddexp2"], formula="log(2**a + 2**b)/log(2)")
op("hypot(a, b) -> y", family=binary(FLOAT), cost=CALL, numpy="np.hypot",
   vjp={"a": lambda g, a, y: g * (a / y), "b": lambda g, b, y: g * (b / y)},
   names=["numpy.hypot"], formula="sqrt(a**2 + b**2)", domain=((0.5, 2), (0.5, 2)))
