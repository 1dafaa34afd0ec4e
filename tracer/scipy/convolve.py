"""scipy.signal: convolution, correlation, recursive filters."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradof.tracer.numpy.functions import as_array, axis_of
from gradof.tracer.scipy.calls import scipy_function
from gradof.tracer.scipy.emit import emit, float_dtype

SHORT = 64  # elements of the shorter row, up to which sums of products are taken one by one


def full_convolution(a: Any, b: Any, axes: tuple[int, ...]) -> Any:
    """The convolution over `axes`; over other axes the operands broadcast."""
    sizes = tuple(a.shape[d] + b.shape[d] - 1 for d in axes)
    if a.ndim == 1 and min(a.size, b.size) <= SHORT:
        return np.convolve(a, b)
    if "c" in (a.dtype.kind, b.dtype.kind):
        return np.fft.ifftn(np.fft.fftn(a, sizes, axes) * np.fft.fftn(b, sizes, axes), sizes, axes)
    dtype = float_dtype(a, b)
    a, b = a.astype(dtype), b.astype(dtype)
    product = np.fft.rfftn(a, sizes, axes) * np.fft.rfftn(b, sizes, axes)
    return np.fft.irfftn(product, sizes, axes)


def _cropped(full: Any, a: Any, b: Any, mode: str, axes: tuple[int, ...]) -> Any:
    if mode == "full":
        return full
    if mode not in ("same", "valid"):
        raise TypeError(f"argument mode={mode!r}")
    index: list[slice] = [slice(None)] * full.ndim
    for d in axes:
        n = a.shape[d] if mode == "same" else abs(a.shape[d] - b.shape[d]) + 1
        start = (full.shape[d] - n) // 2
        index[d] = slice(start, start + n)
    return full[tuple(index)]


@scipy_function("scipy.signal.convolve")
def _convolve(in1: Any, in2: Any, mode: str = "full", method: str = "auto") -> Any:
    a, b = as_array(in1), as_array(in2)
    if a.ndim == 0:
        return a * b
    axes = tuple(range(a.ndim))
    return _cropped(full_convolution(a, b, axes), a, b, mode, axes)


@scipy_function("scipy.signal.correlate")
def _correlate(in1: Any, in2: Any, mode: str = "full", method: str = "auto") -> Any:
    return _convolve(in1, np.conj(np.flip(as_array(in2))), mode)


@scipy_function("scipy.signal.fftconvolve", "scipy.signal.oaconvolve")
def _fftconvolve(in1: Any, in2: Any, mode: str = "full", axes: Any = None) -> Any:
    a, b = as_array(in1), as_array(in2)
    given = range(a.ndim) if axes is None else np.atleast_1d(axes).tolist()
    dims = tuple(axis_of(d, a.ndim) for d in given)
    return _cropped(full_convolution(a, b, dims), a, b, mode, dims)


_BOUNDARIES = {"wrap": "wrap", "symm": "symmetric"}


@scipy_function("scipy.signal.convolve2d")
def _convolve2d(
    in1: Any, in2: Any, mode: str = "full", boundary: str = "fill", fillvalue: Any = 0
) -> Any:
    a, b = as_array(in1), as_array(in2)
    if mode == "valid" or (boundary == "fill" and isinstance(fillvalue, int) and fillvalue == 0):
        return _convolve(a, b, mode)
    pads = [(n - 1, n - 1) for n in b.shape]
    if boundary == "fill":
        wide = np.pad(a, pads, constant_values=fillvalue)
    else:
        wide = np.pad(a, pads, mode=_BOUNDARIES[boundary])  # type: ignore[call-overload]
    full = _cropped(full_convolution(wide, b, (0, 1)), wide, b, "valid", (0, 1))
    return _cropped(full, a, b, mode, (0, 1))


@scipy_function("scipy.signal.correlate2d")
def _correlate2d(
    in1: Any, in2: Any, mode: str = "full", boundary: str = "fill", fillvalue: Any = 0
) -> Any:
    a, b = as_array(in1), as_array(in2)
    if mode == "same" and any(n % 2 == 0 for n in b.shape):
        raise TypeError("argument in2 of even sizes, with mode='same'")
    return _convolve2d(a, np.conj(np.flip(b)), mode, boundary, fillvalue)


# --- recursive filters ----------------------------------------------------------------------------


def _last(x: Any, axis: int) -> Any:
    return np.moveaxis(x, axis, -1)


def _padded_to(x: Any, n: int) -> Any:
    have = x.shape[-1]
    return x[..., :n] if have >= n else np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, n - have)])


def _filtered(b: Any, a: Any, x: Any, zi: Any) -> tuple[Any, Any]:
    """Along the last axis: the result, and the state at the end where one is given."""
    given = [v for v in (b, a, x, zi) if v is not None]
    dtype = np.result_type(*given)
    if dtype.kind not in "fc":
        raise NotImplementedError(  # as scipy does
            f"Parameter's dtypes produced result type '{dtype}', which is not supported!"
        )
    if dtype.kind == "c":
        return _filtered_apart(b, a, x, zi)
    b, a, x = (v.astype(dtype, copy=False) for v in (b, a, x))
    y = emit("lfilter", b, a, x)
    if zi is None:
        return y, None
    one, n = np.ones(1, y.dtype), x.shape[-1]
    start = np.broadcast_to(as_array(zi), (*x.shape[:-1], np.shape(zi)[-1]))
    y = y + emit("lfilter", one, a / a[0], _padded_to(start, n))
    order = max(len(a), len(b)) - 1
    b, a = _padded_to(b, order + 1) / a[0], _padded_to(a, order + 1) / a[0]
    ends = []
    for i in range(order):
        terms = [b[k] * x[..., n + i - k] - a[k] * y[..., n + i - k]
                 for k in range(i + 1, min(order, n + i) + 1)]  # fmt: skip
        terms += [start[..., i + n]] if i + n < order else []
        ends.append(sum(terms[1:], terms[0]))
    return y, np.stack(ends, axis=-1) if ends else start


def _filtered_apart(b: Any, a: Any, x: Any, zi: Any) -> tuple[Any, Any]:
    """Of complex numbers: the parts of b x, and of the state, in which the result is linear."""
    if np.iscomplexobj(a):
        raise TypeError("argument a with complex numbers")
    state = None if zi is None else np.zeros_like(np.imag(zi))
    parts = [
        (np.real(b), np.real(x), None if zi is None else np.real(zi), 1.0),
        (np.imag(b), np.imag(x), state, -1.0),
        (np.real(b), np.imag(x), None if zi is None else np.imag(zi), 1j),
        (np.imag(b), np.real(x), state, 1j),
    ]
    found = [(_filtered(b, a, x, zi), factor) for b, x, zi, factor in parts]
    y = sum(y * factor for (y, _), factor in found)
    return y, None if zi is None else sum(end * factor for (_, end), factor in found)


@scipy_function("scipy.signal.lfilter")
def _lfilter(b: Any, a: Any, x: Any, axis: int = -1, zi: Any = None) -> Any:
    b, a, x = np.atleast_1d(as_array(b)), np.atleast_1d(as_array(a)), as_array(x)
    state = None if zi is None else _last(as_array(zi), axis)
    y, end = _filtered(b, a, _last(x, axis), state)
    y = np.moveaxis(y, -1, axis)
    return y if zi is None else (y, np.moveaxis(end, -1, axis))


@scipy_function("scipy.signal.sosfilt")
def _sosfilt(sos: Any, x: Any, axis: int = -1, zi: Any = None) -> Any:
    sos, y = as_array(sos), _last(as_array(x), axis)
    states = None if zi is None else np.moveaxis(as_array(zi), axis if axis < 0 else axis + 1, -1)
    ends = []
    for k in range(sos.shape[0]):
        y, end = _filtered(sos[k, :3], sos[k, 3:], y, None if states is None else states[k])
        ends.append(end)
    y = np.moveaxis(y, -1, axis)
    if zi is None:
        return y
    return y, np.moveaxis(np.stack(ends), -1, axis if axis < 0 else axis + 1)
