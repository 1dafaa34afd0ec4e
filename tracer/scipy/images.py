"""scipy.ndimage: filters, as sums or orders of neighbours of an array that is extended first."""

from __future__ import annotations

import importlib
import itertools
from typing import Any

import numpy as np

from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.functions import as_array, axis_of
from gradof.tracer.numpy.reductions import safe_root
from gradof.tracer.scipy.calls import scipy_function
from gradof.tracer.scipy.emit import emit

# numpy's names of scipy's modes
_MODES = {
    "reflect": "symmetric", "grid-mirror": "symmetric", "mirror": "reflect", "nearest": "edge",
    "wrap": "wrap", "grid-wrap": "wrap",
}  # fmt: skip
TAPS = 512  # neighbours of one element, each of which is a slice of the graph


def extended(x: Any, axis: int, before: int, after: int, mode: str, cval: Any) -> Any:
    """The array with elements before and after those of an axis."""
    if before == after == 0:
        return x
    if mode in ("constant", "grid-constant"):
        pads = [(before, after) if d == axis else (0, 0) for d in range(x.ndim)]
        return np.pad(x, pads, constant_values=cval)
    if mode not in _MODES:
        raise TypeError(f"argument mode={mode!r}")
    places: Any = np.pad(np.arange(x.shape[axis]), (before, after), mode=_MODES[mode])  # type: ignore[call-overload]
    return np.take(x, places, axis=axis)


def _floating(x: Any) -> Any:
    x = as_array(x)
    if x.dtype.kind == "c":
        raise TypeError("argument input with complex numbers")
    return x if x.dtype.kind == "f" else x.astype(np.float64)


def no_array(output: Any) -> None:
    """`output` says a dtype at most."""
    if output is not None and not isinstance(output, (type, np.dtype, str)):
        raise TypeError("argument output that is an array")


def _sequence(value: Any, n: int) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return list(value)
    return list(value) if np.ndim(value) else [value] * n


def along(x: Any, weights: Any, axis: int, mode: str, cval: Any, origin: int) -> Any:
    """One axis correlated with a row of weights."""
    k = len(weights)
    before = k // 2 + origin
    wide = extended(x, axis, before, k - 1 - before, mode, cval)
    return emit("correlate1d", wide, as_array(weights), dim=axis)


@scipy_function("scipy.ndimage.correlate1d")
def _correlate1d(
    input: Any, weights: Any, axis: int = -1, output: Any = None, mode: str = "reflect",
    cval: Any = 0.0, origin: int = 0,
) -> Any:  # fmt: skip
    no_array(output)
    x = _floating(input)
    return along(x, weights, axis_of(axis, x.ndim), mode, cval, origin)


@scipy_function("scipy.ndimage.convolve1d")
def _convolve1d(
    input: Any, weights: Any, axis: int = -1, output: Any = None, mode: str = "reflect",
    cval: Any = 0.0, origin: int = 0,
) -> Any:  # fmt: skip
    weights = np.flip(as_array(weights))
    return _correlate1d(input, weights, axis, output, mode, cval,
                        -origin - (len(weights) % 2 == 0))  # fmt: skip


def _kernel(sigma: Any, order: int, radius: int) -> Any:
    if not isinstance(sigma, TracedArray):
        filters = importlib.import_module("scipy.ndimage._filters")
        return filters._gaussian_kernel1d(float(sigma), order, radius)[::-1]
    if order:
        raise TypeError("argument order beside a traced sigma")
    bell = np.exp(-0.5 / (sigma * sigma) * np.arange(-radius, radius + 1) ** 2)
    return bell / np.sum(bell)


@scipy_function("scipy.ndimage.gaussian_filter1d")
def _gaussian_filter1d(
    input: Any, sigma: Any, axis: int = -1, order: int = 0, output: Any = None,
    mode: str = "reflect", cval: Any = 0.0, truncate: float = 4.0, *, radius: Any = None,
) -> Any:  # fmt: skip
    radius = int(truncate * sigma + 0.5) if radius is None else int(radius)
    return _correlate1d(input, _kernel(sigma, order, radius), axis, output, mode, cval, 0)


def _axes(x: Any, axes: Any) -> list[int]:
    if axes is None:
        return list(range(x.ndim))
    return [axis_of(a, x.ndim) for a in ((axes,) if isinstance(axes, int) else axes)]


