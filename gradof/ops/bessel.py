"""Bessel, Airy, Kelvin and Struve functions, hypergeometric functions, orthogonal polynomials.

All are functions of scipy.special. Derivatives in the argument follow the recurrences of DLMF, by
section; those in an order or a parameter have no closed form and are refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradof.ops.expr import Expr, F
from gradof.ops.special_functions import (
    ORDER,
    SQRT_PI,
    lowering,
    polynomial,
    several,
    special,
    whole,
)

Array = NDArray[Any]


def _order(v: float, x: Expr) -> Expr:
    """A fixed order as an operand of x's dtype."""
    return F.full.with_emitter(x.emitter)(
        dtype=x.dtype, shape=(), device=x.type.device, value=v
    )


def _slope(prime: Expr, x: Expr, limit: float) -> Expr:
    """prime(x) / x, of an odd function, and its limit at 0."""
    at_zero = x == 0.0
    return F.where(at_zero, limit, prime / F.where(at_zero, 1.0, x))


# --- Bessel functions (DLMF 10) -----------------------------------------------------------------

special("j0(x)", formula="besselj(0, x)", domain=(0.1, 5),
        vjp={"x": lambda g, x: -(g * F.j1(x))})  # 10.6.3
special("y0(x)", formula="bessely(0, x)", domain=(0.3, 5),
        vjp={"x": lambda g, x: -(g * F.y1(x))})
special("k0(x)", formula="besselk(0, x)", domain=(0.3, 4),
        vjp={"x": lambda g, x: -(g * F.k1(x))})  # 10.29.3
special("k0e(x)", formula="exp(x)*besselk(0, x)", domain=(0.3, 4),
        vjp={"x": lambda g, x, y: g * (y - F.k1e(x))})
special("j1(x)", formula="besselj(1, x)", domain=(0.1, 5),
        vjp={"x": lambda g, x, y: g * (F.j0(x) - _slope(y, x, 0.5))})  # 10.6.2
special("y1(x)", formula="bessely(1, x)", domain=(0.3, 5),
        vjp={"x": lambda g, x, y: g * (F.y0(x) - y / x)})
special("k1(x)", formula="besselk(1, x)", domain=(0.3, 4),
        vjp={"x": lambda g, x, y: -(g * (F.k0(x) + y / x))})  # 10.29.2
special("k1e(x)", formula="exp(x)*besselk(1, x)", domain=(0.3, 4),
        vjp={"x": lambda g, x, y: g * (y - F.k0e(x) - y / x)})



def _recurrence(name: str, sign: float, scale: float = 0.5) -> Callable[..., Expr]:
    """The rule g (f_{v-1} + sign f_{v+1}) scale."""
    function = getattr(F, name)

    def rule(g: Expr, v: Expr, x: Expr) -> Expr:
        below, above = function(v - 1.0, x), function(v + 1.0, x)
        both: Expr = below + above if sign > 0 else below - above
        return g * (both * scale)

    return rule


for _name in ("jv", "yv", "jve", "yve"):  # 10.6.1; of real arguments jve is jv, and yve is yv
    special(f"{_name}(v, x)", {"v": ORDER, "x": _recurrence(_name, -1.0)})
special("iv(v, x)", {"v": ORDER, "x": _recurrence("iv", 1.0)})  # 10.29.1
special("kv(v, x)", {"v": ORDER, "x": _recurrence("kv", 1.0, -0.5)})


def _ive_x(g: Expr, v: Expr, x: Expr, y: Expr) -> Expr:
    return g * ((F.ive(v - 1.0, x) + F.ive(v + 1.0, x)) * 0.5 - F.sign(x) * y)


def _kve_x(g: Expr, v: Expr, x: Expr, y: Expr) -> Expr:
    return g * (y - (F.kve(v - 1.0, x) + F.kve(v + 1.0, x)) * 0.5)


special("ive(v, x)", {"v": ORDER, "x": _ive_x})
special("kve(v, x)", {"v": ORDER, "x": _kve_x})


