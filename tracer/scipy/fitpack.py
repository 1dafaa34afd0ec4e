"""scipy.interpolate: splines by FITPACK's names, where they are linear in the values.

    tck = splrep(t, y); splev(x, tck, der=1); splint(a, b, tck)
    UnivariateSpline(t, y, s=0)(x); LSQUnivariateSpline(t, y, knots).integral(0, b)
    RectBivariateSpline(x, y, z).ev(xi, yi)

With knots that do not depend on the values, the coefficients are a constant matrix times those. A
smoothing spline (s > 0) has knots and a smoothness that FITPACK finds by trial, to three digits:
it is refused, but where a single polynomial meets s.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.floats import as_float
from gradof.tracer.numpy.functions import as_array
from gradof.tracer.numpy.recorder import real
from gradof.tracer.scipy.bsplines import derived, integrated, spline
from gradof.tracer.scipy.calls import holds_traced, method_of, scipy_function

Function = Callable[..., Any]
_I, _CLASSES = "scipy.interpolate", "scipy.interpolate._fitpack2"


def _constant(name: str, *given: Any) -> None:
    """Places, weights and knots, which are constants of a trace."""
    for value in given:
        if type(value) is TracedArray and not value.is_constant:
            raise TypeError(f"{name} of traced values that are no ordinates: only y may be traced")


@functools.lru_cache(maxsize=32)
def _fitted(x: bytes, t: bytes, k: int, w: bytes | None) -> Any:
    """The matrix from values at x to coefficients for knots t, by least squares."""
    from scipy.interpolate import make_interp_spline, make_lsq_spline

    places, knots = np.frombuffer(x), np.frombuffer(t)
    one = np.eye(len(places))
    if len(knots) - k - 1 == len(places):
        return make_interp_spline(places, one, k, knots).c
    weights = None if w is None else np.frombuffer(w)
    return make_lsq_spline(places, one, knots, k, weights).c


def _coefficients(x: Any, y: Any, t: Any, k: int, w: Any) -> Any:
    x, t, w = (None if v is None else np.ascontiguousarray(v, np.float64).tobytes()
               for v in (x, t, w))  # fmt: skip
    return _fitted(x, t, k, w) @ y


def _is_fixed(name: str, t: Any, k: int, x: Any, s: Any) -> None:
    """That the knots are those of an interpolating spline, or of one polynomial."""
    if s == 0 or len(t) == 2 * (k + 1) or len(t) - k - 1 == len(x):
        return
    raise TypeError(
        f"{name} of traced values with s={s}, whose knots depend on them: give s=0, or knots; "
        "make_smoothing_spline with lam"
    )


@scipy_function(f"{_I}.splrep", at=f"{_I}._fitpack_py.splrep", raw=True)
def _splrep(
    original: Any, x: Any, y: Any, w: Any = None, xb: Any = None, xe: Any = None, k: int = 3,
    task: int = 0, s: Any = None, t: Any = None, full_output: Any = 0, per: Any = 0, quiet: int = 1,
) -> Any:  # fmt: skip
    if not holds_traced((x, y, w, t)):
        return original(x, y, w, xb, xe, k, task, s, t, full_output, per, quiet)
    _constant("splrep", x, w, t)
    if full_output or per:
        raise TypeError("splrep of traced values with full_output or per")
    y = as_array(y).astype(np.float64)
    x, w, t = (None if v is None else np.asarray(real(v), np.float64) for v in (x, w, t))
    knots = original(x, real(y), w, xb, xe, k, task, s, t, 0, per, quiet)[0]
    if t is None and task != -1:
        _is_fixed("splrep", knots, k, x, 0.0 if s is None and w is None else s)
    c = _coefficients(x, y, knots, k, w)
    return knots, np.concatenate([c, np.zeros(len(knots) - c.shape[0])]), k


def _at(t: Any, c: Any, k: int, x: Any, der: int, ext: Any) -> Any:
    """FITPACK's values: `ext` says what is outside of the knots' interval."""
    x, t = as_array(x), np.asarray(t)
    c = as_array(c)[: len(t) - k - 1]
    low, high = t[k], t[len(t) - k - 1]
    outside = (x < low) | (x > high)
    if ext in (2, "raise") and np.any(outside):  # at every call
        raise ValueError("Found x value not in the domain")
    at = np.clip(x, low, high) if ext in (3, "const") else x
    y = spline(*derived(t, c, k, der), at)
    return np.where(outside, 0.0, y) if ext in (1, "zeros") else y


@scipy_function(f"{_I}.splev", at=f"{_I}._fitpack_py.splev", raw=True)
def _splev(original: Any, x: Any, tck: Any, der: int = 0, ext: int = 0) -> Any:
    if not holds_traced((x,)) and not holds_traced(tck):
        return original(x, tck, der, ext)
    if not isinstance(tck, (tuple, list)):
        return tck(x, der, extrapolate=ext == 0)
    t, c, k = tck
    if isinstance(c, (list, tuple)):  # of a curve in several dims
        return [_at(t, line, k, x, der, ext) for line in c]
    return _at(t, c, k, x, der, ext)


def _area(tck: Any, a: Any, b: Any) -> Any:
    """FITPACK's integral: the spline is zero outside of its interval."""
    t, c, k = tck
    t = np.asarray(t)
    low, high = t[k], t[len(t) - k - 1]
    t, c, k = integrated(t, as_array(c)[: len(t) - k - 1], k, 1)
    ends = [spline(t, c, k, np.clip(as_array(v), low, high)) for v in (a, b)]
    area = ends[1] - ends[0]
    return as_float(area)


