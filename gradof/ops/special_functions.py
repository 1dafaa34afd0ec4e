"""Functions of scipy.special without a counterpart among torch's ops; all of them need scipy.

Gamma and beta functions, integrals of the exponential and the normal density, elliptic integrals,
distribution functions. DLMF: the NIST Digital Library of Mathematical Functions, by section.

Derivatives in parameters that are no elementary functions (of the incomplete gamma function in its
order, say) are refused. Near a removable singularity a power series stands in for the quotient.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradof.errors import InferenceError
from gradof.ir.attrs import Attr
from gradof.ir.types import TensorType, Type
from gradof.ops.cost import CALL
from gradof.ops.expr import Expr, F, zeros_for
from gradof.ops.families import FLOATS, binary, common, composite
from gradof.ops.incomplete import beta_density, beta_slopes, gamma_density, gamma_slope
from gradof.ops.registry import Family, Op, Refused, Rule, op
from gradof.ops.special import far_slope, scipy_special

Array = NDArray[Any]
SQRT_PI, SQRT_TWO_PI = math.sqrt(math.pi), math.sqrt(2.0 * math.pi)
ORDER = Refused("a derivative in an order or a parameter has no closed form")


def lowering(name: str) -> Callable[..., Any]:
    """A ufunc of scipy.special in the dtype of its operands, some of which may be plain numbers."""

    def call(*operands: Array) -> Any:
        results = scipy_special(name)(*operands)
        parts = results if isinstance(results, tuple) else (results,)
        arrays = [x for x in operands if isinstance(x, (np.ndarray, np.generic))]
        dtype = next(x.dtype for x in arrays if x.dtype.kind == "f")
        same = tuple(np.asarray(r).astype(dtype, copy=False) for r in parts)
        return same if isinstance(results, tuple) else same[0]

    return call


def whole(name: str, count: int = 1) -> Callable[..., Any]:
    """The same with the first `count` operands, whole numbers, as integers (beside doubles)."""
    function = lowering(name)

    def call(*operands: Array) -> Any:
        numbers = (np.asarray(x).astype(np.int64) for x in operands[:count])
        others = (np.asarray(x, dtype=np.float64) for x in operands[count:])
        return function(*numbers, *others).astype(operands[-1].dtype, copy=False)

    return call


def special(
    schema: str, vjp: Mapping[str, Rule | None], numpy: Callable[..., Any] | None = None,
    formula: str | None = None, domain: Any = (-2.0, 2.0),
) -> Op:
    """An elementwise op that is the function of scipy.special of the same name."""
    name = schema.partition("(")[0]
    return op(f"{schema} -> y", family=binary(FLOATS), cost=CALL, vjp=vjp,
              numpy=numpy or lowering(name), names=[f"scipy.special.{name}"], formula=formula,
              domain=domain)  # fmt: skip


def several(schema: str, vjp: Mapping[str, Rule | None]) -> Op:
    """The same with several results."""
    count = schema.partition("->")[2].count(",") + 1

    def infer(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
        dtype, device, shape = common(inputs, FLOATS)
        if shape is None:
            raise InferenceError("this op needs operands of known shape")
        return (TensorType(dtype, shape, device),) * count

    name = schema.partition("(")[0]
    return op(schema, family=Family(infer), vjp=vjp, numpy=lowering(name),
              names=[f"scipy.special.{name}"])  # fmt: skip


def polynomial(x: Expr, coefficients: Sequence[float]) -> Expr:
    """c0 + c1 x + c2 x^2 + ..., by Horner's rule."""
    result: Any = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        result = x * result + c
    assert isinstance(result, Expr)
    return result


def near_zero(x: Expr, series: Sequence[float], quotient: Callable[[Expr], Expr]) -> Expr:
    """A power series where |x| is small, and `quotient(x)`, which is singular at 0, elsewhere."""
    small = F.abs(x) < 0.04
    return F.where(small, polynomial(x, series), quotient(F.where(small, 1.0, x)))


# --- gamma and beta functions (DLMF 5) ----------------------------------------------------------


def _rgamma_slope(x: Expr, y: Expr) -> Expr:
    """The derivative of y = 1/gamma(x), also at the poles of gamma, by reflection (5.5.3)."""
    # 1/gamma(x) = sin(pi x) gamma(1 - x)/pi
    left = x < 0.5
    z = 1.0 - F.where(left, x, 0.0)
    turn = x * math.pi
    reflected = F.gamma(z) * (F.cos(turn) - F.sin(turn) * F.digamma(z) / math.pi)
    return F.where(left, reflected, -(y * F.digamma(F.where(left, 1.0, x))))