def _half_power(v: Expr, x: Expr) -> Expr:
    """(x/2)^v / (sqrt(pi) gamma(v + 3/2))."""
    return F.pow(x * 0.5, v) / (F.gamma(v + 1.5) * SQRT_PI)


special("struve(v, x)", {  # 11.4.27 and 11.4.28
    "v": ORDER,
    "x": lambda g, v, x:
        g * ((F.struve(v - 1.0, x) - F.struve(v + 1.0, x) + _half_power(v, x)) * 0.5)})
special("modstruve(v, x)", {  # 11.4.29 and 11.4.30
    "v": ORDER,
    "x": lambda g, v, x:
        g * ((F.modstruve(v - 1.0, x) + F.modstruve(v + 1.0, x) + _half_power(v, x)) * 0.5)})
# 10.22.8, 10.43.2, 11.7: integrals from 0
special("itstruve0(x)", {"x": lambda g, x: g * F.struve(_order(0.0, x), x)})
special("itmodstruve0(x)", {"x": lambda g, x: g * F.modstruve(_order(0.0, x), x)})
several("itj0y0(x) -> j, y", {"x": lambda g_j, g_y, x: g_j * F.j0(x) + g_y * F.y0(x)})
several("iti0k0(x) -> i, k", {"x": lambda g_i, g_k, x: g_i * F.i0(x) + g_k * F.k0(x)})
# 10.2.2, 10.25.2 and 11.2.1: the series of what is over x, whose first terms cancel near 0
_J0_REST = [(-1) ** k / (4 ** (k + 1) * math.factorial(k + 1) ** 2) for k in range(7)]
_I0_REST = [abs(c) for c in _J0_REST]
_STRUVE0 = [(-1) ** k * 2 / math.pi / math.prod(range(1, 2 * k + 2, 2)) ** 2 for k in range(7)]


def _even_over(x: Expr, even: Sequence[float], quotient: Callable[[Expr], Expr]) -> Expr:
    """`quotient(x)`, and near 0 the series of its even powers."""
    small = F.abs(x) < 0.5
    return F.where(small, polynomial(x * x, even), quotient(F.where(small, 1.0, x)))


several("it2j0y0(x) -> j, y", {  # of (1 - J0(t))/t from 0, of Y0(t)/t to infinity
    "x": lambda g_j, g_y, x:
        g_j * (x * _even_over(x, _J0_REST, lambda z: (1.0 - F.j0(z)) / (z * z)))
        - g_y * (F.y0(x) / x)})
several("it2i0k0(x) -> i, k", {  # of (I0(t) - 1)/t from 0, of K0(t)/t to infinity
    "x": lambda g_i, g_k, x:
        g_i * (x * _even_over(x, _I0_REST, lambda z: (F.i0(z) - 1.0) / (z * z)))
        - g_k * (F.k0(x) / x)})
special("it2struve0(x)", {"x": lambda g, x: -(g * _even_over(
    x, _STRUVE0, lambda z: F.struve(_order(0.0, z), z) / z))})
special("besselpoly(a, power, v)", {  # of x^power J_v(2 a x) from 0 to 1; 10.6.1
    "power": ORDER, "v": ORDER,
    "a": lambda g, a, power, v:
        g * (F.besselpoly(a, power + 1.0, v - 1.0) - F.besselpoly(a, power + 1.0, v + 1.0))})


def _spherical(name: str, below: float, above: float) -> None:
    """10.51.2 and 10.51.5: (2n + 1) f_n' = below n f_{n-1} + above (n + 1) f_{n+1}.

    Nothing is divided by x, which may be 0.
    """
    kind = f"spherical_{name}"

    def slope(g: Expr, n: Expr, x: Expr) -> Expr:
        f: Callable[..., Expr] = getattr(F, kind)
        lower = F.where(n == 0.0, 0.0, n * f(F.maximum(n - 1.0, 0.0), x))
        return g * ((below * lower + above * (n + 1.0) * f(n + 1.0, x)) / (2.0 * n + 1.0))

    special(f"{kind}(n, x)", {"n": ORDER, "x": slope}, whole(kind))


