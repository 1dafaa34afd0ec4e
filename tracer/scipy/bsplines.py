"""scipy.interpolate: B-splines, their derivatives and integrals.

    make_interp_spline(t, y, k=3)(x, nu=1)      # linear in y: a constant matrix of t
    BSpline(t, c, k).derivative()(x)            # dc, dx

Knots are constants of a trace.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.functions import as_array, traced_all
from gradof.tracer.numpy.recorder import contains_traced
from gradof.tracer.scipy.calls import holds_traced, method_of, scipy_function
from gradof.tracer.scipy.kept import is_traced, keep, kept

_BS = "scipy.interpolate._bsplines"

def placed(y: Any, at: Any, rank: int, dim: int) -> Any:
    """The dims of the points in the place of the axis."""
    n = at.ndim
    order = [*range(n, n + dim), *range(n), *range(n + dim, n + rank - 1)]
    return np.transpose(y, order)


def periodic(at: Any, low: Any, high: Any) -> Any:
    """Points as far from the lower end of their own period."""
    return low + np.mod(at - low, high - low)


@functools.lru_cache(maxsize=16)
def spline_matrix(x: tuple[float, ...], k: int, bc_type: Any = None) -> tuple[Any, Any]:
    """Knots, and the matrix from values to coefficients of an interpolating spline."""
    from scipy.interpolate import make_interp_spline

    made = make_interp_spline(np.array(x), np.eye(len(x)), k, bc_type=bc_type)
    return made.t, made.c


def spline(t: Any, c: Any, k: int, at: Any) -> Any:
    """de Boor's algorithm: c is [coefficients, ...]; the outer intervals go on outside."""
    n = c.shape[0]
    given = (np.asarray(t), c, at)
    inner, c, at = traced_all(*given) if contains_traced(given) else map(as_array, given)
    piece = np.clip(np.searchsorted(inner, at, side="right") - 1, k, n - 1)
    shape = (*at.shape, *(1,) * (c.ndim - 1))
    rows = [np.take(c, piece - k + j, axis=0) for j in range(k + 1)]
    for r in range(1, k + 1):
        for j in range(k, r - 1, -1):
            left = np.take(inner, piece - k + j)
            share = np.reshape((at - left) / (np.take(inner, piece + 1 + j - r) - left), shape)
            rows[j] = rows[j - 1] + share * (rows[j] - rows[j - 1])
    return rows[k]


def basis(t: Any, k: int, at: Any) -> tuple[Any, list[Any]]:
    """The first coefficient that matters at each point, and the weights of that and k others.

    Cox and de Boor's recurrence; the outer intervals go on outside.
    """
    inner, at = traced_all(np.asarray(t), at) if contains_traced((at,)) else (np.asarray(t), at)
    piece = np.clip(np.searchsorted(inner, at, side="right") - 1, k, len(t) - k - 2)
    weights = [at * 0.0 + 1.0]
    for j in range(1, k + 1):
        made: list[Any] = [0.0] * (j + 1)
        for r in range(j):
            right, left = np.take(inner, piece + r + 1), np.take(inner, piece + r + 1 - j)
            share = weights[r] / (right - left)
            made[r] = made[r] + (right - at) * share
            made[r + 1] = made[r + 1] + (at - left) * share
        weights = made
    return piece - k, weights


@scipy_function("scipy.interpolate.BSpline.__init__", at=f"{_BS}.BSpline.__init__", raw=True)
def _bspline(
    original: Any, self: Any, t: Any, c: Any, k: int, extrapolate: Any = True, axis: int = 0
) -> None:
    if not holds_traced((t, c)):
        original(self, t, c, k, extrapolate, axis)
        return
    if isinstance(t, TracedArray) and not t.is_constant:
        raise TypeError("a BSpline of traced values whose knots are traced: they are constants")
    t, c = np.asarray(t, np.float64), as_array(c).astype(np.float64)
    c = np.moveaxis(c, axis, 0)[: len(t) - k - 1]
    keep(self, t=t, c=c, k=int(k), extrapolate=extrapolate, axis=axis % c.ndim)


def values(t: Any, c: Any, k: int, x: Any, nu: int, extrapolate: Any, axis: int = 0) -> Any:
    """A spline, or its derivative, at points: c is [coefficients, ...]."""
    at = as_array(x)
    low, high = t[k], t[len(t) - k - 1]
    if extrapolate == "periodic":
        at = periodic(at, low, high)
    t, c, k = derived(t, c, k, nu)
    y = spline(t, c, k, at) if k >= 0 else spline(t, c, 0, at) * 0.0
    if extrapolate is False:
        shape = (*at.shape, *(1,) * (c.ndim - 1))
        y = np.where(np.reshape((at >= low) & (at <= high), shape), y, np.nan)
    return placed(y, at, c.ndim, axis)