def _is_pole(x: Expr) -> Expr:
    return (x <= 0.0) & (F.floor(x) == x)


def _binom(g: Expr, n: Expr, k: Expr, y: Expr, in_n: bool) -> Expr:
    # 1.2.6 by logarithms, and where k or n - k is a negative number, by 1/gamma, which is 0 there
    one, other = k + 1.0, n - k + 1.0
    pole = _is_pole(one) | _is_pole(other)
    inverse, rest = F.rgamma(one), F.rgamma(other)
    moved = inverse * _rgamma_slope(other, rest)
    moved = moved if in_n else _rgamma_slope(one, inverse) * rest - moved
    a, b = F.where(pole, 1.0, one), F.where(pole, 1.0, other)
    upper = F.where(pole, 1.0, n + 1.0) if in_n else b
    logs = F.digamma(upper) - F.digamma(b if in_n else a)
    direct = F.gamma(F.where(pole, n + 1.0, 1.0)) * moved
    if in_n:
        direct = direct + y * F.digamma(F.where(pole, n + 1.0, 1.0))
    return g * F.where(pole, direct, y * logs)


special("gamma(x)", formula="gamma(x)", domain=(0.5, 4),
        vjp={"x": lambda g, x, y: g * (y * F.digamma(x))})  # 5.2.2
special("rgamma(x)", formula="1/gamma(x)", domain=(0.6, 4),
        vjp={"x": lambda g, x, y: g * _rgamma_slope(x, y)})
special("gammasgn(x)", {"x": zeros_for})
# 5.12.1 and 5.2.2
special("beta(a, b)", formula="gamma(a)*gamma(b)/gamma(a + b)", domain=(0.5, 3),
        vjp={"a": lambda g, a, b, y: g * (y * (F.digamma(a) - F.digamma(a + b))),
             "b": lambda g, a, b, y: g * (y * (F.digamma(b) - F.digamma(a + b)))})
special("betaln(a, b)", formula="loggamma(a) + loggamma(b) - loggamma(a + b)", domain=(0.5, 3),
        vjp={"a": lambda g, a, b: g * (F.digamma(a) - F.digamma(a + b)),
             "b": lambda g, a, b: g * (F.digamma(b) - F.digamma(a + b))})
# 1.2.6: gamma(n + 1) / (gamma(k + 1) gamma(n - k + 1))
special(
    "binom(n, k)", formula="gamma(n + 1)/(gamma(k + 1)*gamma(n - k + 1))",
    domain=((3, 5), (0.3, 2.3)),
    vjp={"n": lambda g, n, k, y: _binom(g, n, k, y, in_n=True),
         "k": lambda g, n, k, y: _binom(g, n, k, y, in_n=False)})
# 5.2.5: gamma(z + m) / gamma(z)
def _poch_z(g: Expr, z: Expr, m: Expr, y: Expr) -> Expr:
    # where z is a pole of gamma: by 1/gamma, and for a whole m by reflection, as a product of m
    pole = _is_pole(z)
    product = pole & (F.floor(m) == m)
    low, high = F.where(product, z, 0.0), F.where(product, m, 0.0)
    left = 1.0 - low - high
    inverse = F.rgamma(left)
    turned = -F.gamma(1.0 - low) * (F.digamma(1.0 - low) * inverse + _rgamma_slope(left, inverse))
    turned = turned * F.cos(high * math.pi)
    z = F.where(product, 1.0, z)
    smooth = F.gamma(F.where(product, 1.0, z + m)) * _rgamma_slope(z, F.rgamma(z))
    safe = F.where(pole, 1.0, z)
    logs = y * (F.digamma(F.where(pole, 1.0, z + m)) - F.digamma(safe))
    return g * F.where(product, turned, F.where(pole, smooth, logs))


special("poch(z, m)", formula="gamma(z + m)/gamma(z)", domain=(0.5, 3),
        vjp={"z": _poch_z,
             "m": lambda g, z, m, y: g * (y * F.digamma(z + m))})
# 25.11.17, Hurwitz: d/dq zeta(s, q) = -s zeta(s + 1, q)
op("hurwitz_zeta(s, q) -> y", family=binary(FLOATS), cost=CALL, numpy=lowering("zeta"),
   vjp={"s": ORDER, "q": lambda g, s, q: g * (-s * F.hurwitz_zeta(s + 1.0, q))})