@scipy_function(f"{_I}.splint", at=f"{_I}._fitpack_py.splint", raw=True)
def _splint(original: Any, a: Any, b: Any, tck: Any, full_output: Any = 0) -> Any:
    if not (holds_traced((a, b)) or holds_traced(tck)):
        return original(a, b, tck, full_output)
    if full_output or not isinstance(tck, (tuple, list)):
        raise TypeError("splint of traced values with full_output, or of a BSpline")
    return _area(tck, a, b)


def _moved(name: str, change: Any) -> None:
    @scipy_function(f"{_I}.{name}", at=f"{_I}._fitpack_py.{name}", raw=True)
    def record(original: Any, tck: Any, n: int = 1) -> Any:
        if not holds_traced(tck):
            return original(tck, n)
        if not isinstance(tck, (tuple, list)):
            return tck.derivative(n) if name == "splder" else tck.antiderivative(n)
        t, c, k = tck
        t, c, k = change(np.asarray(t), as_array(c)[: len(t) - k - 1], k, n)
        last = c[-1:] * (1.0 if name == "splantider" else 0.0)  # which nothing reads
        return t, np.concatenate([c, np.broadcast_to(last, (len(t) - c.shape[0],))]), k


_moved("splder", derived)
_moved("splantider", integrated)

@scipy_function(f"{_I}.make_lsq_spline", raw=True)
def _make_lsq_spline(
    original: Any, x: Any, y: Any, t: Any, k: int = 3, w: Any = None, axis: int = 0,
    check_finite: bool = True, **options: Any,
) -> Any:  # fmt: skip
    if not holds_traced((x, y, t, w)):
        return original(x, y, t, k, w, axis, check_finite, **options)
    _constant("make_lsq_spline", x, t, w)
    from scipy.interpolate import BSpline

    original(real(x), real(y), real(t), k, real(w), axis, check_finite, **options)  # its checks
    rows = np.moveaxis(as_array(y), axis, 0)
    knots = np.asarray(real(t), np.float64)
    c = _coefficients(real(x), np.reshape(rows, (rows.shape[0], -1)), knots, k, real(w))
    return BSpline(knots, np.moveaxis(np.reshape(c, (-1, *rows.shape[1:])), 0, axis), k, axis=axis)


# --- UnivariateSpline and its kin -----------------------------------------------------------------


def _univariate(name: str) -> None:
    @scipy_function(f"{_I}.{name}", at=f"{_CLASSES}.{name}.__init__", raw=True)
    def record(original: Any, self: Any, x: Any, y: Any, *args: Any, **kwargs: Any) -> None:
        if not holds_traced((x, y, args, kwargs)):
            original(self, x, y, *args, **kwargs)
            return
        _constant(name, x, *args, *kwargs.values())
        y = as_array(y).astype(np.float64)
        args = tuple(real(a) for a in args)
        kwargs = {k: real(v) for k, v in kwargs.items()}
        original(self, real(x), real(y), *args, **kwargs)  # knots and checks
        t, _, k = self._eval_args
        place = 1 if name == "LSQUnivariateSpline" else 0  # after its knots
        w = kwargs.get("w", args[place] if len(args) > place else None)
        if name == "UnivariateSpline":
            _is_fixed(name, t, k, x, self._data[6])
        self._eval_args = (t, _coefficients(real(x), y, t, k, w), k)
        self._data = None


