"""scipy.signal: what its own code records, around the filters and transforms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradof.tracer.numpy.functions import as_array, axis_of
from gradof.tracer.scipy.calls import scipy_function
from gradof.tracer.scipy.emit import emit
from gradof.tracer.scipy.twins import stand_in, through

through(*(f"scipy.signal.{name}" for name in """
    filtfilt sosfiltfilt detrend hilbert hilbert2 envelope resample resample_poly decimate
    stft istft spectrogram wiener freqs lfilter_zi
    lfiltic deconvolve gausspulse sweep_poly czt zoom_fft vectorstrength gauss_spline
""".split()))
_CZT = "scipy.signal._czt.CZT.__call__"
through(_CZT)


@stand_in("scipy.signal._spectral_py", "_fft_helper")
def _transformed(
    x: Any, win: Any, detrend: Any, nperseg: int, noverlap: int, nfft: int, sides: str
) -> Any:
    """The transforms of all windows; scipy's are views that are written into."""
    starts = np.arange(0, x.shape[-1] - nperseg + 1, nperseg - noverlap)
    rows = detrend(np.take(x, starts[:, None] + np.arange(nperseg), axis=-1)) * win
    return np.fft.rfft(np.real(rows), nfft) if sides == "onesided" else np.fft.fft(rows, nfft)


def _spectrum(
    x: Any, y: Any, fs: float, window: Any, nperseg: Any, noverlap: Any, nfft: Any, detrend: Any,
    return_onesided: bool, scaling: str, axis: int,
) -> tuple[Any, Any]:  # fmt: skip
    """Frequencies, and conj(X) Y of all windows along the last axis but one."""
    from scipy import signal

    x, y = (np.moveaxis(as_array(v), axis, -1) for v in (x, y))
    n = max(x.shape[-1], y.shape[-1])
    x, y = (np.pad(v, [(0, 0)] * (v.ndim - 1) + [(0, n - v.shape[-1])]) for v in (x, y))
    if isinstance(window, (str, tuple)):
        size = min(256 if nperseg is None else int(nperseg), n)
        win = signal.get_window(window, size)
    else:
        win = np.asarray(window)
        size = len(win)
    overlap = size // 2 if noverlap is None else int(noverlap)
    length = size if nfft is None else int(nfft)

    def straightened(rows: Any) -> Any:
        if callable(detrend):
            return detrend(rows)
        return signal.detrend(rows, type=detrend) if detrend else rows

    one = return_onesided and not any(np.iscomplexobj(v) for v in (x, y))
    sides = "onesided" if one else "twosided"
    first = _transformed(x, win, straightened, size, overlap, length, sides)
    second = first if y is x else _transformed(y, win, straightened, size, overlap, length, sides)
    scale = 1.0 / (fs * np.sum(win * win)) if scaling == "density" else 1.0 / np.sum(win) ** 2
    twice = np.ones(first.shape[-1])
    if one:
        twice[1 : None if length % 2 else -1] = 2.0
    frequencies = np.fft.rfftfreq(length, 1 / fs) if one else np.fft.fftfreq(length, 1 / fs)
    return frequencies, np.conj(first) * second * (scale * twice)


def _averaged(p: Any, average: str, axis: int) -> Any:
    if average != "mean":
        raise TypeError(f"argument average={average!r}")
    return np.moveaxis(np.mean(p, axis=-2), -1, axis)


@scipy_function("scipy.signal.welch")
def _welch(
    x: Any, fs: float = 1.0, window: Any = "hann_periodic", nperseg: Any = None,
    noverlap: Any = None, nfft: Any = None, detrend: Any = "constant",
    return_onesided: bool = True, scaling: str = "density", axis: int = -1, average: str = "mean",
) -> Any:  # fmt: skip
    f, p = _spectrum(x, x, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, scaling,
                     axis)  # fmt: skip
    return f, _averaged(np.real(p), average, axis)


@scipy_function("scipy.signal.csd")
def _csd(
    x: Any, y: Any, fs: float = 1.0, window: Any = "hann_periodic", nperseg: Any = None,
    noverlap: Any = None, nfft: Any = None, detrend: Any = "constant",
    return_onesided: bool = True, scaling: str = "density", axis: int = -1, average: str = "mean",
) -> Any:  # fmt: skip
    f, p = _spectrum(x, y, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, scaling,
                     axis)  # fmt: skip
    return f, _averaged(p, average, axis)


@scipy_function("scipy.signal.periodogram")
def _periodogram(
    x: Any, fs: float = 1.0, window: Any = "boxcar", nfft: Any = None, detrend: Any = "constant",
    return_onesided: bool = True, scaling: str = "density", axis: int = -1,
) -> Any:  # fmt: skip
    size = np.shape(x)[axis]
    if nfft is not None and nfft < size:
        raise TypeError("argument nfft that cuts the signal")
    return _welch(x, fs, window, size, 0, nfft, detrend, return_onesided, scaling, axis)


@scipy_function("scipy.signal.coherence")
def _coherence(
    x: Any, y: Any, fs: float = 1.0, window: Any = "hann_periodic", nperseg: Any = None,
    noverlap: Any = None, nfft: Any = None, detrend: Any = "constant", axis: int = -1,
) -> Any:  # fmt: skip
    options = (fs, window, nperseg, noverlap, nfft, detrend)
    f, both = _csd(x, y, *options, axis=axis)
    of_x, of_y = (_welch(v, *options, axis=axis)[1] for v in (x, y))
    return f, (np.square(both.real) + np.square(both.imag)) / of_x / of_y


