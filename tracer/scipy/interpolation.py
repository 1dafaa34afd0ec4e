"""scipy.interpolate: piecewise polynomials and interp1d."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gradof.tracer.numpy.active import active_recorder
from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.functions import as_array, traced_all
from gradof.tracer.numpy.recorder import contains_traced
from gradof.tracer.scipy.bsplines import periodic, placed, spline, spline_matrix
from gradof.tracer.scipy.calls import holds_traced, method_of, scipy_function
from gradof.tracer.scipy.closures import PLAIN
from gradof.tracer.scipy.kept import DELEGATES, is_traced, keep, kept
from gradof.tracer.scipy.twins import through_traced

_CUBIC, _PIECES = "scipy.interpolate._cubic", "scipy.interpolate._interpolate"
_BASE = f"{_PIECES}.PPoly" if DELEGATES else f"{_PIECES}._PPolyBase"

# --- piecewise polynomials ------------------------------------------------------------------------

# Their coefficients are computed by scipy's own code, and evaluated here.
for _name in ("CubicSpline", "PchipInterpolator", "Akima1DInterpolator", "CubicHermiteSpline"):
    through_traced(f"scipy.interpolate.{_name}.__init__", at=f"{_CUBIC}.{_name}.__init__")


@scipy_function("scipy.interpolate.PPoly.__init__", at=f"{_BASE}.__init__", raw=True)
def _ppoly(
    original: Any, self: Any, c: Any, x: Any, extrapolate: Any = None, axis: int = 0
) -> None:
    if not holds_traced((c, x)):
        original(self, c, x, extrapolate, axis)
        return
    c, x = as_array(c).astype(np.float64), as_array(x).astype(np.float64)
    axis = axis % (c.ndim - 1)
    c = np.moveaxis(np.moveaxis(c, axis + 1, 0), axis + 1, 0) if axis else c
    keep(self, c=c, x=x, axis=axis, extrapolate=True if extrapolate is None else extrapolate)


def _traced(*values: Any) -> list[Any]:
    """All of them traced where one is: numpy does not look at an index for that."""
    return traced_all(*values) if contains_traced(values) else list(map(as_array, values))


def _pieces(x: Any, count: int, at: Any) -> Any:
    """Which interval each point is in; the outer ones have no outer end."""
    return np.clip(np.searchsorted(x, at, side="right") - 1, 0, count - 1)


def evaluated(c: Any, x: Any, at: Any, nu: int, extrapolate: Any) -> Any:
    """Piecewise polynomials, or a derivative: c is [powers, intervals, ...]."""
    c, x, at = _traced(c, x, at)
    if extrapolate == "periodic":
        at = periodic(at, x[0], x[-1])
    piece = _pieces(x, c.shape[1], at)
    away = np.reshape(at - np.take(x, piece), (*at.shape, *(1,) * (c.ndim - 2)))
    order = c.shape[0] - 1
    result: Any = 0.0
    for k in range(c.shape[0] - nu):
        power = order - k
        factor = math.perm(power, nu)
        result = result * away + factor * np.take(c[k], piece, axis=0)
    result = result + 0.0 * away if c.shape[0] <= nu else result
    if extrapolate is False:
        inside = np.reshape((at >= x[0]) & (at <= x[-1]), away.shape)
        result = np.where(inside, result, np.nan)
    return result


def _method(name: str) -> Callable[[Callable[..., Any]], Any]:
    at = _BASE if name == "__call__" else f"{_PIECES}.PPoly"
    return method_of(f"scipy.interpolate.PPoly.{name}", f"{at}.{name}", is_traced)


@_method("__call__")
def _call(self: Any, x: Any, nu: int = 0, extrapolate: Any = None) -> Any:
    extrapolate = self.extrapolate if extrapolate is None else extrapolate
    rank = np.ndim(x)
    of = _bernstein if type(self).__name__ == "BPoly" else evaluated
    y = of(kept(self, "c"), kept(self, "x"), x, int(nu), extrapolate)
    dims = list(range(y.ndim))
    order = dims[rank : rank + self.axis] + dims[:rank] + dims[rank + self.axis :]
    return np.transpose(y, order) if self.axis else y


def _built(self: Any, c: Any, cls: Any = None) -> Any:
    made = object.__new__(cls or _ppoly_class())
    keep(made, c=c, x=kept(self, "x"), axis=self.axis, extrapolate=self.extrapolate)
    return made


def _ppoly_class() -> Any:
    from scipy.interpolate import PPoly

    return PPoly


@_method("derivative")
def _derivative(self: Any, nu: int = 1) -> Any:
    if nu < 0:
        return _antiderivative(self, -nu)
    c = as_array(kept(self, "c"))
    order = c.shape[0] - 1
    rows = [c[k] * float(math.perm(order - k, nu)) for k in range(c.shape[0] - nu)]
    return _built(self, np.stack(rows) if rows else c[:1] * 0.0)


@_method("antiderivative")
def _antiderivative(self: Any, nu: int = 1) -> Any:
    c, x = as_array(kept(self, "c")), as_array(kept(self, "x"))
    for _ in range(nu):
        order = c.shape[0]
        rows = [c[k] / float(order - k) for k in range(order)]
        width = np.reshape(np.diff(x), (-1,) + (1,) * (c.ndim - 2))
        total: Any = 0.0
        for row in rows:
            total = (total + row) * width
        start = np.cumsum(total, axis=0)
        start = np.concatenate([start[:1] * 0.0, start[:-1]], axis=0)
        c = np.stack([*rows, start])
    return _built(self, c)


@_method("integrate")
def _integrate(self: Any, a: Any, b: Any, extrapolate: Any = None) -> Any:
    if extrapolate is not None or self.extrapolate == "periodic":
        raise TypeError("argument extrapolate")
    whole = _antiderivative(self, 1)
    c, x = kept(whole, "c"), kept(whole, "x")
    ends = [evaluated(c, x, v, 0, self.extrapolate) for v in (a, b)]
    return np.reshape(np.ravel(ends[1] - ends[0]), c.shape[2:])  # an array, of no dims too


# --- the same in Bernstein's polynomials ----------------------------------------------------------


def _bernstein(c: Any, x: Any, at: Any, nu: int, extrapolate: Any) -> Any:
    """As `evaluated`, by de Casteljau's algorithm."""
    for _ in range(nu):
        c = _bernstein_slopes(c, x)
    c, x, at = _traced(c, x, at)
    if extrapolate == "periodic":
        at = periodic(at, x[0], x[-1])
    piece = _pieces(x, c.shape[1], at)
    start = np.take(x, piece)
    shape = (*at.shape, *(1,) * (c.ndim - 2))
    share = np.reshape((at - start) / (np.take(x, piece + 1) - start), shape)
    rows = [np.take(row, piece, axis=0) for row in c]
    while len(rows) > 1:
        rows = [a + share * (b - a) for a, b in itertools.pairwise(rows)]
    result = rows[0] + 0.0 * share
    if extrapolate is False:
        inside = np.reshape((at >= x[0]) & (at <= x[-1]), shape)
        result = np.where(inside, result, np.nan)
    return result


