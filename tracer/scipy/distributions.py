"""scipy.stats: densities, distribution functions and quantiles of univariate distributions.

What is written in numpy and special functions in scipy's own code (`_logpdf`, `_cdf`, ...) is
recorded from there, by a twin. The checks around it, which scipy makes by masks whose number of
elements depends on values, are selections here.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gradof.tracer.numpy.functions import as_array
from gradof.tracer.numpy.recorder import contains_traced
from gradof.tracer.scipy.calls import scipy_function
from gradof.tracer.scipy.emit import emit
from gradof.tracer.scipy.twins import twin_of

_BASE = "scipy.stats._distn_infrastructure"
_CONTINUOUS, _DISCRETE = f"{_BASE}.rv_continuous", f"{_BASE}.rv_discrete"


class _Call:
    """A call of a method: its distribution's twin, standardised operands, and their checks."""

    def __init__(self, dist: Any, x: Any, args: Any, kwds: Any) -> None:
        self.twin = twin_of(dist)
        shapes, loc, scale = dist._parse_args(*args, **kwds)
        self.shapes = tuple(map(_double, shapes))
        self.loc, self.scale, self.x = _double(loc), _double(scale), _double(x)
        self.low, self.high = self.twin._get_support(*self.shapes)
        self.valid = self.twin._argcheck(*self.shapes) & np.greater(self.scale, 0)

    @property
    def standard(self) -> Any:
        """The operand of a standardised distribution."""
        return (self.x - self.loc) / self.scale

    def inside(self, y: Any, within: Any) -> Any:
        """The operand where it is within, and a point of the support elsewhere."""
        return np.where(within, y, _middle(self.low, self.high))

    def choose(self, where: Any, value: Any, other: Any, y: Any) -> Any:
        """A value, another one outside, and nan where there is none."""
        chosen = np.where(where, value, other)
        return np.where(self.valid & (y == y), chosen, np.nan)


def _double(value: Any) -> Any:
    """As scipy does, whose densities of single precision are of double precision."""
    array = as_array(value)
    return array if array.dtype == np.float64 else array.astype(np.float64)


def _is_generic(twin: Any, method: str) -> bool:
    """Whether a distribution has no such method of its own."""
    owner = next(c for c in type(twin).__mro__[1:] if method in vars(c))
    return owner.__name__ in ("rv_generic", "rv_continuous")


def _value(call: _Call, method: str, y: Any) -> Any:
    """A method of a standardised distribution."""
    twin, shapes = call.twin, call.shapes
    if method in _OWN.get(twin.name, {}):
        return _OWN[twin.name][method](y, *shapes)
    if method in ("_logcdf", "_logsf") and _is_generic(twin, method):
        one, other = ("_cdf", "_sf") if method == "_logcdf" else ("_sf", "_cdf")
        near, far = _value(call, one, y), _value(call, other, y)
        small = near < 0.5
        return np.where(small, np.log(np.where(small, near, 0.5)),
                        np.log1p(-np.where(small, 0.5, far)))  # fmt: skip
    if method in ("_ppf", "_isf") and (twin.name in _INVERTED or (
        _is_generic(twin, "_ppf") and _is_generic(twin, method)
    )):  # fmt: skip
        return _inverted(call, method, y)
    return getattr(twin, method)(y, *shapes)


# Their quantiles are ufuncs of scipy's own, whose derivatives are known by the distribution.
_INVERTED = frozenset({"invgauss", "wald", "skewnorm", "cosine"})


def _inverted(call: _Call, method: str, q: Any) -> Any:
    """A quantile that scipy finds as a root, with its derivatives.

    Two steps of Newton's from the root, which is a constant to them, leave it where it is; the
    second's derivatives are those of the quantile up to the third.
    """
    y = emit("quantile_of", q, *call.shapes, dist=call.twin.name, method=method)
    for _ in range(2):
        slope = _value(call, "_pdf", y)
        miss = _value(call, "_cdf", y) - q if method == "_ppf" else q - _value(call, "_sf", y)
        y = y - miss / slope
    return y