@scipy_function("scipy.ndimage.gaussian_filter")
def _gaussian_filter(
    input: Any, sigma: Any, order: Any = 0, output: Any = None, mode: Any = "reflect",
    cval: Any = 0.0, truncate: float = 4.0, *, radius: Any = None, axes: Any = None,
) -> Any:  # fmt: skip
    x = _floating(input)
    dims = _axes(x, axes)
    given = zip(*(_sequence(v, len(dims)) for v in (sigma, order, mode, radius)), strict=True)
    for dim, (s, o, m, r) in zip(dims, given, strict=True):
        if not isinstance(s, TracedArray) and s <= 1e-15:  # as scipy: no filter
            continue
        x = _gaussian_filter1d(x, s, dim, o, output, m, cval, truncate, radius=r)
    return np.copy(x) if x is input else x


@scipy_function("scipy.ndimage.uniform_filter1d")
def _uniform_filter1d(
    input: Any, size: int, axis: int = -1, output: Any = None, mode: str = "reflect",
    cval: Any = 0.0, origin: int = 0,
) -> Any:  # fmt: skip
    return _correlate1d(input, np.full(size, 1.0 / size), axis, output, mode, cval, origin)


@scipy_function("scipy.ndimage.uniform_filter")
def _uniform_filter(
    input: Any, size: Any = 3, output: Any = None, mode: Any = "reflect", cval: Any = 0.0,
    origin: Any = 0, *, axes: Any = None,
) -> Any:  # fmt: skip
    x = _floating(input)
    dims = _axes(x, axes)
    for d, s, m, o in zip(dims, *(_sequence(v, len(dims)) for v in (size, mode, origin)),
                          strict=True):  # fmt: skip
        x = _uniform_filter1d(x, int(s), d, output, m, cval, o)
    return x


def _edges(names: str, across: tuple[float, ...]) -> None:
    @scipy_function(f"scipy.ndimage.{names}")
    def filtered(
        input: Any, axis: int = -1, output: Any = None, mode: Any = "reflect", cval: Any = 0.0
    ) -> Any:
        no_array(output)
        x = _floating(input)
        axis = axis_of(axis, x.ndim)
        modes = _sequence(mode, x.ndim)
        x = along(x, np.array([-1.0, 0.0, 1.0]), axis, modes[axis], cval, 0)
        for d in range(x.ndim):
            x = x if d == axis else along(x, np.array(across), d, modes[d], cval, 0)
        return x


_edges("sobel", (1.0, 2.0, 1.0))
_edges("prewitt", (1.0, 1.0, 1.0))


@scipy_function("scipy.ndimage.laplace")
def _laplace(
    input: Any, output: Any = None, mode: Any = "reflect", cval: Any = 0.0, *, axes: Any = None
) -> Any:
    no_array(output)
    x = _floating(input)
    dims = _axes(x, axes)
    parts = [along(x, np.array([1.0, -2.0, 1.0]), d, m, cval, 0)
             for d, m in zip(dims, _sequence(mode, len(dims)), strict=True)]  # fmt: skip
    return sum(parts[1:], parts[0])


def _by_axis(
    x: Any, sigmas: Any, order: int, mode: Any, cval: Any, dims: list[int], rest: Any
) -> Any:
    """A derivative along each of the dims; its mode is that of all dims then."""
    for along_dim, m in zip(dims, _sequence(mode, len(dims)), strict=True):
        orders = [order if d == along_dim else 0 for d in range(x.ndim)]
        yield _gaussian_filter(x, sigmas, orders, None, m, cval, **rest)


@scipy_function("scipy.ndimage.gaussian_laplace")
def _gaussian_laplace(
    input: Any, sigma: Any, output: Any = None, mode: Any = "reflect", cval: Any = 0.0, *,
    axes: Any = None, **kwargs: Any,
) -> Any:  # fmt: skip
    no_array(output)
    x = _floating(input)
    dims = _axes(x, axes)
    sigmas: list[Any] = [0.0] * x.ndim
    for d, s in zip(dims, _sequence(sigma, len(dims)), strict=True):
        sigmas[d] = s
    parts = list(_by_axis(x, sigmas, 2, mode, cval, dims, kwargs))
    return sum(parts[1:], parts[0])