def _bernstein_slopes(c: Any, x: Any) -> Any:
    c, x = as_array(c), as_array(x)
    if c.shape[0] == 1:
        return c * 0.0
    return (c.shape[0] - 1) * np.diff(c, axis=0) / _widths(c, x)


def _widths(c: Any, x: Any) -> Any:
    return np.reshape(np.diff(x), (-1,) + (1,) * (c.ndim - 2))


def _bernstein_method(name: str) -> Callable[[Callable[..., Any]], Any]:
    return method_of(f"scipy.interpolate.BPoly.{name}", f"{_PIECES}.BPoly.{name}", is_traced)


@_bernstein_method("derivative")
def _bernstein_derivative(self: Any, nu: int = 1) -> Any:
    c = kept(self, "c")
    for _ in range(nu):
        c = _bernstein_slopes(c, kept(self, "x"))
    return _bernstein_antiderivative(self, -nu) if nu < 0 else _built(self, c, type(self))


@_bernstein_method("antiderivative")
def _bernstein_antiderivative(self: Any, nu: int = 1) -> Any:
    if nu < 0:
        return _bernstein_derivative(self, -nu)
    c, x = as_array(kept(self, "c")), as_array(kept(self, "x"))
    for _ in range(nu):
        c = np.cumsum(c, axis=0) / float(c.shape[0]) * _widths(c, x)
        c = np.concatenate([c[:1] * 0.0, c], axis=0)
        before = np.cumsum(c[-1], axis=0)
        before = np.concatenate([before[:1] * 0.0, before[:-1]], axis=0)
        c = c + before
    return _built(self, c, type(self))


@_bernstein_method("integrate")
def _bernstein_integrate(self: Any, a: Any, b: Any, extrapolate: Any = None) -> Any:
    extrapolate = self.extrapolate if extrapolate is None else extrapolate
    if extrapolate == "periodic":
        raise TypeError("argument extrapolate='periodic'")
    whole = _bernstein_antiderivative(self, 1)
    ends = [_call(whole, v, 0, extrapolate) for v in (a, b)]
    return ends[1] - ends[0]