@scipy_function("scipy.signal.upfirdn")
def _upfirdn(
    h: Any, x: Any, up: int = 1, down: int = 1, axis: int = -1, mode: str = "constant",
    cval: Any = 0,
) -> Any:  # fmt: skip
    h, x = as_array(h), as_array(x)
    if mode not in ("constant", None) or cval not in (0, None):
        raise TypeError(f"argument mode={mode!r} or cval")
    dim = axis_of(axis, x.ndim)
    rows = np.moveaxis(x, dim, -1)
    k, n = len(h), rows.shape[-1]
    lead = [(0, 0)] * (x.ndim - 1)
    wide = np.reshape(np.pad(rows[..., None], [*lead, (0, 0), (0, up - 1)]), (*rows.shape[:-1], -1))
    wide = wide[..., : (n - 1) * up + 1]
    wide = np.pad(wide, [*lead, (k - 1, k - 1)])
    full = emit("correlate1d", wide, np.flip(h), dim=x.ndim - 1)
    return np.moveaxis(full[..., ::down], -1, dim)


@scipy_function("scipy.signal.savgol_filter")
def _savgol_filter(
    x: Any, window_length: int, polyorder: int, deriv: int = 0, delta: float = 1.0,
    axis: int = -1, mode: str = "interp", cval: float = 0.0,
) -> Any:  # fmt: skip
    from scipy import ndimage, signal

    x = as_array(x)
    dim = axis_of(axis, x.ndim)
    row = signal.savgol_coeffs(window_length, polyorder, deriv=deriv, delta=delta)
    if window_length % 2 == 0:
        raise TypeError("argument window_length that is even")
    if mode != "interp":
        return ndimage.convolve1d(x, row, axis=dim, mode=mode, cval=cval)
    rows = np.moveaxis(x, dim, -1)
    inner = emit("correlate1d", rows, np.flip(row), dim=x.ndim - 1)
    # of as many points as the window has: a matrix, whose ends are the polynomials' values there
    ends = signal.savgol_filter(np.eye(window_length), window_length, polyorder, deriv, delta, 0)
    half = window_length // 2
    first = rows[..., :window_length] @ ends[:half].T
    last = rows[..., -window_length:] @ ends[window_length - half :].T
    return np.moveaxis(np.concatenate([first, inner, last], axis=-1), -1, dim)


# --- waveforms ------------------------------------------------------------------------------------


@scipy_function("scipy.signal.chirp")
def _chirp(
    t: Any, f0: Any, t1: Any, f1: Any, method: str = "linear", phi: Any = 0,
    vertex_zero: bool = True, *, complex: bool = False,
) -> Any:  # fmt: skip
    t = as_array(t)
    if complex:
        raise TypeError("argument complex=True")
    if method in ("linear", "lin", "li"):
        turns = f0 * t + 0.5 * (f1 - f0) / t1 * t * t
    elif method in ("quadratic", "quad", "q"):
        rise = (f1 - f0) / (t1 * t1)
        turns = f0 * t + rise * t**3 / 3 if vertex_zero else (
            f1 * t + rise * ((t1 - t) ** 3 - t1**3) / 3)  # fmt: skip
    elif method in ("logarithmic", "log", "lo"):
        ratio = f1 / f0
        turns = t1 / np.log(ratio) * f0 * (ratio ** (t / t1) - 1.0)
    elif method in ("hyperbolic", "hyp"):
        start = -f1 * t1 / (f0 - f1)
        turns = -start * f0 * np.log(np.abs(1 - t / start))
    else:
        raise TypeError(f"argument method={method!r}")
    return np.cos(2.0 * math.pi * turns + phi * (math.pi / 180))


@scipy_function("scipy.signal.sawtooth")
def _sawtooth(t: Any, width: Any = 1) -> Any:
    t, width = as_array(t), as_array(width)
    turn = np.mod(t, 2.0 * math.pi)
    rising = turn < width * 2.0 * math.pi
    up = turn / (math.pi * np.where(width == 0, 1.0, width)) - 1.0
    down = (math.pi * (width + 1.0) - turn) / (math.pi * np.where(width == 1, 0.5, 1.0 - width))
    return np.where((width >= 0) & (width <= 1), np.where(rising, up, down), np.nan)


@scipy_function("scipy.signal.freqz")
def _freqz(
    b: Any, a: Any = 1, worN: Any = 512, whole: bool = False, plot: Any = None,
    fs: float = 2.0 * math.pi, include_nyquist: bool = False,
) -> Any:  # fmt: skip
    from scipy import signal

    b, a = np.atleast_1d(as_array(b)), np.atleast_1d(as_array(a))
    if plot is not None or b.ndim != 1:
        raise TypeError("argument plot, or b of more than one dim")
    w = signal.freqz([1.0], [1.0], worN, whole, None, fs, include_nyquist)[0]
    turns = -2.0 * math.pi / fs * np.reshape(w, (-1, 1))

    def response(c: Any) -> Any:
        angle = turns * np.arange(len(c))
        return np.sum(np.cos(angle) * c, axis=1) + 1j * np.sum(np.sin(angle) * c, axis=1)

    return w, response(b) / response(a)