def _log_mass(a: Any, b: Any) -> Any:
    """The logarithm of the normal distribution's probability between a and b."""
    # on the side of the tail, where the difference keeps its digits
    turned = a > 0
    low, high = np.where(turned, -b, a), np.where(turned, -a, b)
    tail = high <= 0
    log_ndtr, ndtr = _special("log_ndtr"), _special("ndtr")
    inner_low, inner_high = np.where(tail, low, -2.0), np.where(tail, high, -1.0)
    top, bottom = log_ndtr(inner_high), log_ndtr(inner_low)
    at_tail = top + np.log1p(-np.exp(bottom - top))
    middle = np.log1p(-ndtr(np.where(tail, -1.0, low)) - ndtr(-np.where(tail, 1.0, high)))
    return np.where(tail, at_tail, middle)


def _normal_log(y: Any) -> Any:
    return -0.5 * y * y - 0.5 * math.log(2.0 * math.pi)


def _triangle(y: Any, c: Any, rising: Any, falling: Any) -> Any:
    left = y < c
    below, above = np.where(c == 0, 1.0, c), np.where(c == 1, 1.0, 1.0 - c)
    return np.where(left, rising(y, below), falling(1.0 - y, above))


def _double_gamma(y: Any, a: Any, forward: bool) -> Any:
    """The distribution function of a gamma distribution and its mirror image, or the inverse."""
    if forward:
        size = np.abs(y)
        inside, outside = _special("gammainc")(a, size), _special("gammaincc")(a, size)
        return np.where(y > 0, 0.5 + 0.5 * inside, 0.5 * outside)
    upper = y > 0.5
    right = _special("gammaincinv")(a, np.where(upper, 2.0 * y - 1.0, 0.5))
    left = _special("gammainccinv")(a, np.where(upper, 0.5, 2.0 * y))
    return np.where(upper, right, -left)


_OWN: dict[str, dict[str, Callable[..., Any]]] = {
    "truncnorm": {
        "_logpdf": lambda y, a, b: _normal_log(y) - _log_mass(a, b),
        "_pdf": lambda y, a, b: np.exp(_normal_log(y) - _log_mass(a, b)),
        "_logcdf": lambda y, a, b: _log_mass(a, y) - _log_mass(a, b),
        "_cdf": lambda y, a, b: np.exp(_log_mass(a, y) - _log_mass(a, b)),
        "_logsf": lambda y, a, b: _log_mass(y, b) - _log_mass(a, b),
        "_sf": lambda y, a, b: np.exp(_log_mass(y, b) - _log_mass(a, b)),
    },
    "triang": {
        "_pdf": lambda y, c: _triangle(y, c, lambda u, w: 2 * u / w, lambda u, w: 2 * u / w),
        "_logpdf": lambda y, c: np.log(
            _triangle(y, c, lambda u, w: 2 * u / w, lambda u, w: 2 * u / w)),
        "_cdf": lambda y, c: _triangle(y, c, lambda u, w: u * u / w, lambda u, w: 1 - u * u / w),
        "_sf": lambda y, c: _triangle(y, c, lambda u, w: 1 - u * u / w, lambda u, w: u * u / w),
    },
    "dgamma": {  # scipy takes both branches of negative numbers, too
        "_cdf": lambda y, a: _double_gamma(y, a, True),
        "_sf": lambda y, a: _double_gamma(-y, a, True),
        "_ppf": lambda q, a: _double_gamma(q, a, False),
        "_isf": lambda q, a: -_double_gamma(q, a, False),
    },
    "skewnorm": {
        "_cdf": lambda y, a: _special("ndtr")(y) - 2.0 * _special("owens_t")(y, a),
        "_sf": lambda y, a: _special("ndtr")(-y) + 2.0 * _special("owens_t")(y, a),
    },
}  # fmt: skip


def _special(name: str) -> Any:
    return getattr(importlib.import_module("scipy.special"), name)