@scipy_function("scipy.ndimage.gaussian_gradient_magnitude")
def _gaussian_gradient_magnitude(
    input: Any, sigma: Any, output: Any = None, mode: Any = "reflect", cval: Any = 0.0, *,
    axes: Any = None, **kwargs: Any,
) -> Any:  # fmt: skip
    no_array(output)
    x = _floating(input)
    squares = [p * p for p in _by_axis(x, sigma, 1, mode, cval, _axes(x, axes), kwargs)]
    return safe_root(sum(squares[1:], squares[0]))  # a mirrored corner has no slope


# --- neighbourhoods -------------------------------------------------------------------------------


def _neighbours(x: Any, shape: Any, where: Any, mode: Any, cval: Any, origin: Any) -> list[Any]:
    """The array shifted to each place of a neighbourhood where `where` is true."""
    if np.count_nonzero(where) > TAPS:
        raise TypeError(f"argument of more than {TAPS} neighbours")
    modes, origins = _sequence(mode, x.ndim), _sequence(origin, x.ndim)
    wide = x
    for d, (k, m, o) in enumerate(zip(shape, modes, origins, strict=True)):
        before = k // 2 + o
        wide = extended(wide, d, before, k - 1 - before, m, cval)
    return [
        wide[tuple(slice(p, p + n) for p, n in zip(place, x.shape, strict=True))]
        for place in itertools.product(*map(range, shape)) if where[place]
    ]  # fmt: skip


def _correlated(input: Any, weights: Any, output: Any, mode: Any, cval: Any, origin: Any,
                axes: Any) -> Any:  # fmt: skip
    no_array(output)
    x, w = _floating(input), as_array(weights)
    if axes is not None or w.ndim != x.ndim:
        raise TypeError("argument axes")
    traced = isinstance(w, TracedArray)
    where = np.ones(w.shape, bool) if traced else np.asarray(w) != 0
    near = _neighbours(x, w.shape, where, mode, cval, origin)
    flat = [w[place] for place in itertools.product(*map(range, w.shape)) if where[place]]
    if not near:
        return x * 0.0
    parts = [a * n for a, n in zip(flat, near, strict=True)]
    return sum(parts[1:], parts[0])


@scipy_function("scipy.ndimage.correlate")
def _correlate(
    input: Any, weights: Any, output: Any = None, mode: Any = "reflect", cval: Any = 0.0,
    origin: Any = 0, *, axes: Any = None,
) -> Any:  # fmt: skip
    return _correlated(input, weights, output, mode, cval, origin, axes)


def _turned(origin: Any, shape: Any) -> list[int]:
    return [-o - (k % 2 == 0) for o, k in zip(_sequence(origin, len(shape)), shape, strict=True)]


@scipy_function("scipy.ndimage.convolve")
def _convolve(
    input: Any, weights: Any, output: Any = None, mode: Any = "reflect", cval: Any = 0.0,
    origin: Any = 0, *, axes: Any = None,
) -> Any:  # fmt: skip
    w = as_array(weights)
    return _correlated(input, np.flip(w), output, mode, cval, _turned(origin, w.shape), axes)


def _footprint(x: Any, size: Any, footprint: Any, axes: Any) -> Any:
    if axes is not None:
        raise TypeError("argument axes")
    if footprint is not None:
        return np.asarray(footprint, bool)
    return np.ones([int(s) for s in _sequence(size, x.ndim)], bool)


def _ranked(x: Any, where: Any, rank: int, mode: Any, cval: Any, origin: Any) -> Any:
    near = np.stack(_neighbours(x, where.shape, where, mode, cval, origin))
    if rank in (0, -1):
        return np.min(near, axis=0) if rank == 0 else np.max(near, axis=0)
    return np.sort(near, axis=0)[rank]