special("gammainc(a, x)", {"a": lambda g, a, x: g * gamma_slope(a, x),
                           "x": lambda g, a, x: g * gamma_density(a, x)})
special("gammaincc(a, x)", {"a": lambda g, a, x: g * gamma_slope(a, x, upper=True),
                            "x": lambda g, a, x: -(g * gamma_density(a, x))})
special("gammaincinv(a, p)", {"a": lambda g, a, y: -(g * gamma_slope(a, y) / gamma_density(a, y)),
                              "p": lambda g, a, y: g / gamma_density(a, y)})
special("gammainccinv(a, p)", {
    "a": lambda g, a, y: g * gamma_slope(a, y, upper=True) / gamma_density(a, y),
    "p": lambda g, a, y: -(g / gamma_density(a, y))})
special("betainc(a, b, x)", {
    "a": lambda g, a, b, x: g * beta_slopes(a, b, x)[0],
    "b": lambda g, a, b, x: g * beta_slopes(a, b, x)[1],
    "x": lambda g, a, b, x: g * beta_density(a, b, x)})
special("betaincc(a, b, x)", {
    "a": lambda g, a, b, x: g * beta_slopes(a, b, x, upper=True)[0],
    "b": lambda g, a, b, x: g * beta_slopes(a, b, x, upper=True)[1],
    "x": lambda g, a, b, x: -(g * beta_density(a, b, x))})
special("betaincinv(a, b, p)", {
    "a": lambda g, a, b, y: -(g * beta_slopes(a, b, y)[0] / beta_density(a, b, y)),
    "b": lambda g, a, b, y: -(g * beta_slopes(a, b, y)[1] / beta_density(a, b, y)),
    "p": lambda g, a, b, y: g / beta_density(a, b, y)})
special("betainccinv(a, b, p)", {
    "a": lambda g, a, b, y: g * beta_slopes(a, b, y, upper=True)[0] / beta_density(a, b, y),
    "b": lambda g, a, b, y: g * beta_slopes(a, b, y, upper=True)[1] / beta_density(a, b, y),
    "p": lambda g, a, b, y: -(g / beta_density(a, b, y))})

# --- error functions and related integrals (DLMF 6, 7) ------------------------------------------


def _logit_x(g: Expr, x: Expr) -> Expr:
    at_end = (x == 0.0) | (x == 1.0)  # infinite there, from either side, as in torch
    safe = F.where(at_end, 0.25, x)
    slope = F.where(at_end, math.inf, 1.0 / (safe * (1.0 - safe)))  # times g: once more derived,
    return g * F.where((x < 0.0) | (x > 1.0), math.nan, slope)  # g * inf aside would be nan


op("logit_of(x) -> y", family=binary(FLOATS), cost=CALL, numpy=lowering("logit"),
   vjp={"x": _logit_x},
   names=["scipy.special.logit"], doc="log(x/(1 - x))")
special("erfcinv(x)", formula="erfinv(1 - x)", domain=(0.2, 1.8),
        vjp={"x": lambda g, y: -(g * (F.exp(y * y) * (SQRT_PI / 2.0)))})
special("erfi(x)", formula="erfi(x)",
        vjp={"x": lambda g, x: g * (F.exp(x * x) * (2.0 / SQRT_PI))})
special("dawsn(x)", formula="sqrt(pi)/2*exp(-x**2)*erfi(x)",  # 7.10.1 for 7.2.5; 7.12.1
        vjp={"x": lambda g, x, y: g * far_slope(x, 1.0 - x * y * 2.0, F.abs(x) > 10.0, -1.0)})
# 7.2.7, 7.2.8
several("fresnel(x) -> s, c", {
    "x": lambda g_s, g_c, x:
        g_s * F.sin(x * x * (math.pi / 2)) + g_c * F.cos(x * x * (math.pi / 2))})
_SIN_OVER = [(-1) ** k / math.factorial(2 * k + 1) for k in range(6)]
_SINH_OVER = [abs(c) for c in _SIN_OVER]


def _over(x: Expr, function: Any, even: Sequence[float]) -> Expr:
    """function(x) / x, with the series of its even powers near 0."""
    small = F.abs(x) < 0.2
    safe = F.where(small, 1.0, x)
    return F.where(small, polynomial(x * x, even), function(safe) / safe)


# 6.2.9 to 6.2.16
several("sici(x) -> si, ci", {
    "x": lambda g_si, g_ci, x: g_si * _over(x, F.sin, _SIN_OVER) + g_ci * (F.cos(x) / x)})
