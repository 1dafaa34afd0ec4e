"""Complex numbers and Fourier transforms of numpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradof.ops.expr import Expr, F
from gradof.tracer.numpy.functions import as_array, composed, expression, view_of
from gradof.tracer.numpy.recorder import Recorder
from gradof.tracer.numpy.view import View

# --- parts ----------------------------------------------------------------------------------------


@expression(np.real)
def _real(r: Recorder, val: Any) -> tuple[Expr, View]:
    x = r.traced(val)
    if x.dtype.kind != "c":
        return view_of(x, lambda x: x, lambda x, s: s)
    return view_of(x, F.real, lambda x, s: F.complex(s, F.imag(x)))


@expression(np.imag)
def _imag(r: Recorder, val: Any) -> Expr | tuple[Expr, View]:
    x = r.traced(val)
    if x.dtype.kind != "c":
        return r.full(x.shape, x.dtype, 0)
    return view_of(x, F.imag, lambda x, s: F.complex(F.real(x), s))


@composed(np.real_if_close)
def _real_if_close(a: Any, tol: float = 100) -> Any:
    if not np.iscomplexobj(a):
        return as_array(a)
    bound = tol * np.finfo(a.dtype).eps if tol > 1 else tol
    # A branch on values: a trace holds for calls that take the same one.
    return np.real(a) if np.all(np.abs(np.imag(a)) < bound) else a


@composed(np.angle)
def _angle(z: Any, deg: bool = False) -> Any:
    turn = 180.0 / np.pi if deg else 1.0
    if np.iscomplexobj(z):
        return np.arctan2(np.imag(z), np.real(z)) * turn
    return np.where(np.isnan(z), z, np.where(np.signbit(z), np.pi, 0.0)) * turn


@composed(np.isreal)
def _isreal(x: Any) -> Any:
    return np.imag(x) == 0


@composed(np.iscomplex)
def _iscomplex(x: Any) -> Any:
    return np.imag(x) != 0


# --- transforms -----------------------------------------------------------------------------------

_SWAPPED = {None: "forward", "backward": "forward", "ortho": "ortho", "forward": "backward"}


def _scale(norm: str | None, forward: bool) -> str:
    if norm == "ortho":
        return "root_n"
    return "n" if (norm == "forward") == forward else "none"


def _resized(x: Expr, dim: int, size: int) -> Expr:
    """Cut to `size`, or zeros put behind."""
    have = x.shape[dim]
    if size < have:
        return F.slice(x, dim=dim, start=0, stop=size, step=1)
    if size == have:
        return x
    shape = (*x.shape[:dim], size - have, *x.shape[dim + 1 :])
    zeros = F.full.with_emitter(x.emitter)(
        dtype=x.dtype, shape=shape, device=x.type.device, value=0.0
    )
    return F.cat(x, zeros, dim=dim)


def _floating(r: Recorder, a: Any) -> Expr:
    x = r.traced(as_array(a))
    dtype = x.dtype if x.dtype.kind in "fc" else np.dtype(np.float64)
    dtype = np.dtype(np.float32) if dtype == np.float16 else dtype
    return x.expr.cast(r.ir_dtype(dtype))


def _complex(r: Recorder, x: Expr) -> Expr:
    return x.cast(r.ir_dtype(np.complex64 if x.dtype.bits == 32 else np.complex128)) if (
        not x.dtype.is_complex
    ) else x


def _layout(
    x: Expr, s: Sequence[int] | None, axes: Sequence[int] | None, half: bool = False
) -> tuple[list[int], tuple[int, ...]]:
    """Sizes and dims of a transform; `half` where the last dim is half a spectrum."""
    if axes is None:
        axes = range(x.rank) if s is None else range(x.rank - len(s), x.rank)
    dims = tuple(int(d) % x.rank for d in axes)
    sizes = [x.shape[d] for d in dims]
    if half:
        sizes[-1] = 2 * (sizes[-1] - 1)
    if s is not None:  # -1 keeps the size that the array has
        sizes = [x.shape[d] if n == -1 else int(n) for n, d in zip(s, dims, strict=True)]
    return sizes, dims


def _fftn(forward: bool) -> Callable[..., Expr]:
    def transform(
        r: Recorder, a: Any, s: Any = None, axes: Any = None, norm: str | None = None
    ) -> Expr:
        x = _complex(r, _floating(r, a))
        sizes, dims = _layout(x, s, axes)
        for n, d in zip(sizes, dims, strict=True):
            x = _resized(x, d, n)
        return F.fft_c2c(x, dims=dims, scale=_scale(norm, forward), forward=forward)

    return transform


_forward = expression(np.fft.fftn)(_fftn(True))
_inverse = expression(np.fft.ifftn)(_fftn(False))


@expression(np.fft.rfftn)
def _rfftn(r: Recorder, a: Any, s: Any = None, axes: Any = None, norm: str | None = None) -> Expr:
    x = _floating(r, a)
    sizes, dims = _layout(x, s, axes)
    for n, d in zip(sizes, dims, strict=True):
        x = _resized(x, d, n)
    return F.fft_r2c(x, dims=dims, scale=_scale(norm, True), onesided=True)


@expression(np.fft.irfftn)
def _irfftn(r: Recorder, a: Any, s: Any = None, axes: Any = None, norm: str | None = None) -> Expr:
    x = _complex(r, _floating(r, a))
    sizes, dims = _layout(x, s, axes, half=True)
    for n, d in zip((*sizes[:-1], sizes[-1] // 2 + 1), dims, strict=True):
        x = _resized(x, d, n)
    return F.fft_c2r(x, dims=dims, scale=_scale(norm, False), last=sizes[-1])


def _along_one(whole: Any, *functions: Any) -> None:
    @composed(*functions)
    def _(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
        return whole(a, None if n is None else (n,), (axis,), norm)


def _along_two(whole: Any, *functions: Any) -> None:
    @composed(*functions)
    def _(a: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = None) -> Any:
        return whole(a, s, axes, norm)


for _whole, _one, _two in (
    (np.fft.fftn, np.fft.fft, np.fft.fft2), (np.fft.ifftn, np.fft.ifft, np.fft.ifft2),
    (np.fft.rfftn, np.fft.rfft, np.fft.rfft2), (np.fft.irfftn, np.fft.irfft, np.fft.irfft2),
):  # fmt: skip
    _along_one(_whole, _one)
    _along_two(_whole, _two)


@composed(np.fft.hfft)
def _hfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    return np.fft.irfft(np.conj(a), n, axis, norm=_SWAPPED[norm])  # type: ignore[arg-type]


@composed(np.fft.ihfft)
def _ihfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    return np.conj(np.fft.rfft(a, n, axis, norm=_SWAPPED[norm]))  # type: ignore[arg-type]


def _shift(x: Any, axes: Any, sign: int) -> Any:
    dims = range(np.ndim(x)) if axes is None else (axes,) if isinstance(axes, int) else axes
    shape = np.shape(x)
    # half the points, rounded down on the way there and up on the way back
    return np.roll(x, [sign * (shape[d] // 2) for d in dims], tuple(dims))


@composed(np.fft.fftshift)
def _fftshift(x: Any, axes: Any = None) -> Any:
    return _shift(x, axes, 1)


@composed(np.fft.ifftshift)
def _ifftshift(x: Any, axes: Any = None) -> Any:
    return _shift(x, axes, -1)
