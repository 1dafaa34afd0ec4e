"""Functions of scipy that are linear in their values: a constant matrix or factor, found once.

    griddata(points, values, xi)                  # of constant points: a matrix times values
    make_smoothing_spline(t, y, lam=0.1)          # of constant places and lam
    fourier_gaussian(np.fft.fftn(x), sigma)       # a factor for each frequency
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.functions import as_array
from gradof.tracer.scipy.calls import holds_traced, original_of, scipy_function

Function = Callable[..., Any]


def _constant(name: str, *given: Any) -> None:
    """That all but the values are constants of a trace."""
    for value in given:
        if (type(value) is TracedArray and not value.is_constant) or (
            isinstance(value, (tuple, list)) and holds_traced(value)
        ):
            raise TypeError(f"{name} of traced values that are no ordinates")


def _matrix(of: Function, count: int) -> Any:
    """That of a linear map, by the images of unit vectors."""
    return np.stack([np.asarray(of(row)) for row in np.eye(count)], axis=-1)


@scipy_function("scipy.interpolate.griddata", raw=True)
def _griddata(
    original: Any, points: Any, values: Any, xi: Any, method: str = "linear",
    fill_value: Any = np.nan, rescale: bool = False,
) -> Any:  # fmt: skip
    if not holds_traced((points, values, xi, fill_value)):
        return original(points, values, xi, method, fill_value, rescale)
    if np.ndim(points) < 2 and method != "cubic":  # as scipy does
        from scipy.interpolate import interp1d

        fill = "extrapolate" if method == "nearest" else fill_value
        made = interp1d(points, values, method, 0, bounds_error=False, fill_value=fill)
        return made(xi[0] if isinstance(xi, tuple) else xi)
    _constant("griddata", points, xi, fill_value)
    if method == "cubic" and np.ndim(points) == 2 and np.shape(points)[1] > 1:
        raise TypeError("griddata of traced values with method='cubic', which estimates slopes")
    values = as_array(values)
    if np.ndim(points) < 2 and method == "cubic":
        raise TypeError("griddata of traced values in one dim with method='cubic': CubicSpline")
    rows = _matrix(
        lambda row: original(points, row, xi, method, np.nan, rescale), values.shape[0]
    )
    outside = np.isnan(rows[..., 0])
    flat = np.reshape(values, (values.shape[0], -1))
    found = np.reshape(np.where(outside[..., None], 0.0, rows) @ flat,
                       (*outside.shape, *values.shape[1:]))  # fmt: skip
    where = np.reshape(outside, (*outside.shape, *(1,) * (values.ndim - 1)))
    return np.where(where, fill_value, found) if outside.any() else found


@scipy_function("scipy.interpolate.make_smoothing_spline", raw=True)
def _smoothing(
    original: Any, x: Any, y: Any, w: Any = None, lam: Any = None, **options: Any
) -> Any:
    if not holds_traced((x, y, w, lam)):
        return original(x, y, w, lam, **options)
    _constant("make_smoothing_spline", x, w, lam)
    y = as_array(y)
    if lam is None or y.ndim != 1:
        raise TypeError("make_smoothing_spline of traced values without lam, or of several dims")
    from scipy.interpolate import BSpline

    spline = original(x, np.zeros(y.shape[0]), w, lam, **options)
    matrix = _matrix(lambda row: original(x, row, w, lam, **options).c, y.shape[0])
    return BSpline(spline.t, matrix @ y, spline.k)


def _by_frequency(name: str) -> None:
    @scipy_function(f"scipy.ndimage.{name}")
    def filtered(input: Any, size: Any, n: int = -1, axis: int = -1, output: Any = None) -> Any:
        x = as_array(input)
        if output is not None or holds_traced((size,)):
            raise TypeError("argument output, or a size that is traced")
        return x * original_of(f"scipy.ndimage.{name}")(np.ones(x.shape), size, n, axis)


for _name in ("fourier_gaussian", "fourier_uniform", "fourier_ellipsoid"):
    _by_frequency(_name)
