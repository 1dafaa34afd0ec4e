"""scipy.spatial.distance and scipy.integrate's rules for samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradof.tracer.numpy.functions import as_array
from gradof.tracer.scipy.calls import scipy_function
from gradof.tracer.scipy.twins import through, through_callbacks

_D = "scipy.spatial.distance"


def _weighted(terms: Any, w: Any) -> Any:
    return terms if w is None else terms * w


def _root(squares: Any) -> Any:
    """The square root, whose gradient at zero is zero."""
    zero = squares == 0
    return np.where(zero, 0.0, np.sqrt(np.where(zero, 1.0, squares)))


def _sum(terms: Any) -> Any:
    return np.sum(terms, axis=-1)


def _minkowski(a: Any, b: Any, w: Any = None, p: Any = 2) -> Any:
    size = np.abs(a - b)
    zero = size == 0
    powers = np.where(zero, 0.0, np.where(zero, 1.0, size) ** p)
    total = _sum(_weighted(powers, w))
    none = total == 0
    return np.where(none, 0.0, np.where(none, 1.0, total) ** (1.0 / p))


def _cosine(a: Any, b: Any, w: Any = None) -> Any:
    inner = _sum(_weighted(a * b, w))
    return 1.0 - inner / np.sqrt(_sum(_weighted(a * a, w)) * _sum(_weighted(b * b, w)))


def _correlation(a: Any, b: Any, w: Any = None) -> Any:
    if w is None:
        return _cosine(a - np.mean(a, axis=-1, keepdims=True), b - np.mean(b, -1, keepdims=True))
    w = w / np.sum(w)
    means = (np.sum(v * w, axis=-1, keepdims=True) for v in (a, b))
    return _cosine(a - next(means), b - next(means), w)


def _canberra(a: Any, b: Any, w: Any = None) -> Any:
    whole = np.abs(a) + np.abs(b)
    zero = whole == 0
    return _sum(_weighted(np.where(zero, 0.0, np.abs(a - b) / np.where(zero, 1.0, whole)), w))


def _braycurtis(a: Any, b: Any, w: Any = None) -> Any:
    return _sum(_weighted(np.abs(a - b), w)) / _sum(_weighted(np.abs(a + b), w))


def _jensenshannon(a: Any, b: Any, base: Any = None) -> Any:
    a, b = (v / np.sum(v, axis=-1, keepdims=True) for v in (a, b))
    middle = 0.5 * (a + b)

    def relative(p: Any) -> Any:
        none = p == 0
        return _sum(np.where(none, 0.0, p * np.log(np.where(none, 1.0, p / middle))))

    total = 0.5 * (relative(a) + relative(b))
    return _root(total if base is None else total / np.log(base))


def _mahalanobis(a: Any, b: Any, VI: Any) -> Any:
    away = a - b
    return _root(_sum(np.matmul(away, VI) * away))


_METRICS: dict[str, Callable[..., Any]] = {
    "euclidean": lambda a, b, w=None: _root(_sum(_weighted(np.square(a - b), w))),
    "sqeuclidean": lambda a, b, w=None: _sum(_weighted(np.square(a - b), w)),
    "cityblock": lambda a, b, w=None: _sum(_weighted(np.abs(a - b), w)),
    "minkowski": _minkowski, "cosine": _cosine, "correlation": _correlation,
    "canberra": _canberra, "braycurtis": _braycurtis, "jensenshannon": _jensenshannon,
    "chebyshev": lambda a, b, w=None: np.max(
        np.abs(a - b) if w is None else np.where(np.asarray(w) > 0, np.abs(a - b), 0.0), axis=-1),
    "seuclidean": lambda a, b, V: _root(_sum(np.square(a - b) / V)),
    "mahalanobis": _mahalanobis,
}  # fmt: skip
_NAMES = {
    "l2": "euclidean", "manhattan": "cityblock", "l1": "cityblock", "cheby": "chebyshev",
    "cos": "cosine", "js": "jensenshannon",
}  # fmt: skip


def _metric(metric: Any, rows: Any, options: dict[str, Any]) -> Callable[[Any, Any], Any]:
    if callable(metric):
        metric = metric.__name__
    name = _NAMES.get(metric, metric)
    if name not in _METRICS:
        raise TypeError(f"argument metric={metric!r}")
    given = {k: v for k, v in options.items() if v is not None}
    if name == "seuclidean" and "V" not in given:
        given["V"] = np.var(rows, axis=0, ddof=1)
    if name == "mahalanobis" and "VI" not in given:
        given["VI"] = np.linalg.inv(np.cov(rows.T)).T
    return lambda a, b: _METRICS[name](a, b, **given)


def _pair(name: str) -> None:
    @scipy_function(f"{_D}.{name}")
    def distance(u: Any, v: Any, *args: Any, **kwargs: Any) -> Any:
        a, b = as_array(u), as_array(v)
        if name == "minkowski":
            p = args[0] if args else kwargs.pop("p", 2)
            return _minkowski(a, b, args[1] if len(args) > 1 else kwargs.get("w"), p)
        if name == "jensenshannon":
            if kwargs.get("keepdims") or kwargs.get("axis", 0) not in (0, -1) or a.ndim != 1:
                raise TypeError("argument axis or keepdims")
            return _jensenshannon(a, b, args[0] if args else kwargs.get("base"))
        return _METRICS[name](a, b, *args, **kwargs)


for _name in _METRICS:
    _pair(_name)


@scipy_function(f"{_D}.cdist")
def _cdist(XA: Any, XB: Any, metric: Any = "euclidean", *, out: Any = None, **kwargs: Any) -> Any:
    a, b = as_array(XA), as_array(XB)
    if out is not None:
        raise TypeError("argument out")
    rows = np.concatenate([a, b], axis=0)
    return _metric(metric, rows, kwargs)(a[:, None, :], b[None, :, :])


@scipy_function(f"{_D}.pdist")
def _pdist(X: Any, metric: Any = "euclidean", *, out: Any = None, **kwargs: Any) -> Any:
    x = as_array(X)
    if out is not None:
        raise TypeError("argument out")
    first, second = np.triu_indices(x.shape[0], 1)
    return _metric(metric, x, kwargs)(np.take(x, first, axis=0), np.take(x, second, axis=0))


@scipy_function(f"{_D}.squareform")
def _squareform(X: Any, force: str = "no", checks: bool = True) -> Any:
    x = as_array(X)
    if x.ndim == 2:
        first, second = np.triu_indices(x.shape[0], 1)
        return x[first, second]
    n = round((1 + (1 + 8 * x.shape[0]) ** 0.5) / 2)
    first, second = np.triu_indices(n, 1)
    places = np.zeros((n, n), np.int64)
    places[first, second] = places[second, first] = np.arange(1, x.shape[0] + 1)
    return np.take(np.concatenate([np.zeros(1, x.dtype), x]), places)


# --- integrals of samples -------------------------------------------------------------------------

through_callbacks("scipy.integrate.fixed_quad")


def _steps(y: Any, x: Any, dx: Any, axis: int) -> Any:
    """Distances of neighbours, to be multiplied along the last axis."""
    if x is None:
        return dx
    x = as_array(x)
    return np.diff(x) if x.ndim == 1 else np.diff(np.moveaxis(x, axis, -1), axis=-1)


@scipy_function("scipy.integrate.trapezoid")
def _trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    rows = np.moveaxis(as_array(y), axis, -1)
    return np.sum(_steps(y, x, dx, axis) * (rows[..., 1:] + rows[..., :-1]) * 0.5, axis=-1)


@scipy_function("scipy.integrate.cumulative_trapezoid")
def _cumulative_trapezoid(
    y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1, initial: Any = None
) -> Any:
    y = as_array(y)
    rows = np.moveaxis(y, axis, -1)
    parts = _steps(y, x, dx, axis) * (rows[..., 1:] + rows[..., :-1]) * 0.5
    total = np.cumsum(parts, axis=-1)
    if initial is not None:
        total = np.concatenate([np.full((*total.shape[:-1], 1), initial), total], axis=-1)
    return np.moveaxis(total, -1, axis)


def _parabolas(y: Any, h: Any) -> Any:
    """Integrals over pairs of intervals, of the parabolas through three samples."""
    h0, h1 = h[..., 0::2], h[..., 1::2]
    whole, ratio = h0 + h1, h0 / h1
    left, middle, right = y[..., 0:-2:2], y[..., 1:-1:2], y[..., 2::2]
    terms = left * (2.0 - 1.0 / ratio) + middle * (whole * whole / (h0 * h1)) + right * (
        2.0 - ratio)  # fmt: skip
    return np.sum(whole / 6.0 * terms, axis=-1)


@scipy_function("scipy.integrate.simpson")
def _simpson(y: Any, x: Any = None, *, dx: Any = 1.0, axis: int = -1) -> Any:
    rows = np.moveaxis(as_array(y), axis, -1)
    n = rows.shape[-1]
    h = _steps(y, x, dx, axis)
    h = np.broadcast_to(h, (n - 1,)) if np.ndim(h) == 0 else h
    if n < 3:
        return np.sum(h * (rows[..., 1:] + rows[..., :-1]) * 0.5, axis=-1)
    if n % 2:
        return _parabolas(rows, h)
    # the last interval, of the parabola through the last three samples
    h0, h1 = h[..., -2], h[..., -1]
    last = (2 * h1 * h1 + 3 * h0 * h1) / (6 * (h0 + h1)) * rows[..., -1]
    last = last + (h1 * h1 + 3 * h0 * h1) / (6 * h0) * rows[..., -2]
    last = last - h1**3 / (6 * h0 * (h0 + h1)) * rows[..., -3]
    return _parabolas(rows[..., :-1], h[..., :-1]) + last


through("scipy.integrate.cumulative_simpson", "scipy.integrate.romb")
