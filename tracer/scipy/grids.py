"""Splines of scipy.ndimage: values between the elements of an array."""


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
from gradof.tracer.scipy.images import no_array


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
    no_array(output)
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