several("shichi(x) -> shi, chi", {
    "x": lambda g_shi, g_chi, x: g_shi * _over(x, F.sinh, _SINH_OVER) + g_chi * (F.cosh(x) / x)})
special("expi(x)", formula="Ei(x)", domain=(0.3, 3),
        vjp={"x": lambda g, x: g * (F.exp(x) / x)})  # 6.2.5
special("exp1(x)", formula="expint(1, x)", domain=(0.3, 3),
        vjp={"x": lambda g, x: -(g * (F.exp(-x) / x))})  # 6.2.1


def _expn_x(g: Expr, n: Expr, x: Expr) -> Expr:
    # 8.19.13: E_n' = -E_{n-1}; E_0 is exp(-x)/x
    below = F.where(n < 1.0, F.exp(-x) * (x + 1.0) / (x * x), F.expn(F.maximum(n - 1.0, 0.0), x))
    return -(g * below)


special("expn(n, x)", {"n": ORDER, "x": _expn_x}, whole("expn"))
_EXPREL = [1 / math.factorial(k + 2) * (k + 1) for k in range(11)]
special("exprel(x)", {  # (exp(x) - 1)/x; its derivative is (exp(x) - y)/x
    "x": lambda g, x: g * near_zero(
        x, _EXPREL, lambda z: (F.exp(z) - F.expm1(z) / z) / z)})
_LOG_OVER = [(-1) ** k / (k + 1) for k in range(13)]


def log1p_over(x: Expr) -> Expr:
    """log(1 + x)/x, 1 at 0."""
    return near_zero(x, _LOG_OVER, lambda z: F.log1p(z) / z)


# 25.12.1 at 1 - x: log(x)/(1 - x)
def composed(schema: str, expand: Callable[..., Expr]) -> Op:
    """A function of scipy.special that a few ops make up, without a loss of digits."""
    name = schema.partition("(")[0]
    return op(f"{schema} -> result", family=composite(expand, elementwise=True), expand=expand,
              names=[f"scipy.special.{name}"])  # fmt: skip


def _boxcox(x: Expr, power: Expr, plus: float) -> Expr:
    # (e^(power log x) - 1)/power, also at power 0; at x = 0 a power of 0
    zero = (x + plus == 0.0) & (power > 0.0)
    safe = F.where(zero, 1.0, x)
    logarithm = F.log1p(safe) if plus else F.log(safe)
    exponent = F.where(zero, power, 1.0)
    ending = (F.pow(F.where(zero, x + plus, 1.0), exponent) - 1.0) / exponent
    growth = F.where((x + plus == 0.0) & (power == 0.0), 0.0, power * logarithm)
    return F.where(zero, ending, logarithm * F.exprel(growth))


composed("boxcox(x, power)", lambda x, power: _boxcox(x, power, 0.0))
composed("boxcox1p(x, power)", lambda x, power: _boxcox(x, power, 1.0))
composed("inv_boxcox(y, power)", lambda y, power: F.exp(y * log1p_over(power * y)))
composed("inv_boxcox1p(y, power)", lambda y, power: F.expm1(y * log1p_over(power * y)))
special("spence(x)", {"x": lambda g, x: -(g * log1p_over(x - 1.0))})
special("owens_t(h, a)", {  # Owen (1956), 2.1 and 2.3
    "h": lambda g, h, a: g * (F.exp(h * h * -0.5) * F.erf(a * h * math.sqrt(0.5))
                              * (-0.5 / SQRT_TWO_PI)),
    "a": lambda g, h, a: g * (F.exp(h * h * (a * a + 1.0) * -0.5) / (a * a + 1.0)
                              / (2.0 * math.pi))})
special("wrightomega(x)", formula="LambertW(exp(x))",
        vjp={"x": lambda g, y: g * (y / (y + 1.0))})  # 4.13.1 at exp(x)
special("ndtri_exp(x)", {  # the inverse of log_ndtr
    "x": lambda g, x, y: g * (F.exp(x + y * y * 0.5) * SQRT_TWO_PI)})

# --- elliptic integrals (DLMF 19), m = k^2 --------------------------------------------------------

_K = [math.pi / 2 * (math.comb(2 * n, n) / 4**n) ** 2 for n in range(14)]  # 19.5.1
_K_PRIME = [n * _K[n] for n in range(1, 14)]
_E_PRIME = [-n * _K[n] / (2 * n - 1) for n in range(1, 14)]  # 19.5.2