def _extreme(name: str, rank: int) -> None:
    @scipy_function(f"scipy.ndimage.{name}_filter")
    def whole(
        input: Any, size: Any = None, footprint: Any = None, output: Any = None,
        mode: Any = "reflect", cval: Any = 0.0, origin: Any = 0, *, axes: Any = None,
    ) -> Any:  # fmt: skip
        no_array(output)
        x = _floating(input)
        return _ranked(x, _footprint(x, size, footprint, axes), rank, mode, cval, origin)

    @scipy_function(f"scipy.ndimage.{name}_filter1d")
    def row(
        input: Any, size: int, axis: int = -1, output: Any = None, mode: str = "reflect",
        cval: Any = 0.0, origin: int = 0,
    ) -> Any:  # fmt: skip
        no_array(output)
        x = _floating(input)
        axis = axis_of(axis, x.ndim)
        shape = [size if d == axis else 1 for d in range(x.ndim)]
        origins = [origin if d == axis else 0 for d in range(x.ndim)]
        return _ranked(x, np.ones(shape, bool), rank, mode, cval, origins)

    @scipy_function(f"scipy.ndimage.grey_{'erosion' if rank == 0 else 'dilation'}")
    def grey(
        input: Any, size: Any = None, footprint: Any = None, structure: Any = None,
        output: Any = None, mode: Any = "reflect", cval: Any = 0.0, origin: Any = 0, *,
        axes: Any = None,
    ) -> Any:  # fmt: skip
        no_array(output)
        if structure is not None:
            raise TypeError("argument structure")
        x = _floating(input)
        where = _footprint(x, size, footprint, axes)
        if rank == -1:
            where, origin = where[(slice(None, None, -1),) * where.ndim], _turned(
                origin, where.shape)  # fmt: skip
        return _ranked(x, where, rank, mode, cval, origin)

    _GREY[rank] = grey


_GREY: dict[int, Any] = {}
_extreme("minimum", 0)
_extreme("maximum", -1)
_MORPHOLOGY = {
    "grey_opening": lambda x, erode, dilate: dilate(erode(x)),
    "grey_closing": lambda x, erode, dilate: erode(dilate(x)),
    "morphological_gradient": lambda x, erode, dilate: dilate(x) - erode(x),
    "morphological_laplace": lambda x, erode, dilate: dilate(x) + erode(x) - 2.0 * x,
    "white_tophat": lambda x, erode, dilate: x - dilate(erode(x)),
    "black_tophat": lambda x, erode, dilate: erode(dilate(x)) - x,
}


def _morphology(name: str) -> None:
    @scipy_function(f"scipy.ndimage.{name}")
    def filtered(
        input: Any, size: Any = None, footprint: Any = None, structure: Any = None,
        output: Any = None, mode: Any = "reflect", cval: Any = 0.0, origin: Any = 0, *,
        axes: Any = None,
    ) -> Any:  # fmt: skip
        if np.any(np.asarray(origin)):
            raise TypeError("argument origin")
        rest = (size, footprint, structure, output, mode, cval, 0)
        return _MORPHOLOGY[name](
            _floating(input), lambda x: _GREY[0](x, *rest, axes=axes),
            lambda x: _GREY[-1](x, *rest, axes=axes),
        )  # fmt: skip


for _name in _MORPHOLOGY:
    _morphology(_name)


@scipy_function("scipy.ndimage.rank_filter")
def _rank_filter(
    input: Any, rank: int, size: Any = None, footprint: Any = None, output: Any = None,
    mode: Any = "reflect", cval: Any = 0.0, origin: Any = 0, *, axes: Any = None,
) -> Any:  # fmt: skip
    no_array(output)
    x = _floating(input)
    where = _footprint(x, size, footprint, axes)
    return _ranked(x, where, int(rank) % int(where.sum()), mode, cval, origin)


@scipy_function("scipy.ndimage.median_filter")
def _median_filter(
    input: Any, size: Any = None, footprint: Any = None, output: Any = None,
    mode: Any = "reflect", cval: Any = 0.0, origin: Any = 0, *, axes: Any = None,
) -> Any:  # fmt: skip
    x = _floating(input)
    where = _footprint(x, size, footprint, axes)
    return _ranked(x, where, int(where.sum()) // 2, mode, cval, origin)


@scipy_function("scipy.ndimage.percentile_filter")
def _percentile_filter(
    input: Any, percentile: float, size: Any = None, footprint: Any = None, output: Any = None,
    mode: Any = "reflect", cval: Any = 0.0, origin: Any = 0, *, axes: Any = None,
) -> Any:  # fmt: skip
    x = _floating(input)
    where = _footprint(x, size, footprint, axes)
    count = int(where.sum())
    share = percentile + 100.0 if percentile < 0 else percentile
    rank = count - 1 if share == 100.0 else int(count * share / 100.0)
    return _ranked(x, where, rank, mode, cval, origin)


@scipy_function("scipy.signal.medfilt", "scipy.signal.medfilt2d")
def _medfilt(volume: Any, kernel_size: Any = None) -> Any:
    x = _floating(volume)
    sizes = _sequence(3 if kernel_size is None else kernel_size, x.ndim)
    return _median_filter(x, [int(s) for s in sizes], mode="constant")
