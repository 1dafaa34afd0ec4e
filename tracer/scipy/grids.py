"""Interpolation on regular grids: RegularGridInterpolator, interpn, and scipy.ndimage's splines."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.functions import as_array, axis_of, traced_all
from gradof.tracer.numpy.recorder import contains_traced
from gradof.tracer.scipy.calls import holds_traced, scipy_function
from gradof.tracer.scipy.emit import emit

_RGI = "scipy.interpolate._rgi.RegularGridInterpolator"


@scipy_function("scipy.interpolate.RegularGridInterpolator.__init__", at=f"{_RGI}.__init__",
                raw=True)
def _grid(
    original: Any, self: Any, points: Any, values: Any, method: str = "linear",
    bounds_error: bool = True, fill_value: Any = np.nan, **options: Any,
) -> None:  # fmt: skip
    if holds_traced(points):
        raise TypeError("the points of a grid are traced: they are constants of a trace")
    if not holds_traced((values, fill_value)):
        original(self, points, values, method, bounds_error, fill_value, **options)
        return
    self._traced = (points, as_array(values), method, bounds_error, fill_value)


@scipy_function("scipy.interpolate.RegularGridInterpolator", at=f"{_RGI}.__call__", raw=True)
def _grid_call(
    original: Any, self: Any, xi: Any, method: Any = None, *, nu: Any = None
) -> Any:
    given = vars(self).get("_traced")
    if given is None:
        if not holds_traced((xi,)):
            return original(self, xi, method, nu=nu)
        given = (self.grid, self.values, self.method, self.bounds_error, self.fill_value)
    points, values, kind, bounds_error, fill = given
    if nu is not None or len(points) != np.ndim(values):
        raise TypeError("argument nu, or values of more dims than the grid")
    return on_grid(points, values, xi, method or kind, bounds_error, fill)


@scipy_function("scipy.interpolate.interpn", raw=True)
def _interpn(
    original: Any, points: Any, values: Any, xi: Any, method: str = "linear",
    bounds_error: bool = True, fill_value: Any = np.nan,
) -> Any:  # fmt: skip
    if not holds_traced((values, xi, fill_value)):
        return original(points, values, xi, method, bounds_error, fill_value)
    return on_grid(points, values, xi, method, bounds_error, fill_value)


def on_grid(
    points: Any, values: Any, xi: Any, method: str, bounds_error: bool, fill: Any
) -> Any:
    """Linear or nearest values at points, whose last dim is that of the grid."""
    if method not in ("linear", "nearest"):
        raise TypeError(f"argument method={method!r}")
    at: Any
    if isinstance(xi, tuple):
        at = np.stack(np.broadcast_arrays(*map(as_array, xi)), axis=-1)
    else:
        at = as_array(xi)
        at = at[..., None] if at.ndim == 1 and len(points) == 1 else at
        at = at[None] if at.ndim == 1 else at
    values, at = traced_all(values, at)
    places: list[Any] = []
    shares: list[Any] = []
    outside: Any = None
    for d, line in enumerate(points):
        grid: Any = np.asarray(line, np.float64)
        x: Any = at[..., d]
        if bounds_error and not np.all((x >= grid[0]) & (x <= grid[-1])):  # at every call
            raise ValueError(f"One of the requested xi is out of bounds in dimension {d}")
        low = np.clip(np.searchsorted(grid, x, side="right") - 1, 0, len(grid) - 2)
        grid = traced_all(grid, x)[0]
        start = np.take(grid, low)
        shares.append((x - start) / (np.take(grid, low + 1) - start))
        places.append(low)
        beyond = (x < grid[0]) | (x > grid[-1])
        outside = beyond if outside is None else outside | beyond
    if method == "nearest":
        result = values[tuple(np.where(s <= 0.5, p, p + 1)
                              for s, p in zip(shares, places, strict=True))]  # fmt: skip
    else:
        result = 0.0
        for corner in itertools.product((0, 1), repeat=len(points)):
            weights = [s if c else 1.0 - s for c, s in zip(corner, shares, strict=True)]
            index = tuple(p + c for c, p in zip(corner, places, strict=True))
            result = result + values[index] * math.prod(weights[1:], start=weights[0])
    return result if fill is None or bounds_error else np.where(outside, fill, result)


# --- scipy.ndimage's splines ----------------------------------------------------------------------


def _floats(x: Any) -> Any:
    x = as_array(x)
    if x.dtype.kind == "c":
        raise TypeError("argument input with complex numbers")
    return x.astype(np.float64)


@scipy_function("scipy.ndimage.spline_filter1d")
def _spline_filter1d(
    input: Any, order: int = 3, axis: int = -1, output: Any = None, mode: str = "mirror"
) -> Any:
    x = _floats(input)
    if order < 2:
        return np.copy(x)
    kind = {
        "reflect": "reflect", "grid-mirror": "reflect", "nearest": "reflect",
        "grid-wrap": "grid-wrap",
    }.get(mode, "mirror")  # fmt: skip
    return emit("spline_filter", x, order=order, mode=kind, dim=axis_of(axis, x.ndim))


@scipy_function("scipy.ndimage.spline_filter")
def _spline_filter(input: Any, order: int = 3, output: Any = None, mode: str = "mirror") -> Any:
    x = _floats(input)
    for d in range(x.ndim):
        x = _spline_filter1d(x, order, d, None, mode)
    return x


def _bases(order: int, share: Any) -> list[Any]:
    """The weights of order + 1 neighbours, the first of them first; share is from the lower."""
    if order == 0:
        return [share * 0.0 + 1.0]
    if order == 1:
        return [1.0 - share, share]
    if order == 2:  # share in [-1/2, 1/2]
        return [0.5 * (0.5 - share) ** 2, 0.75 - share * share, 0.5 * (0.5 + share) ** 2]
    if order == 3:
        rest = 1.0 - share
        return [rest**3 / 6.0, (share * share * (share - 2.0) * 3.0 + 4.0) / 6.0,
                (rest * rest * (rest - 2.0) * 3.0 + 4.0) / 6.0, share**3 / 6.0]  # fmt: skip
    raise TypeError(f"argument order={order}")


def _mirrored(place: Any, n: int, mode: str) -> Any:
    """Places beyond the ends, by how the spline goes on there."""
    if mode == "grid-wrap":
        return place % n
    if mode == "nearest":
        return np.clip(place, 0, n - 1)
    if mode in ("reflect", "grid-mirror"):
        turned = place % (2 * n)
        return np.where(turned < n, turned, 2 * n - 1 - turned)
    if n == 1:
        return place * 0
    turned = place % (2 * n - 2)
    return np.where(turned < n, turned, 2 * n - 2 - turned)


_FAR = 12  # elements that scipy puts around an array whose ends go on unchanged


def sampled(
    input: Any, coordinates: list[Any], order: int, mode: str, cval: Any, prefilter: bool
) -> Any:
    """The spline of an array at coordinates, one array of them per dim."""
    x = _floats(input)
    if mode not in ("constant", "nearest", "mirror", "reflect", "grid-mirror", "grid-wrap"):
        raise TypeError(f"argument mode={mode!r}")
    shift = 0
    if mode == "nearest" and prefilter and order > 1:
        x, shift = np.pad(x, _FAR, mode="edge"), _FAR
    if prefilter and order > 1:
        x = _spline_filter(x, order, None, mode)
    rows: list[Any] = []
    weights: list[Any] = []
    inside: Any = None
    for d, c in enumerate(coordinates):
        n = x.shape[d]
        c = as_array(c) + float(shift)
        if mode == "constant":
            within = (c >= 0) & (c <= n - 1)
            inside = within if inside is None else inside & within
            c = np.where(within, c, 0.0)
        middle = np.floor(c) if order % 2 else np.floor(c + 0.5)
        weights.append(_bases(order, c - middle))
        first = middle.astype(np.int64) - order // 2
        rows.append([_mirrored(first + k, n, mode) for k in range(order + 1)])
    result: Any = 0.0
    for corner in itertools.product(range(order + 1), repeat=len(rows)):
        index = tuple(r[k] for k, r in zip(corner, rows, strict=True))
        if contains_traced(index) and not isinstance(x, TracedArray):
            x = traced_all(x, *index)[0]
        factors = [w[k] for k, w in zip(corner, weights, strict=True)]
        result = result + x[index] * math.prod(factors[1:], start=factors[0])
    return result if inside is None else np.where(inside, result, cval)


@scipy_function("scipy.ndimage.map_coordinates")
def _map_coordinates(
    input: Any, coordinates: Any, output: Any = None, order: int = 3, mode: str = "constant",
    cval: Any = 0.0, prefilter: bool = True,
) -> Any:  # fmt: skip
    if output is not None:
        raise TypeError("argument output")
    at = as_array(coordinates)
    return sampled(input, [at[d] for d in range(at.shape[0])], order, mode, cval, prefilter)


def _grid_of(shape: Any) -> list[Any]:
    return list(np.indices(shape).astype(np.float64))


@scipy_function("scipy.ndimage.shift")
def _shift(
    input: Any, shift: Any, output: Any = None, order: int = 3, mode: str = "constant",
    cval: Any = 0.0, prefilter: bool = True,
) -> Any:  # fmt: skip
    x, by = as_array(input), as_array(shift)
    moved = [by[d] if by.ndim else by for d in range(x.ndim)]
    at = [g - m for g, m in zip(_grid_of(x.shape), moved, strict=True)]
    return sampled(x, at, order, mode, cval, prefilter)


@scipy_function("scipy.ndimage.zoom")
def _zoom(
    input: Any, zoom: Any, output: Any = None, order: int = 3, mode: str = "constant",
    cval: Any = 0.0, prefilter: bool = True, *, grid_mode: bool = False,
) -> Any:  # fmt: skip
    x = as_array(input)
    if holds_traced((zoom,)) or grid_mode:
        raise TypeError("argument zoom that is traced, or grid_mode")
    by = list(zoom) if np.ndim(zoom) else [zoom] * x.ndim
    if prefilter and all(z == 1 for z in by):  # as scipy: its filter is not quite exact
        return np.copy(_floats(x))
    shape = [round(n * float(z)) for n, z in zip(x.shape, by, strict=True)]
    at = [g * ((n - 1) / (m - 1) if m > 1 else 1.0)
          for g, n, m in zip(_grid_of(shape), x.shape, shape, strict=True)]  # fmt: skip
    return sampled(x, at, order, mode, cval, prefilter)


@scipy_function("scipy.ndimage.affine_transform")
def _affine_transform(
    input: Any, matrix: Any, offset: Any = 0.0, output_shape: Any = None, output: Any = None,
    order: int = 3, mode: str = "constant", cval: Any = 0.0, prefilter: bool = True,
) -> Any:  # fmt: skip
    x, a, start = as_array(input), as_array(matrix), as_array(offset)
    rank = x.ndim
    if a.ndim == 2 and a.shape[1] == rank + 1:
        a, start = a[:rank, :rank], a[:rank, rank]
    grids = _grid_of(x.shape if output_shape is None else output_shape)
    at = []
    for d in range(rank):
        terms = [a[d] * grids[d]] if a.ndim == 1 else [a[d, k] * grids[k] for k in range(rank)]
        at.append(sum(terms[1:], terms[0]) + (start[d] if start.ndim else start))
    return sampled(x, at, order, mode, cval, prefilter)


@scipy_function("scipy.ndimage.rotate")
def _rotate(
    input: Any, angle: Any, axes: Any = (1, 0), reshape: bool = True, output: Any = None,
    order: int = 3, mode: str = "constant", cval: Any = 0.0, prefilter: bool = True,
) -> Any:  # fmt: skip
    x = as_array(input)
    if x.ndim != 2 or (reshape and holds_traced((angle,))):
        raise TypeError("argument input of more than two dims, or reshape with a traced angle")
    turn = as_array(angle) * (math.pi / 180)
    c, s = np.cos(turn), np.sin(turn)
    shape = np.array(x.shape)
    if reshape:
        m, n = x.shape
        corners = np.array([[c, s], [-s, c]]) @ [[0, 0, m, m], [0, n, 0, n]]
        shape = (np.ptp(corners, axis=1) + 0.5).astype(int)
    middle, center = (shape - 1) / 2.0, (np.array(x.shape) - 1) / 2.0
    rows, columns = _grid_of(tuple(shape))
    rows, columns = rows - middle[0], columns - middle[1]
    at = [c * rows + s * columns + center[0], c * columns - s * rows + center[1]]
    return sampled(x, at, order, mode, cval, prefilter)