def _middle(low: Any, high: Any) -> Any:
    """A point inside of an interval, which may have no ends."""
    left, right = np.isfinite(low), np.isfinite(high)
    a, b = np.where(left, low, 0.0), np.where(right, high, 0.0)
    one = np.where(left, a + 1.0, np.where(right, b - 1.0, 0.5))
    return np.where(left & right, (a + b) * 0.5, one)


def _continuous(name: str, outside: float, scaled: bool, log: bool) -> None:
    @scipy_function(f"{_CONTINUOUS}.{name}")
    def density(self: Any, x: Any, *args: Any, **kwds: Any) -> Any:
        call = _Call(self, x, args, kwds)
        y = call.standard
        within = (call.low <= y) & (y <= call.high) & call.valid
        value = _value(call, f"_{name}", call.inside(y, within))
        value = value - np.log(call.scale) if log else value / call.scale
        return call.choose(within, value, outside, y)


_continuous("pdf", 0.0, True, False)
_continuous("logpdf", -np.inf, True, True)


def _cumulative(base: str, name: str, below: float, above: float) -> None:
    discrete = base == _DISCRETE

    @scipy_function(f"{base}.{name}")
    def cumulative(self: Any, x: Any, *args: Any, **kwds: Any) -> Any:
        call = _Call(self, x, args, kwds)
        y = call.x - call.loc if discrete else call.standard
        within = ((call.low <= y) if discrete else (call.low < y)) & (y < call.high) & call.valid
        value = _value(call, f"_{name}", call.inside(y, within))
        return call.choose(within, value, np.where(y >= call.high, above, below), y)


for _base in (_CONTINUOUS, _DISCRETE):
    _cumulative(_base, "cdf", 0.0, 1.0)
    _cumulative(_base, "logcdf", -np.inf, 0.0)
    _cumulative(_base, "sf", 1.0, 0.0)
    _cumulative(_base, "logsf", 0.0, -np.inf)


def _mass(name: str, outside: float) -> None:
    @scipy_function(f"{_DISCRETE}.{name}")
    def mass(self: Any, k: Any, *args: Any, **kwds: Any) -> Any:
        call = _Call(self, k, args, kwds)
        y = call.x - call.loc
        within = (call.low <= y) & (y <= call.high) & call.valid & (np.floor(y) == y)
        value = _value(call, f"_{name}", call.inside(y, within))
        return call.choose(within, value, outside, y)


_mass("pmf", 0.0)
_mass("logpmf", -np.inf)


def _quantile(name: str, at_zero: str, at_one: str) -> None:
    @scipy_function(f"{_CONTINUOUS}.{name}")
    def quantile(self: Any, q: Any, *args: Any, **kwds: Any) -> Any:
        call = _Call(self, q, args, kwds)
        q = call.x
        within = (q > 0) & (q < 1) & call.valid
        value = _value(call, f"_{name}", np.where(within, q, 0.5))
        value = np.where(within, value, np.where(q == 0, getattr(call, at_zero),
                                                 getattr(call, at_one)))  # fmt: skip
        return call.choose((q >= 0) & (q <= 1), value * call.scale + call.loc, np.nan, q)


_quantile("ppf", "low", "high")
_quantile("isf", "high", "low")


@scipy_function("scipy._external.array_api_extra.apply_where",  # from 1.18 on
                at="scipy._external.array_api_extra._lib._funcs.apply_where", raw=True)
@scipy_function("scipy._lib.array_api_extra.apply_where",
                at="scipy._lib.array_api_extra._lib._funcs.apply_where", raw=True)
def _apply_where(
    original: Any, cond: Any, args: Any, f1: Callable[..., Any], f2: Any = None, /, *,
    fill_value: Any = None, xp: Any = None,
) -> Any:  # fmt: skip
    if not contains_traced((cond, args)):
        return original(cond, args, f1, f2, fill_value=fill_value, xp=xp)
    given = args if isinstance(args, tuple) else (args,)
    first = f1(*(np.where(cond, a, 0.5) for a in given))
    if f2 is None:
        return np.where(cond, first, fill_value)
    return np.where(cond, first, f2(*(np.where(cond, 0.5, a) for a in given)))