def _ellipk_prime(m: Expr) -> Expr:
    # 19.4.1
    return near_zero(
        m, _K_PRIME, lambda z: (F.ellipe(z) / (1.0 - z) - F.ellipk(z)) / (z * 2.0))


def _ellipkm1_prime(p: Expr) -> Expr:
    # the same at m = 1 - p, without the loss of small p
    series = polynomial(1.0 - p, _K_PRIME)
    near = F.abs(1.0 - p) < 0.04
    q = F.where(near, 0.5, p)
    direct = (F.ellipe(1.0 - q) / q - F.ellipkm1(q)) / ((1.0 - q) * 2.0)
    return -F.where(near, series, direct)


special("ellipk(m)", formula="elliptic_k(m)", domain=(0.1, 0.9),
        vjp={"m": lambda g, m: g * _ellipk_prime(m)})
special("ellipkm1(p)", formula="elliptic_k(1 - p)", domain=(0.1, 0.9),
        vjp={"p": lambda g, p: g * _ellipkm1_prime(p)})
special("ellipe(m)", formula="elliptic_e(m)", domain=(0.1, 0.9),
        vjp={"m": lambda g, m: g * near_zero(
    m, _E_PRIME, lambda z: (F.ellipe(z) - F.ellipk(z)) / (z * 2.0))})  # 19.4.2


def _delta(phi: Expr, m: Expr) -> Expr:
    return F.sqrt(1.0 - m * F.square(F.sin(phi)))


def _sine_series(phi: Expr, m: Expr, power: float) -> Expr:
    """The integral of sin^2 (1 - m sin^2)^-power from 0 to phi, by powers of m (|m| < 0.04)."""
    sine, cosine = F.sin(phi), F.cos(phi)
    whole, odd, coefficient = phi, sine, 1.0
    terms: list[Expr] = []
    for k in range(1, 13):
        whole = (whole * (2.0 * k - 1.0) - odd * cosine) / (2.0 * k)  # of sin^2k
        terms.append(whole * coefficient)
        odd, coefficient = odd * F.square(sine), coefficient * (power + k - 1.0) / k
    total = terms[-1]
    for term in reversed(terms[:-1]):
        total = total * m + term
    return total


def _ellipkinc_m(g: Expr, phi: Expr, m: Expr, y: Expr) -> Expr:
    # 19.4.6, and near m = 0 the integral's own series
    small = F.abs(m) < 0.04
    near = _sine_series(phi, F.where(small, m, 0.0), 1.5)
    m = F.where(small, 0.5, m)
    first = (F.ellipeinc(phi, m) / (1.0 - m) - F.where(small, 0.0, y)) / m
    slope = first - F.sin(phi) * F.cos(phi) / ((1.0 - m) * _delta(phi, m))
    return g * (F.where(small, near, slope) * 0.5)


def _ellipeinc_m(g: Expr, phi: Expr, m: Expr, y: Expr) -> Expr:
    # 19.4.7, and near m = 0 the integral's own series
    small = F.abs(m) < 0.04
    near = _sine_series(phi, F.where(small, m, 0.0), 0.5)
    m = F.where(small, 0.5, m)
    slope = (F.ellipkinc(phi, m) - F.where(small, 0.0, y)) / m
    return g * (F.where(small, near, slope) * -0.5)


special("ellipkinc(phi, m)", {"phi": lambda g, phi, m: g / _delta(phi, m), "m": _ellipkinc_m})
special("ellipeinc(phi, m)", {"phi": lambda g, phi, m: g * _delta(phi, m), "m": _ellipeinc_m})
several("ellipj(u, m) -> sn, cn, dn, ph", {  # 22.13.1 to 22.13.3; 22.16.1
    "u": lambda g_sn, g_cn, g_dn, g_ph, m, sn, cn, dn:
        g_sn * (cn * dn) - g_cn * (sn * dn) - g_dn * (m * sn * cn) + g_ph * dn,
    "m": ORDER})



def _agm(a: Expr, b: Expr) -> Expr:
    # 19.8.5; where the sum is zero so is it, and its slopes are those of equal numbers
    half = a * 0.5 + b * 0.5
    simple = (half == 0.0) | (F.isinf(half) & (a * b > 0.0))
    scale = F.where(simple, 1.0, half)
    ratio = F.where(simple, 1.0, (a / scale) * (b / scale))
    mean = scale * (math.pi / 2) / F.ellipkm1(ratio)
    return F.where(simple, half, mean)


composed("agm(a, b)", _agm)