_spherical("jn", 1.0, -1.0)
_spherical("yn", 1.0, -1.0)
_spherical("in", 1.0, 1.0)
_spherical("kn", -1.0, -1.0)

# --- Airy functions (DLMF 9): w'' = x w ---------------------------------------------------------

several("airy(x) -> ai, aip, bi, bip", {
    "x": lambda g_ai, g_aip, g_bi, g_bip, x, ai, aip, bi, bip:
        g_ai * aip + g_aip * (x * ai) + g_bi * bip + g_bip * (x * bi)})

def _airye_x(
    g_ai: Expr, g_aip: Expr, g_bi: Expr, g_bip: Expr, x: Expr, ai: Expr, aip: Expr, bi: Expr,
    bip: Expr,
) -> Expr:  # fmt: skip
    # Ai and Ai' are scaled by exp(2/3 x^(3/2)), Bi and Bi' by its inverse where x > 0
    root = F.sqrt(x)
    rising = F.where(x > 0.0, root, 0.0)
    first = g_ai * (aip + root * ai) + g_aip * (x * ai + root * aip)
    return first + g_bi * (bip - rising * bi) + g_bip * (x * bi - rising * bip)


several("airye(x) -> ai, aip, bi, bip", {"x": _airye_x})

# --- Kelvin functions: 10.61.3, x^2 w'' + x w' = i x^2 w ----------------------------------------

special("ber(x)", {"x": lambda g, x: g * F.berp(x)})
special("bei(x)", {"x": lambda g, x: g * F.beip(x)})
special("berp(x)", {"x": lambda g, x, y: -(g * (F.bei(x) + _slope(y, x, 0.0)))})
special("beip(x)", {"x": lambda g, x, y: g * (F.ber(x) - _slope(y, x, 0.5))})
special("ker(x)", {"x": lambda g, x: g * F.kerp(x)})
special("kei(x)", {"x": lambda g, x: g * F.keip(x)})
special("kerp(x)", {"x": lambda g, x, y: -(g * (F.kei(x) + y / x))})
special("keip(x)", {"x": lambda g, x, y: g * (F.ker(x) - y / x)})

# --- hypergeometric and parabolic cylinder functions (DLMF 12, 13, 15) --------------------------

special("hyp0f1(b, x)", {"b": ORDER, "x": lambda g, b, x: g * (F.hyp0f1(b + 1.0, x) / b)})  # 16.3.1
special("hyp1f1(a, b, x)", {  # 13.3.15
    "a": ORDER, "b": ORDER,
    "x": lambda g, a, b, x: g * (F.hyp1f1(a + 1.0, b + 1.0, x) * (a / b))})
special("hyperu(a, b, x)", {  # 13.3.22
    "a": ORDER, "b": ORDER, "x": lambda g, a, b, x: -(g * (F.hyperu(a + 1.0, b + 1.0, x) * a))})
special("hyp2f1(a, b, below, x)", {  # 15.5.1
    "a": ORDER, "b": ORDER, "below": ORDER,
    "x": lambda g, a, b, below, x:
        g * (F.hyp2f1(a + 1.0, b + 1.0, below + 1.0, x) * (a * b / below))})
several("pbdv(v, x) -> d, dp", {  # 12.2.2 at a = -v - 1/2, for which D_v(x) = U(a, x)
    "v": ORDER,
    "x": lambda g_d, g_dp, v, x, d, dp: g_d * dp + g_dp * ((x * x * 0.25 - v - 0.5) * d)})
several("pbvv(v, x) -> w, wp", {
    "v": ORDER,
    "x": lambda g_w, g_wp, v, x, w, wp: g_w * wp + g_wp * ((x * x * 0.25 - v - 0.5) * w)})
several("pbwa(a, x) -> w, wp", {  # 12.14.1
    "a": ORDER,
    "x": lambda g_w, g_wp, a, x, w, wp: g_w * wp + g_wp * ((a - x * x * 0.25) * w)})

