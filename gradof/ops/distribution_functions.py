"""Distribution functions of scipy.special (chdtr, fdtr, stdtr, pdtr, bdtr, ...) and their inverses.

They are incomplete gamma and beta functions in other variables. Where a parameter counts, it has no
gradient.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gradof.ir.attrs import Attr
from gradof.ir.types import TensorType, Type
from gradof.ops.expr import Expr, F
from gradof.ops.families import FLOATS, common
from gradof.ops.incomplete import beta_density, beta_slopes, gamma_density, gamma_slope
from gradof.ops.registry import Family, Rule, op
from gradof.ops.special_functions import special, whole


def _t_density(df: Expr, t: Expr) -> Expr:
    half = (df + 1.0) * 0.5
    scale = F.exp(F.lgamma(half) - F.lgamma(df * 0.5)) / F.sqrt(df * math.pi)
    return scale * F.exp(-(half * F.log1p(t * t / df)))


def _f_density(m: Expr, n: Expr, x: Expr) -> Expr:
    """I_z(m/2, n/2) at z = m x / (n + m x)."""
    whole = n + m * x
    return beta_density(m * 0.5, n * 0.5, m * x / whole) * (m * n / (whole * whole))


def _chi_density(v: Expr, x: Expr) -> Expr:
    return gamma_density(v * 0.5, x * 0.5) * 0.5


special("chdtr(v, x)", {"v": lambda g, v, x: g * gamma_slope(v * 0.5, x * 0.5) * 0.5,
                        "x": lambda g, v, x: g * _chi_density(v, x)})
special("chdtrc(v, x)", {"v": lambda g, v, x: g * gamma_slope(v * 0.5, x * 0.5, upper=True) * 0.5,
                         "x": lambda g, v, x: -(g * _chi_density(v, x))})
special("chdtri(v, p)", {"v": lambda g, v, y: g * (
    gamma_slope(v * 0.5, y * 0.5, upper=True) * 0.5 / _chi_density(v, y)),
                         "p": lambda g, v, y: -(g / _chi_density(v, y))})
special("gdtr(a, b, x)", {"a": lambda g, a, b, x: g * (gamma_density(b, a * x) * x),
                          "b": lambda g, a, b, x: g * gamma_slope(b, a * x),
                          "x": lambda g, a, b, x: g * (gamma_density(b, a * x) * a)})
special("gdtrc(a, b, x)", {"a": lambda g, a, b, x: -(g * (gamma_density(b, a * x) * x)),
                           "b": lambda g, a, b, x: g * gamma_slope(b, a * x, upper=True),
                           "x": lambda g, a, b, x: -(g * (gamma_density(b, a * x) * a))})
def _f_slopes(m: Expr, n: Expr, x: Expr) -> tuple[Expr, Expr]:
    """The derivatives of fdtr in m and n: z = m x / (n + m x) moves with them, too."""
    whole = n + m * x
    z = m * x / whole
    in_a, in_b = beta_slopes(m * 0.5, n * 0.5, z)
    moved = beta_density(m * 0.5, n * 0.5, z) * x / (whole * whole)
    return in_a * 0.5 + moved * n, in_b * 0.5 - moved * m


special("fdtr(m, n, x)", {"m": lambda g, m, n, x: g * _f_slopes(m, n, x)[0],
                          "n": lambda g, m, n, x: g * _f_slopes(m, n, x)[1],
                          "x": lambda g, m, n, x: g * _f_density(m, n, x)})
special("fdtrc(m, n, x)", {"m": lambda g, m, n, x: -(g * _f_slopes(m, n, x)[0]),
                           "n": lambda g, m, n, x: -(g * _f_slopes(m, n, x)[1]),
                           "x": lambda g, m, n, x: -(g * _f_density(m, n, x))})
special("fdtri(m, n, p)", {
    "m": lambda g, m, n, y: -(g * _f_slopes(m, n, y)[0] / _f_density(m, n, y)),
    "n": lambda g, m, n, y: -(g * _f_slopes(m, n, y)[1] / _f_density(m, n, y)),
    "p": lambda g, m, n, y: g / _f_density(m, n, y)})


def _t_slope(df: Expr, t: Expr) -> Expr:
    """The derivative of stdtr in df: half of I_z(df/2, 1/2) at z = df/(df + t^2), by sides."""
    whole = df + t * t
    z = df / whole
    half = df * 0.0 + t * 0.0 + 0.5
    slope = beta_slopes(df * 0.5 + half * 0.0, half, z)[0] * 0.5
    # the density in z, times dz/ddf = t^2 / whole^2; at t = 0 their product has the limit 0
    zero = t == 0.0
    safe = F.where(zero, 0.5, z)
    moved = beta_density(df * 0.5, half, safe) * (t * t) / (whole * whole)
    value = (slope + F.where(zero, 0.0, moved)) * 0.5
    return F.where(t > 0.0, -value, F.where(zero, 0.0, value))


special("stdtr(df, t)", {"df": lambda g, df, t: g * _t_slope(df, t),
                         "t": lambda g, df, t: g * _t_density(df, t)})
special("stdtrit(df, p)", {"df": lambda g, df, y: -(g * _t_slope(df, y) / _t_density(df, y)),
                           "p": lambda g, df, y: g / _t_density(df, y)})
# k successes: sums of probabilities, which the incomplete functions give; k and n are whole
_KN = {"k": None, "n": None}
special("pdtr(k, m)", {"k": None, "m": lambda g, k, m: -(g * gamma_density(F.floor(k) + 1.0, m))})
special("pdtrc(k, m)", {"k": None, "m": lambda g, k, m: g * gamma_density(F.floor(k) + 1.0, m)})
special("pdtri(k, p)",
        {"k": None, "p": lambda g, k, y: -(g / gamma_density(F.trunc(k) + 1.0, y))},
        whole("pdtri"))
_SUMS: dict[str, tuple[str, Callable[..., Expr]]] = {
    "bdtr": ("p", lambda g, k, n, p: -(g * beta_density(n - k, k + 1.0, 1.0 - p))),
    "bdtrc": ("p", lambda g, k, n, p: g * beta_density(n - k, k + 1.0, 1.0 - p)),
    "bdtri": ("q", lambda g, k, n, y: -(g / beta_density(n - k, k + 1.0, 1.0 - y))),
    "nbdtr": ("p", lambda g, k, n, p: g * beta_density(n, k + 1.0, p)),
    "nbdtrc": ("p", lambda g, k, n, p: -(g * beta_density(n, k + 1.0, p))),
    "nbdtri": ("q", lambda g, k, n, y: g / beta_density(n, k + 1.0, y)),
}


def _of_counts(rule: Callable[..., Expr], last: str) -> Rule:
    """The rule for what scipy makes of k and n, whose fractions it cuts off."""
    if last == "p":
        return lambda g, k, n, p: rule(g, F.trunc(k), F.trunc(n), p)
    return lambda g, k, n, y: rule(g, F.trunc(k), F.trunc(n), y)


for _name, (_last, _rule) in _SUMS.items():
    special(f"{_name}(k, n, {_last})", _KN | {_last: _of_counts(_rule, _last)}, whole(_name, 2))


def _tails(x: Expr, shape: Expr, y: Expr) -> tuple[Expr, Expr, Expr]:
    """Where the distribution has a density, and its parts below and above x.

    By symmetry the upper one is the lower one of -x, which 1 - y is not where y rounds to 1.
    """
    upper = F.tklmbda(-x, shape)
    inside = (y > 0.0) & (upper > 0.0)
    return inside, F.where(inside, y, 0.5), F.where(inside, upper, 0.5)


def _tukey_density(lower: Expr, upper: Expr, shape: Expr) -> Expr:
    return 1.0 / (F.pow(lower, shape - 1.0) + F.pow(upper, shape - 1.0))


def _bend(t: Expr) -> Expr:
    """((t - 1) e^t + 1) / t^2, by its series near 0: the sum of t^k / (k! (k + 2))."""
    near = F.abs(t) < 0.5
    small, large = F.where(near, t, 0.0), F.where(near, 1.0, t)
    series = small * 0.0
    for k in range(14, -1, -1):
        series = series * small + 1.0 / (math.factorial(k) * (k + 2))
    return F.where(near, series, ((large - 1.0) * F.exp(large) + 1.0) / F.square(large))


def _tukey_x(g: Expr, x: Expr, shape: Expr, y: Expr) -> Expr:
    inside, lower, upper = _tails(x, shape, y)
    return F.where(inside, g * _tukey_density(lower, upper, shape), 0.0)


def _tukey_shape(g: Expr, x: Expr, shape: Expr, y: Expr) -> Expr:
    # x is (lower^shape - upper^shape)/shape; its slope in shape at a fixed y, over that in y
    inside, lower, upper = _tails(x, shape, y)
    is_low = lower < 0.5
    logs = (F.where(is_low, F.log(lower), F.log1p(-upper)),
            F.where(is_low, F.log1p(-lower), F.log(upper)))  # fmt: skip
    first, second = (F.square(log) * _bend(shape * log) for log in logs)
    slope = (first - second) * _tukey_density(lower, upper, shape)
    return F.where(inside, -(g * slope), 0.0)


special("tklmbda(x, shape)", {"x": _tukey_x, "shape": _tukey_shape})

# --- quantiles that are found as roots ----------------------------------------------------------


def _infer_quantile(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    dtype, device, shape = common(inputs, FLOATS)
    assert shape is not None
    return (TensorType(dtype, shape, device),)


def _np_quantile(*xs: Any, dist: str, method: str) -> Any:
    stats: Any = importlib.import_module("scipy.stats")
    q, *shapes = xs
    found = getattr(getattr(stats, dist), method.removeprefix("_"))(q, *shapes)
    return np.asarray(found, np.result_type(*xs))


op("quantile_of(*xs; dist, method) -> y", family=Family(_infer_quantile), numpy=_np_quantile,
   vjp={"xs": None},
   doc="A quantile of a distribution of scipy.stats; a constant to those who refine it.")
