"""scipy.fft: Fourier transforms by numpy's adaptors, cosine and sine transforms by an op."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradof.tracer.numpy.functions import as_array, axis_of
from gradof.tracer.scipy.calls import scipy_function
from gradof.tracer.scipy.emit import emit

_FFT, _TRIG = "scipy.fft._basic_backend", "scipy.fft._realtransforms_backend"
_SWAPPED: dict[Any, Any] = {
    None: "forward", "backward": "forward", "ortho": "ortho", "forward": "backward",
}  # fmt: skip


def _one(name: str) -> None:
    function = getattr(np.fft, name)

    @scipy_function(f"scipy.fft.{name}", at=f"{_FFT}.{name}")
    def transform(
        x: Any, n: Any = None, axis: int = -1, norm: Any = None, overwrite_x: Any = None,
        workers: Any = None, *, plan: Any = None,
    ) -> Any:  # fmt: skip
        return function(as_array(x), n, axis, norm)


def _many(name: str, axes_default: Any) -> None:
    function = getattr(np.fft, name)

    @scipy_function(f"scipy.fft.{name}", at=f"{_FFT}.{name}")
    def transform(
        x: Any, s: Any = None, axes: Any = axes_default, norm: Any = None, overwrite_x: Any = None,
        workers: Any = None, *, plan: Any = None,
    ) -> Any:  # fmt: skip
        x = as_array(x)
        return function(x, *_layout(x, s, axes), norm)


def _layout(x: Any, s: Any, axes: Any) -> tuple[Any, Any]:
    """Sizes and axes: with sizes alone, scipy takes the last axes, and one may be a number."""
    s = (s,) if isinstance(s, int) else s
    axes = (axes,) if isinstance(axes, int) else axes
    if s is not None and axes is None:
        axes = tuple(range(x.ndim - len(s), x.ndim))
    return s, axes


for _name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"):
    _one(_name)
for _name in ("fftn", "ifftn", "rfftn", "irfftn"):
    _many(_name, None)
for _name in ("fft2", "ifft2", "rfft2", "irfft2"):
    _many(_name, (-2, -1))


def _hermitian(name: str, axes_default: Any) -> None:
    inverse = name.startswith("i")

    @scipy_function(f"scipy.fft.{name}", at=f"{_FFT}.{name}")
    def transform(
        x: Any, s: Any = None, axes: Any = axes_default, norm: Any = None, overwrite_x: Any = None,
        workers: Any = None, *, plan: Any = None,
    ) -> Any:  # fmt: skip
        x = as_array(x)
        s, axes = _layout(x, s, axes)
        if inverse:
            return np.conj(np.fft.rfftn(x, s, axes, _SWAPPED[norm]))
        return np.fft.irfftn(np.conj(x), s, axes, _SWAPPED[norm])


for _name, _axes in (("hfftn", None), ("ihfftn", None), ("hfft2", (-2, -1)),
                     ("ihfft2", (-2, -1))):
    _hermitian(_name, _axes)

# --- cosine and sine transforms -------------------------------------------------------------------

_INVERSE = {1: 1, 2: 3, 3: 2, 4: 4}


def _edges(x: Any, axis: int, first: float, last: float) -> Any:
    weight = np.ones(x.shape[axis], x.dtype)
    weight[0] *= first
    weight[-1] *= last
    return x * np.reshape(weight, [-1 if d == axis else 1 for d in range(x.ndim)])


def _along(
    x: Any, cosine: bool, kind: int, axis: int, norm: Any, straight: bool, inverse: bool
) -> Any:
    """One axis transformed; `straight` where the matrix is made orthogonal up to a scale."""
    n = x.shape[axis]
    kind = _INVERSE[kind] if inverse else kind
    root = math.sqrt(2.0)
    end = (root, 1.0) if cosine else (1.0, root)
    if kind == 1:
        end = (root, root) if cosine else (1.0, 1.0)
    before, after = kind in (1, 3) and straight, kind in (1, 2) and straight
    x = _edges(x, axis, *end) if before else x
    y = emit("trig_transform", x, cosine=cosine, type=kind, dim=axis)
    y = _edges(y, axis, 1 / end[0], 1 / end[1]) if after else y
    points = 2.0 * (n if kind != 1 else n - 1 if cosine else n + 1)
    norm = norm or "backward"
    if norm == "ortho":
        return y / math.sqrt(points)
    return y / points if (norm == "backward") == inverse else y


def _resized(x: Any, axis: int, size: Any) -> Any:
    if size is None or size == x.shape[axis]:
        return x
    if size < x.shape[axis]:
        return x[(slice(None),) * axis + (slice(0, size),)]
    return np.pad(x, [(0, size - x.shape[d] if d == axis else 0) for d in range(x.ndim)])


def _trig(x: Any, cosine: bool, kind: int, sizes: Any, axes: Any, norm: Any, straight: Any,
          inverse: bool) -> Any:  # fmt: skip
    x = as_array(x)
    if x.dtype.kind == "c":  # scipy does not ask for `orthogonalize` here
        parts = [_trig(p, cosine, kind, sizes, axes, norm, None, inverse)
                 for p in (x.real, x.imag)]  # fmt: skip
        return parts[0] + 1j * parts[1]
    straight = norm == "ortho" if straight is None else straight
    x = x.astype(np.float64) if x.dtype.kind != "f" else x
    for axis, size in zip(axes, sizes, strict=True):
        x = _resized(x, axis, size)
        x = _along(x, cosine, kind, axis, norm, straight, inverse)
    return x


def _cosines(name: str) -> None:
    cosine, inverse = "dct" in name, name.startswith("i")

    @scipy_function(f"scipy.fft.{name}", at=f"{_TRIG}.{name}")
    def transform(
        x: Any, type: int = 2, n: Any = None, axis: int = -1, norm: Any = None,
        overwrite_x: Any = None, workers: Any = None, orthogonalize: Any = None,
    ) -> Any:  # fmt: skip
        axes = (axis_of(axis, np.ndim(x)),)
        return _trig(x, cosine, type, (n,), axes, norm, orthogonalize, inverse)

    @scipy_function(f"scipy.fft.{name}n", at=f"{_TRIG}.{name}n")
    def transforms(
        x: Any, type: int = 2, s: Any = None, axes: Any = None, norm: Any = None,
        overwrite_x: Any = None, workers: Any = None, *, orthogonalize: Any = None,
    ) -> Any:  # fmt: skip
        rank = np.ndim(x)
        if axes is None:
            axes = range(rank - (rank if s is None else np.size(s)), rank)
        dims = tuple(axis_of(a, rank) for a in ((axes,) if isinstance(axes, int) else axes))
        sizes = (None,) * len(dims) if s is None else (s,) if isinstance(s, int) else tuple(s)
        return _trig(x, cosine, type, sizes, dims, norm, orthogonalize, inverse)


for _name in ("dct", "idct", "dst", "idst"):
    _cosines(_name)


@scipy_function("scipy.fft.fftshift", at="scipy.fft._helper.fftshift")
def _fftshift(x: Any, axes: Any = None) -> Any:
    return np.fft.fftshift(x, axes)


@scipy_function("scipy.fft.ifftshift", at="scipy.fft._helper.ifftshift")
def _ifftshift(x: Any, axes: Any = None) -> Any:
    return np.fft.ifftshift(x, axes)


def _hankel(name: str) -> None:
    inverse = name == "ifht"

    @scipy_function(f"scipy.fft.{name}", at=f"scipy.fft._fftlog_backend.{name}")
    def transform(a: Any, dln: Any, mu: Any, offset: Any = 0.0, bias: Any = 0.0) -> Any:
        from scipy.fft import _fftlog_backend as fftlog

        a = as_array(a)
        n = a.shape[-1]
        u = fftlog.fhtcoeff(n, dln, mu, offset=offset, bias=bias, inverse=inverse)
        j = np.arange(n) - (n - 1) / 2
        if bias != 0:
            a = a * np.exp((bias * (j * dln + offset)) if inverse else (-bias * j * dln))
        y = np.fft.rfft(a, axis=-1)
        y = y / np.conj(u) if inverse else y * u
        y = np.flip(np.fft.irfft(y, n, axis=-1), -1)
        if bias != 0:
            y = y * np.exp((bias * j * dln) if inverse else (-bias * (j * dln + offset)))
        return y


_hankel("fht")
_hankel("ifht")