special("wright_bessel(a, b, x)", {  # 10.46.1
    "a": ORDER, "b": ORDER, "x": lambda g, a, b, x: g * F.wright_bessel(a, a + b, x)})
special("lpmv(m, v, x)", {  # 14.10.5
    "m": ORDER, "v": ORDER,
    "x": lambda g, m, v, x, y:
        g * (((m - v - 1.0) * F.lpmv(m, v + 1.0, x) + (v + 1.0) * x * y) / (1.0 - x * x))})



def _beside(n: Expr, m: Expr, theta: Expr, step: float) -> Expr:
    """sqrt((n - m)(n + m + 1)) P_n^{m+1}, or with m - 1 the same of -m: no order is above n."""
    size = F.maximum((n - step * m) * (n + step * m + 1.0), 0.0)
    return F.sqrt(size) * F.sph_legendre_p(n, m + step, theta)


special("sph_legendre_p(n, m, theta)", {  # ladder operators, which divide by no sine
    "n": ORDER, "m": ORDER,
    "theta": lambda g, n, m, theta:  # scipy takes an angle beyond [0, pi] for its mirror image
        F.where(F.sin(theta) < 0.0, g * -0.5, g * 0.5)
        * (_beside(n, m, theta, 1.0) - _beside(n, m, theta, -1.0))},
    lambda *operands: np.reshape(  # scipy's has a first axis of 1
        whole("sph_legendre_p", 2)(*operands), np.broadcast_shapes(*map(np.shape, operands))))

# --- orthogonal polynomials (DLMF 18.9.15 to 18.9.28) -------------------------------------------


def _by_degree(name: str) -> Callable[..., Any]:
    """The polynomial; where all degrees are whole, by the recurrence scipy has for these."""
    real, recurrence = lowering(name), whole(name)

    def call(n: Array, *operands: Array) -> Any:
        is_whole = "hermite" in name or (np.floor(n) == n).all()
        return recurrence(n, *operands) if is_whole else real(n, *operands)

    return call


def _below(name: str, n: Expr, *operands: Expr) -> Expr:
    """The polynomial of degree n - 1; zero for the degree 0, whose derivative this is part of."""
    at_zero = n == 0.0
    return F.where(at_zero, 0.0, getattr(F, name)(F.where(at_zero, 0.0, n - 1.0), *operands))


def _polynomial(name: str, parameters: str, slope: Callable[..., Expr]) -> None:
    order = dict.fromkeys([p for p in parameters.split(", ") if p], ORDER)
    inputs = ", ".join(p for p in ("n", parameters, "x") if p)
    op = f"eval_{name}"
    special(f"{op}({inputs})", {"n": ORDER, **order, "x": slope}, numpy=_by_degree(op))


_polynomial("jacobi", "a, b", lambda g, n, a, b, x: g * (
    _below("eval_jacobi", n, a + 1.0, b + 1.0, x) * ((n + a + b + 1.0) * 0.5)))
_polynomial("gegenbauer", "a", lambda g, n, a, x: g * (
    _below("eval_gegenbauer", n, a + 1.0, x) * (a * 2.0)))
_polynomial("legendre", "", lambda g, n, x:
            g * _below("eval_gegenbauer", n, _order(1.5, x), x))
_polynomial("chebyt", "", lambda g, n, x: g * (_below("eval_chebyu", n, x) * n))
_polynomial("chebyu", "", lambda g, n, x:
            g * (_below("eval_gegenbauer", n, _order(2.0, x), x) * 2.0))
_polynomial("genlaguerre", "a", lambda g, n, a, x:
            -(g * _below("eval_genlaguerre", n, a + 1.0, x)))
_polynomial("laguerre", "", lambda g, n, x:
            -(g * _below("eval_genlaguerre", n, _order(1.0, x), x)))
_polynomial("hermite", "", lambda g, n, x: g * (_below("eval_hermite", n, x) * (n * 2.0)))
_polynomial("hermitenorm", "", lambda g, n, x: g * (_below("eval_hermitenorm", n, x) * n))