# --- interp1d -------------------------------------------------------------------------------------

_STEPS = ("nearest", "nearest-up", "previous", "next")
_ORDERS = {"zero": 0, "slinear": 1, "quadratic": 2, "cubic": 3}


@scipy_function("scipy.interpolate.interp1d.__init__", at=f"{_PIECES}.interp1d.__init__", raw=True)
def _interp1d(
    original: Any, self: Any, x: Any, y: Any, kind: Any = "linear", axis: int = -1,
    copy: bool = True, bounds_error: Any = None, fill_value: Any = np.nan,
    assume_sorted: bool = False,
) -> None:  # fmt: skip
    if not holds_traced((x, y, fill_value)):
        original(self, x, y, kind, axis, copy, bounds_error, fill_value, assume_sorted)
        self._given = (x, y, kind, axis, bounds_error, fill_value)
        return
    x, y = as_array(x), as_array(y)
    if not assume_sorted:
        order = np.argsort(x, kind="mergesort")
        x, y = np.take(x, order), np.take(y, order, axis=axis)
    self._given = (x, y, kind, axis, bounds_error, fill_value)


@scipy_function("scipy.interpolate.interp1d.__call__",
                at="scipy.interpolate._polyint._Interpolator1D.__call__", raw=True)
def _interpolated(original: Any, self: Any, x: Any) -> Any:
    given = vars(self).get("_given")
    if given is None and type(self).__name__ == "interp1d" and holds_traced(x):
        given = (self.x, self.y, self._kind, self.axis, self.bounds_error, self.fill_value)
    if given is None and holds_traced(list(vars(self).values())):  # of one polynomial
        recorder = active_recorder()
        return original(self, x if recorder is None else recorder.traced(as_array(x)))
    if given is None or not holds_traced((x, given)):
        return original(self, x)
    points, values, kind, axis, bounds_error, fill = given
    at = as_array(x)
    points, values = as_array(points), as_array(values)
    rows = np.moveaxis(values, axis, 0)
    dim = axis % values.ndim
    y = _of_kind(kind, points, rows, at)
    low, high = at < points[0], at > points[-1]
    if isinstance(fill, str) and fill == "extrapolate":
        return placed(y, at, values.ndim, dim)
    if bounds_error or (bounds_error is None and fill is np.nan):
        if bool(np.any(low | high)):
            return original(self, x)  # scipy says what is out of range
    below, above = fill if isinstance(fill, tuple) else (fill, fill)
    shape = (*at.shape, *(1,) * (rows.ndim - 1))
    y = np.where(np.reshape(low, shape), below, np.where(np.reshape(high, shape), above, y))
    return placed(y, at, values.ndim, dim)


def _plain(self: Any) -> Any:
    """scipy's own of what a traced one now holds, as an equation's solver calls it."""
    x, y, kind, axis, bounds_error, fill_value = self._given
    return type(self)(x, y, kind, axis, bounds_error=bounds_error, fill_value=fill_value,
                      assume_sorted=True)  # fmt: skip


PLAIN[f"{_PIECES}.interp1d"] = _plain


def _of_kind(kind: Any, points: Any, rows: Any, at: Any) -> Any:
    x, rows, at = _traced(points, rows, at)
    n = x.shape[0]
    shape = (*at.shape, *(1,) * (rows.ndim - 1))
    if kind in ("linear", 1, "slinear"):
        right = np.clip(np.searchsorted(x, at), 1, n - 1)
        left = right - 1
        share = (at - np.take(x, left)) / (np.take(x, right) - np.take(x, left))
        share = np.reshape(share, shape)
        first = np.take(rows, left, axis=0)
        return first + share * (np.take(rows, right, axis=0) - first)
    if kind in _STEPS:
        if kind == "previous":
            place = np.searchsorted(x, at, side="right") - 1
        elif kind == "next":
            place = np.searchsorted(x, at, side="left")
        else:
            middles = (x[1:] + x[:-1]) * 0.5
            place = np.searchsorted(middles, at, side="left" if kind == "nearest" else "right")
        return np.take(rows, np.clip(place, 0, n - 1), axis=0)
    order = _ORDERS.get(kind, kind)
    moving = isinstance(points, TracedArray) and not points.is_constant
    if moving or not isinstance(order, int):
        raise TypeError(f"argument kind={kind!r}, of points that are traced")
    knots, matrix = spline_matrix(tuple(np.asarray(points).tolist()), order)
    c = np.reshape(matrix @ np.reshape(rows, (n, -1)), (-1, *rows.shape[1:]))
    return spline(knots, c, order, at)
