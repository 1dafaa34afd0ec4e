"""The scipy table: scipy.signal."""

from __future__ import annotations

from gradof.testing.numpy_samples import Case, Of, R, Sample, case, exactly, positive, rising

_S = "scipy.signal"
_of = Of(_S, R(12))


def _parts(name: str, *calls: str, on: tuple[Sample, ...] = (R(12),)) -> tuple[Case, ...]:
    return tuple(
        case(f"{_S}.{name}", f"z = {_S}.{name}({call})\nreturn z.real, z.imag", *on)
        for call in calls
    )


_B = "np.array([0.2, 0.3, 0.1])"
_A = "np.array([1.0, -0.4, 0.2])"
_SOS = f"{_S}.butter(4, 0.3, output='sos')"
_ROWS = (R(7), R(4))
_GRIDS = (R(4, 5), R(3, 3))

CASES = (
    *_of("convolve", "x, y", "x, y, 'same'", "x, y, 'valid'", on=_ROWS),
    *_of("convolve", "x, y", "x, y, mode='same'", on=_GRIDS),
    *_of("correlate", "x, y", "x, y, 'same'", "x, y, 'valid'", on=_ROWS),
    *_of("correlate", "x, y", on=_GRIDS),
    *_of("fftconvolve", "x, y", "x, y, 'same'", "x, y, axes=1", on=(R(3, 5), R(3, 3))),
    *_of("oaconvolve", "x, y", on=_ROWS),
    *_of("convolve2d", "x, y", "x, y, mode='same', boundary='wrap'", "x, y, boundary='symm'",
         "x, y, 'valid'", "x, y, 'same', fillvalue=2.0", on=_GRIDS),
    *_of("correlate2d", "x, y", "x, y, mode='same', boundary='symm'", on=_GRIDS),
    *_of("lfilter", f"{_B}, {_A}, x"),
    *_of("lfilter", "y, z + np.array([3.0, 0.0, 0.0]), x", on=(R(6), R(2), R(3))),
    *_of("lfilter", f"{_B}, 2 * {_A}, x, axis=0", on=(R(5, 2),)),
    *_of("lfilter", f"{_B}, {_A}, x, zi=y", on=(R(6), R(2))),
    *_of("lfilter", f"{_B}, {_A}, x, zi=y", on=(R(1), R(2))),
    *_of("lfilter", "[1, -1], 1, x", "x[:3], [1], np.arange(5)", on=(R(5),)),
    *_parts("lfilter", "[1, 2j], [1, 0.3], x * 1j + np.flip(x)", "x, [2, 1], 1j * x"),
    *_of("sosfilt", f"{_SOS}, x"), *_of("sosfilt", f"{_SOS}, x, zi=y", on=(R(6), R(2, 2))),
    *_of("filtfilt", f"{_B}, {_A}, x, padlen=4", f"{_B}, {_A}, x, padtype=None",
         f"{_B}, {_A}, x, padtype='even', padlen=3", f"{_B}, {_A}, x, method='gust'"),
    *_of("sosfiltfilt", f"{_SOS}, x, padlen=5"),
    *_of("savgol_filter", "x, 5, 2", "x, 5, 2, mode='nearest'", "x, 5, 3, deriv=1, mode='mirror'"),
    *_of("detrend", "x", "x, type='constant'", "x, bp=[5]"),
    *_parts("hilbert", "x", "x, 9"), *_parts("hilbert2", "x", on=(R(4, 5),)),
    *_of("envelope", "x"),
    *_of("resample", "x, 8", "x, 17", "x, 8, window='hann'"),
    *_of("resample_poly", "x, 3, 2"),
    *_of("decimate", "x, 2, n=2", "x, 2, ftype='fir', n=4"),
    *_of("upfirdn", "y, x, 2, 3", "y, x, up=3", on=(R(7), R(3))),
    *_of("periodogram", "x", "x, fs=2.0, window='hann', detrend=False"),
    *_of("welch", "x, nperseg=6", "x, nperseg=4, noverlap=1, detrend='linear'"),
    case(f"{_S}.csd", f"z = {_S}.csd(x, y, nperseg=6)[1]\nreturn z.real, z.imag", R(12), R(12)),
    *_of("coherence", "x, y, nperseg=6", on=(R(12), R(12))),
    *_of("spectrogram", "x, nperseg=6"),
    case(f"{_S}.stft", f"z = {_S}.stft(x, nperseg=6)[2]\nreturn z.real, z.imag", R(12)),
    *_of("istft", "x + 1j * y, nperseg=6", on=(R(4, 5), R(4, 5))),
    *_of("wiener", "x, 3, 0.3", on=(R(5, 5),)),
    case(f"{_S}.freqz", f"z = {_S}.freqz(x, y + 4.0, worN=5)[1]\nreturn z.real, z.imag",
         R(3), R(3)),
    case(f"{_S}.freqs", f"z = {_S}.freqs(x, y, np.array([0.5, 1.0]))[1]\nreturn z.real, z.imag",
         R(3), R(3)),
    *_of("lfilter_zi", "x, y + np.array([5.0, 0, 0])", on=(R(3), R(3))),
    *_of("lfilter_zi", "x, y", on=(R(3), exactly([1.0, -0.4, 0.2]))),
    *_of("lfiltic", "x, y + np.array([5.0, 0, 0]), z, u", on=(R(3), R(3), R(2), R(2))),
    *_of("deconvolve", "x, y", on=(R(6), positive(3))),
    *_of("chirp", "x, y[0], 2.0, y[1]", "x, y[0], 2.0, y[1], method='quadratic'",
         "x, y[0], 2.0, y[1], method='logarithmic'", "x, y[0], 2.0, y[1], method='hyperbolic'",
         on=(positive(4), positive(2))),
    *_of("gausspulse", "x, fc=3"), *_of("sawtooth", "x, 0.3"),
    *_of("sweep_poly", "x, y", on=(R(4), R(3))),
    *_parts("czt", "x", "x, 5"), *_parts("zoom_fft", "x, [0.2, 0.6], 5"),
    *_of("lombscargle", "x, y, np.array([0.5, 1.1, 2.0])", on=(rising(12), R(12))),
    case(f"{_S}.find_peaks", f"x[{_S}.find_peaks(x)[0]]", R(12)),
    *_of("vectorstrength", "x, 1.3"), *_of("gauss_spline", "x, 3"),
)  # fmt: skip