def derived(t: Any, c: Any, k: int, nu: int) -> tuple[Any, Any, int]:
    """Knots, coefficients and degree of a derivative; below degree 0 it is zero."""
    for _ in range(nu):
        if k == 0:
            return t, c * 0.0, 0
        width = t[k + 1 : k + c.shape[0]] - t[1 : c.shape[0]]
        scale = np.reshape(k / np.where(width == 0, 1.0, width), (-1,) + (1,) * (c.ndim - 1))
        c, t, k = np.diff(c, axis=0) * scale, t[1:-1], k - 1
    return t, c, k


def integrated(t: Any, c: Any, k: int, nu: int) -> tuple[Any, Any, int]:
    """Knots, coefficients and degree of an antiderivative, which is zero at the first knot."""
    for _ in range(nu):
        width = np.reshape(t[k + 1 : k + 1 + c.shape[0]] - t[: c.shape[0]],
                           (-1,) + (1,) * (c.ndim - 1))  # fmt: skip
        total = np.cumsum(c * width / (k + 1.0), axis=0)
        c = np.concatenate([total[:1] * 0.0, total], axis=0)
        t, k = np.concatenate([t[:1], t, t[-1:]]), k + 1
    return t, c, k


def _method(name: str) -> Callable[[Callable[..., Any]], Any]:
    at = f"BSpline.{name}"
    return method_of(f"scipy.interpolate.{at}", f"{_BS}.{at}", is_traced)


@_method("__call__")
def _bspline_call(self: Any, x: Any, nu: int = 0, extrapolate: Any = None) -> Any:
    extrapolate = self.extrapolate if extrapolate is None else extrapolate
    t, c, k = parts_of(self)
    return values(t, c, k, x, int(nu), extrapolate, self.axis)


def parts_of(made: Any) -> tuple[Any, Any, int]:
    """Knots, coefficients and degree of a BSpline."""
    t = np.asarray(kept(made, "t"))
    return t, as_array(kept(made, "c"))[: len(t) - made.k - 1], made.k


def _built(like: Any, t: Any, c: Any, k: int, extrapolate: Any) -> Any:
    made = object.__new__(type(like))
    keep(made, t=t, c=c, k=k, extrapolate=extrapolate, axis=like.axis)
    return made


@_method("derivative")
def _derivative(self: Any, nu: int = 1) -> Any:
    if nu < 0:
        return _antiderivative(self, -nu)
    return _built(self, *derived(*parts_of(self), nu), self.extrapolate)


@_method("antiderivative")
def _antiderivative(self: Any, nu: int = 1) -> Any:
    if nu < 0:
        return _derivative(self, -nu)
    periodic = self.extrapolate == "periodic"
    return _built(self, *integrated(*parts_of(self), nu), False if periodic else self.extrapolate)


@_method("integrate")
def _integrate(self: Any, a: Any, b: Any, extrapolate: Any = None) -> Any:
    extrapolate = self.extrapolate if extrapolate is None else extrapolate
    if extrapolate == "periodic":
        raise TypeError("BSpline.integrate of traced values with extrapolate='periodic'")
    t, c, k = parts_of(self)
    if extrapolate is False:
        a, b = (np.clip(as_array(v), t[k], t[len(t) - k - 1]) for v in (a, b))
    t, c, k = integrated(t, c, k, 1)
    area = spline(t, c, k, as_array(b)) - spline(t, c, k, as_array(a))
    return np.reshape(np.ravel(area), c.shape[1:])  # an array, of no dims too


@scipy_function("scipy.interpolate.make_interp_spline", raw=True)
def _make_interp_spline(
    original: Any, x: Any, y: Any, k: int = 3, t: Any = None, bc_type: Any = None, axis: int = 0,
    check_finite: bool = True,
) -> Any:  # fmt: skip
    if not holds_traced((x, y, t)):
        return original(x, y, k, t, bc_type, axis, check_finite)
    moving = isinstance(x, TracedArray) and not x.is_constant
    if moving or t is not None or not isinstance(bc_type, (str, type(None))):
        raise TypeError(
            "make_interp_spline of traced values with points that are traced, knots or conditions"
        )
    from scipy.interpolate import BSpline

    y = as_array(y)
    rows = np.moveaxis(y, axis, 0)
    knots, matrix = spline_matrix(tuple(np.asarray(x).tolist()), k, bc_type)
    c = np.reshape(matrix @ np.reshape(rows, (rows.shape[0], -1)), (-1, *rows.shape[1:]))
    return BSpline(knots, np.moveaxis(c, 0, axis), k, axis=axis)
