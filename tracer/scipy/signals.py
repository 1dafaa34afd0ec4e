"""scipy.signal: what its own code records, around the filters and transforms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradof.tracer.numpy.functions import as_array, axis_of
from gradof.tracer.scipy.calls import scipy_function
from gradof.tracer.scipy.emit import emit
from gradof.tracer.scipy.twins import stand_in, through, twin_function

through(*(f"scipy.signal.{name}" for name in """
    filtfilt sosfiltfilt detrend hilbert hilbert2 envelope resample resample_poly decimate
    stft istft spectrogram wiener freqs
    lfiltic deconvolve gausspulse sweep_poly czt zoom_fft vectorstrength gauss_spline
    lsim impulse step bilinear zpk2sos tf2sos sos2zpk savgol_coeffs iircomb
    freqz freqz_sos residue residuez
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
    if average == "mean" or p.shape[-2] == 1:
        return np.moveaxis(np.mean(p, axis=-2), -1, axis)
    assert average == "median", average  # scipy has refused others
    even = 2.0 * np.arange(1, (p.shape[-2] - 1) // 2 + 1)
    bias = 1.0 + np.sum(1.0 / (even + 1.0) - 1.0 / even)  # scipy's _median_bias
    middle = np.median(np.real(p), axis=-2)
    if np.iscomplexobj(p):
        middle = middle + 1j * np.median(np.imag(p), axis=-2)
    return np.moveaxis(middle / bias, -1, axis)


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
    if cval not in (0, None):
        raise TypeError("argument cval")
    dim = axis_of(axis, x.ndim)
    rows = np.moveaxis(x, dim, -1)
    k, n = len(h), rows.shape[-1]
    if mode not in ("constant", None):
        more = -(-k // up)  # as many as the filter sees
        last = (n - 1) * up + k
        start = more * up
        found = _upfirdn(h, _extended(rows, more, mode), up)
        return np.moveaxis(found[..., start : start + last : down], -1, dim)
    lead = [(0, 0)] * (x.ndim - 1)
    wide = np.reshape(np.pad(rows[..., None], [*lead, (0, 0), (0, up - 1)]), (*rows.shape[:-1], -1))
    wide = wide[..., : (n - 1) * up + 1]
    wide = np.pad(wide, [*lead, (k - 1, k - 1)])
    full = emit("correlate1d", wide, np.flip(h), dim=x.ndim - 1)
    return np.moveaxis(full[..., ::down], -1, dim)


def _extended(rows: Any, more: int, mode: str) -> Any:
    """Rows with `more` numbers on both sides, by scipy's names of ways to extend a signal."""
    n = rows.shape[-1]
    if mode in ("smooth", "line") and n > 1:
        step = 1 if mode == "smooth" else n - 1
        first = (rows[..., step : step + 1] - rows[..., :1]) / step
        last = (rows[..., -1:] - rows[..., n - 1 - step, None]) / step
        far = np.arange(1, more + 1)
        before, after = rows[..., :1] - first * far[::-1], rows[..., -1:] + last * far
        return np.concatenate([before, rows, after], axis=-1)
    if mode == "antisymmetric":
        turned = -(-more // n)
        pieces = [rows if i % 2 == 0 else -rows[..., ::-1] for i in range(-turned, turned + 1)]
        cut = turned * n - more
        whole = np.concatenate(pieces, axis=-1)
        return whole[..., cut : whole.shape[-1] - cut]
    odd: dict[str, Any] = {"mode": "reflect", "reflect_type": "odd"}
    how = odd if mode == "antireflect" else {"mode": "edge" if n == 1 else mode}
    return np.pad(rows, [(0, 0)] * (rows.ndim - 1) + [(more, more)], **how)


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


@scipy_function("scipy.signal.lfilter_zi")
def _lfilter_zi(b: Any, a: Any) -> Any:
    """scipy's, of coefficients that are divided by the first also where that is 1."""
    a = np.atleast_1d(a)
    used = next((i for i in range(len(a)) if bool(a[i] != 0)), len(a) - 1)
    a = a[used:]
    twin = twin_function("scipy.signal.lfilter_zi")
    return twin(np.atleast_1d(b) / a[0], a / a[0])


@stand_in("scipy.signal._signaltools", "unique_roots")
@scipy_function("scipy.signal.unique_roots")
def _unique_roots(p: Any, tol: float = 1e-3, rtype: str = "min") -> tuple[Any, Any]:
    """Each group of roots that are close as one, as scipy finds them with a tree."""
    reduce: Any = {"max": np.max, "maximum": np.max, "min": np.min, "minimum": np.min,
              "avg": np.mean, "mean": np.mean}[rtype]  # fmt: skip
    p = as_array(p)
    left = list(range(len(p)))
    roots, counts = [], []
    while left:
        group = [j for j in left if j == left[0] or bool(np.abs(p[j] - p[left[0]]) <= tol)]
        roots.append(p[group[0]] if len(group) == 1 else reduce(p[np.array(group)]))
        counts.append(len(group))
        left = [j for j in left if j not in group]
    return (np.stack(roots) if roots else p), np.array(counts, np.int64)


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