for _name in ("UnivariateSpline", "InterpolatedUnivariateSpline", "LSQUnivariateSpline"):
    _univariate(_name)


def _method(name: str) -> Callable[[Function], Function]:
    at = f"UnivariateSpline.{name}"
    return method_of(f"{_I}.{at}", f"{_CLASSES}.{at}", holds_traced)


@_method("__call__")
def _univariate_call(self: Any, x: Any, nu: int = 0, ext: Any = None) -> Any:
    t, c, k = self._eval_args
    return _at(t, c, k, x, nu, self.ext if ext is None else ext)


@_method("integral")
def _univariate_integral(self: Any, a: Any, b: Any) -> Any:
    return _area(self._eval_args, a, b)


@_method("derivatives")
def _univariate_derivatives(self: Any, x: Any) -> Any:
    t, c, k = self._eval_args
    return np.stack([_at(t, c, k, x, nu, 0) for nu in range(k + 1)])


def _other(self: Any, change: Any, n: int) -> Any:
    t, c, k = self._eval_args
    made = object.__new__(type(self))
    made._eval_args = change(np.asarray(t), as_array(c)[: len(t) - k - 1], k, n)
    made.ext, made._data = self.ext, None
    return made


@_method("derivative")
def _univariate_derivative(self: Any, n: int = 1) -> Any:
    return _other(self, derived, n)


@_method("antiderivative")
def _univariate_antiderivative(self: Any, n: int = 1) -> Any:
    return _other(self, integrated, n)


@_method("get_coeffs")
def _univariate_coefficients(self: Any) -> Any:
    return self._eval_args[1]


# --- RectBivariateSpline --------------------------------------------------------------------------


@scipy_function(f"{_I}.RectBivariateSpline", at=f"{_CLASSES}.RectBivariateSpline.__init__",
                raw=True)
def _rectangle(
    original: Any, self: Any, x: Any, y: Any, z: Any, bbox: Any = (None,) * 4, kx: int = 3,
    ky: int = 3, s: Any = 0, maxit: int = 20,
) -> None:  # fmt: skip
    if not holds_traced((x, y, z)):
        original(self, x, y, z, list(bbox), kx, ky, s, maxit)
        return
    _constant("RectBivariateSpline", x, y)
    if s:
        raise TypeError("RectBivariateSpline of traced values with s: give s=0")
    x, y, z = (as_array(v).astype(np.float64) for v in (x, y, z))
    original(self, real(x), real(y), real(z), list(bbox), kx, ky, s, maxit)
    tx, ty = self.tck[:2]
    rows = _coefficients(real(x), z, tx, kx, None)
    both = _coefficients(real(y), np.swapaxes(rows, 0, 1), ty, ky, None)
    self.tck = tx, ty, np.ravel(np.swapaxes(both, 0, 1))


@scipy_function(f"{_I}.RectBivariateSpline.__call__",
                at=f"{_CLASSES}._BivariateSplineBase.__call__", raw=True)
def _rectangle_call(
    original: Any, self: Any, x: Any, y: Any, dx: int = 0, dy: int = 0, grid: bool = True
) -> Any:
    if not (holds_traced(self) or holds_traced((x, y))):
        return original(self, x, y, dx, dy, grid)
    tx, ty, c = self.tck[:3]
    kx, ky = self.degrees
    c = np.reshape(as_array(c), (len(tx) - kx - 1, len(ty) - ky - 1))
    # FITPACK takes the nearest point of the rectangle
    x, y = np.clip(as_array(x), tx[0], tx[-1]), np.clip(as_array(y), ty[0], ty[-1])
    if grid:
        x, y = np.atleast_1d(x), np.atleast_1d(y)
        rows = spline(*derived(tx, c, kx, dx), x)
        return np.swapaxes(spline(*derived(ty, np.swapaxes(rows, 0, 1), ky, dy), y), 0, 1)
    x, y = np.broadcast_arrays(x, y)
    weights = [
        spline(*derived(t, np.eye(n), k, d), np.ravel(at))
        for t, n, k, d, at in ((tx, c.shape[0], kx, dx, x), (ty, c.shape[1], ky, dy, y))
    ]
    return np.reshape(np.einsum("pi,ij,pj->p", weights[0], c, weights[1]), x.shape)
