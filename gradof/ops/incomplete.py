"""Incomplete gamma and beta functions differentiated in their parameters.

>>> F.gammainc_moment(a, x, n=1, upper=False)      # the derivative of gammainc(a, x) in a

With the densities q of the gamma and the beta distribution (8.8.13, 8.17.1 of DLMF), the moments of
what their logarithms' derivatives are in the parameters,

    N_n(a, x) = int_0^x (log t - psi(a))^n q(t) dt,

are a family that is closed under differentiation: dN_n/da = N_(n+1) - n psi'(a) N_(n-1). They are
integrals over log t (or log t/(1 - t)) of functions whose logarithm is concave, cut where it is 45
below its top, on panels that grow with the distance from there, by Gauss-Legendre's rule.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradof.ops.cost import CALL
from gradof.ops.expr import Expr, F
from gradof.ops.families import FLOATS, binary
from gradof.ops.registry import op
from gradof.ops.special import scipy_special

Array = NDArray[Any]
_PANELS = 6
_DROP = 45.0  # e^-45 is 3e-20
_CHUNK = 2048  # elements integrated at once


@functools.cache
def _rule() -> tuple[Array, Array]:
    """Nodes and weights; numpy.polynomial is loaded where they are needed."""
    nodes, weights = np.polynomial.legendre.leggauss(24)
    return nodes, weights


def _reach(log_q: Callable[[Array], Array], top: Array, sign: float, limit: Array) -> Array:
    """How far from the top the function is worth integrating, at most `limit`."""
    start = log_q(top)
    high = np.full_like(top, 1e-4)
    for _ in range(70):
        near = (start - log_q(top + sign * high) < _DROP) & (high < limit)
        if not near.any():
            break
        high = np.where(near, 2 * high, high)
    return np.minimum(high, limit)


def _side(
    log_q: Callable[[Array], Array], factor: Callable[[Array], Array], top: Array, sign: float,
    limit: Array,
) -> tuple[Array, Array]:  # fmt: skip
    """Integrals of q and of factor * q from the top to one side, q relative to its top."""
    reach = _reach(log_q, top, sign, limit)
    first = np.minimum(reach / 16, 0.25)
    ratio = np.where(reach > 0, reach / np.where(first > 0, first, 1.0), 1.0) ** (1 / _PANELS)
    plain, moment = np.zeros_like(top), np.zeros_like(top)
    start, level = np.zeros_like(top), log_q(top)
    for k in range(_PANELS + 1):
        stop = first * ratio**k
        for node, weight in zip(*_rule(), strict=True):
            at = top + sign * (start + (stop - start) * (0.5 + 0.5 * node))
            value = np.exp(log_q(at) - level) * (0.5 * weight * (stop - start))
            plain += value
            moment += value * factor(at)
        start = stop
    return plain, moment


def _moment(
    log_q: Callable[[Array], Array], factor: Callable[[Array], Array], peak: Array, cut: Array,
    upper: bool, whole: Array,
) -> Array:
    """The moment on one side of the cut, where the integral of q there is `whole`."""
    sign = 1.0 if upper else -1.0
    beyond = (peak < cut) if upper else (peak > cut)  # the peak is not on this side
    top = np.where(beyond, cut, peak)
    far = _side(log_q, factor, top, sign, np.full_like(top, np.inf))
    near = _side(log_q, factor, top, -sign, np.abs(top - cut))
    total = far[0] + near[0]
    return np.asarray(whole * (far[1] + near[1]) / total)


def _in_chunks(function: Callable[..., Array], dtype: Any, *operands: Any) -> Array:
    arrays = np.broadcast_arrays(*(np.asarray(x, np.float64) for x in operands))
    flat = [a.reshape(-1) for a in arrays]
    made = np.empty(flat[0].size)
    with np.errstate(all="ignore"):
        for i in range(0, made.size, _CHUNK):
            made[i : i + _CHUNK] = function(*(f[i : i + _CHUNK] for f in flat))
    return made.reshape(arrays[0].shape).astype(dtype)


def _dtype(*operands: Any) -> Any:
    found = (x.dtype for x in operands if isinstance(x, (np.ndarray, np.generic)))
    return next(d for d in found if d.kind == "f")


def _np_gamma_moment(a: Array, x: Array, *, n: int, upper: bool) -> Array:
    special = scipy_special

    def one(a: Array, x: Array) -> Array:
        good = (a > 0) & (x > 0) & np.isfinite(a) & np.isfinite(x)
        b, y = np.where(good, a, 1.0), np.where(good, x, 1.0)
        psi = special("digamma")(b)
        whole = special("gammaincc" if upper else "gammainc")(b, y)
        made = _moment(
            lambda v: b * v - np.exp(v), lambda v: (v - psi) ** n, np.log(b), np.log(y), upper,
            whole,
        )  # fmt: skip
        ends = np.where((x == 0) | (x == np.inf), _ends(a, x, n, upper), np.nan)
        return np.where(good, made, ends)

    def _ends(a: Array, x: Array, n: int, upper: bool) -> Array:
        # nothing is left on one side; on the other, the moment is that of the whole
        of_two = special("polygamma")(1, a) if n == 2 else np.nan
        full = (1.0, 0.0)[n] if n < 2 else of_two
        return np.where((x == 0) == upper, full, 0.0)

    return _in_chunks(one, _dtype(a, x), a, x)


def gamma_density(a: Expr, x: Expr) -> Expr:
    """8.8.13: the derivative of P(a, x), x^(a-1) e^-x / gamma(a)."""
    return F.exp(F.xlogy(a - 1.0, x) - x - F.lgamma(a))


def _gamma_a(g: Expr, a: Expr, x: Expr, n: int, upper: bool) -> Expr:
    slope = F.gammainc_moment(a, x, n=n + 1, upper=upper)
    if n:
        below = F.gammainc_moment(a, x, n=n - 1, upper=upper)
        slope = slope - F.polygamma(a, n=1) * below * float(n)
    return g * slope


def _power(x: Expr, n: int) -> Expr | float:
    result: Expr | float = 1.0
    for _ in range(n):
        result = x * result
    return result


def _gamma_x(g: Expr, a: Expr, x: Expr, n: int, upper: bool) -> Expr:
    value = g * gamma_density(a, x) * _power(F.log(x) - F.digamma(a), n)
    return -value if upper else value


op("gammainc_moment(a, x; n, upper) -> y", family=binary(FLOATS), cost=CALL,
   numpy=_np_gamma_moment, vjp={"a": _gamma_a, "x": _gamma_x}, domain=((0.5, 3), (0.5, 3)),
   doc="The integral of (log t - psi(a))^n over the gamma density below x, or above it.")


def _np_beta_moment(a: Array, b: Array, x: Array, *, n: int, m: int, upper: bool) -> Array:
    special = scipy_special

    def one(a: Array, b: Array, x: Array) -> Array:
        good = (a > 0) & (b > 0) & (x > 0) & (x < 1)
        p, q, y = (np.where(good, v, 0.5) for v in (a, b, x))
        alpha = special("digamma")(p) - special("digamma")(p + q)
        beta = special("digamma")(q) - special("digamma")(p + q)
        whole = special("betaincc" if upper else "betainc")(p, q, y)

        def factor(w: Array) -> Array:
            logs: Array = (-np.logaddexp(0, -w) - alpha) ** n * (-np.logaddexp(0, w) - beta) ** m
            return logs

        made = _moment(
            lambda w: -p * np.logaddexp(0, -w) - q * np.logaddexp(0, w), factor, np.log(p / q),
            np.log(y) - np.log1p(-y), upper, whole,
        )  # fmt: skip
        empty = ((x <= 0) != upper) & (n + m < 2)  # a mean of the whole is zero, too
        return np.where(good, made, np.where(empty | (n + m == 1), 0.0, np.nan))

    return _in_chunks(one, _dtype(a, b, x), a, b, x)


def beta_density(a: Expr, b: Expr, x: Expr) -> Expr:
    """8.17.1: the derivative of I_x(a, b), x^(a-1) (1-x)^(b-1) / B(a, b)."""
    return F.exp(F.xlogy(a - 1.0, x) + F.xlog1py(b - 1.0, -x) - F.betaln(a, b))


def _beta_slope(
    a: Expr, b: Expr, x: Expr, n: int, m: int, upper: bool, of_a: bool
) -> Expr:
    def moment(n: int, m: int) -> Expr:
        return F.betainc_moment(a, b, x, n=n, m=m, upper=upper)

    both = F.polygamma(a + b, n=1)
    own = F.polygamma(a if of_a else b, n=1) - both
    slope = moment(n + 1, m) if of_a else moment(n, m + 1)
    if n:
        slope = slope - (own if of_a else -both) * moment(n - 1, m) * float(n)
    if m:
        slope = slope - (-both if of_a else own) * moment(n, m - 1) * float(m)
    return slope


def _beta_x(g: Expr, a: Expr, b: Expr, x: Expr, n: int, m: int, upper: bool) -> Expr:
    total = F.digamma(a + b)
    left = _power(F.log(x) - F.digamma(a) + total, n)
    right = _power(F.log1p(-x) - F.digamma(b) + total, m)
    value = g * beta_density(a, b, x) * left * right
    return -value if upper else value


op("betainc_moment(a, b, x; n, m, upper) -> y", family=binary(FLOATS), cost=CALL,
   numpy=_np_beta_moment,
   vjp={"a": lambda g, a, b, x, n, m, upper: g * _beta_slope(a, b, x, n, m, upper, True),
        "b": lambda g, a, b, x, n, m, upper: g * _beta_slope(a, b, x, n, m, upper, False),
        "x": _beta_x}, domain=((0.5, 3), (0.5, 3), (0.1, 0.9)),
   doc="The integral of (log t - E)^n (log(1 - t) - E)^m over the beta density below x, or above.")


def gamma_slope(a: Expr, x: Expr, upper: bool = False) -> Expr:
    """The derivative of the incomplete gamma function in a."""
    return F.gammainc_moment(a, x, n=1, upper=upper)


def beta_slopes(a: Expr, b: Expr, x: Expr, upper: bool = False) -> tuple[Expr, Expr]:
    """The derivatives of the incomplete beta function in a and in b."""
    return (F.betainc_moment(a, b, x, n=1, m=0, upper=upper),
            F.betainc_moment(a, b, x, n=0, m=1, upper=upper))
