"""The scipy table: linear systems, filters by design, spectra and peaks of scipy.signal."""

from __future__ import annotations

from gradof.testing.numpy_samples import Case, Of, R, Sample, case, exactly, positive

_S = "scipy.signal"
_of = Of(_S, R(12))


def _ravelled(name: str, *calls: str, on: tuple[Sample, ...]) -> tuple[Case, ...]:
    """What a function gives as a tuple of arrays, as one."""
    return tuple(
        case(f"{_S}.{name}", f"m = {_S}.{name}({call})\n"
             "return np.concatenate([np.ravel(np.real(v)) for v in m])", *on)
        for call in calls
    )  # fmt: skip


_A = exactly([[0.0, 1.0], [-2.0, -0.7]])
_REST = "np.array([[0.0], [1.0]]), np.array([[1.0, 0.3]]), np.array([[0.2]])"
_SYSTEM = f"(x, {_REST})"
_T = "np.linspace(0.0, 2.0, 6)"
_W = "np.array([0.2, 0.9, 2.0])"
_B3, _A3 = exactly([0.2, 0.3, 0.1]), exactly([1.0, -0.4, 0.2])
_CUT = exactly([0.3, 0.5])
_SECTIONS = "np.array([[0.2, 0.3, 0.1, 1.0, -0.4, 0.2], [0.5, 0.1, 0.2, 1.0, 0.3, 0.1]])"
_SOS = f"np.concatenate([x, {_SECTIONS}[:, 3:]], axis=1)"

CASES = (
    *_ravelled("lsim", f"{_SYSTEM}, y, {_T}", f"{_SYSTEM}, y, {_T}, interp=False",
               f"{_SYSTEM}, None, {_T}, X0=y[:2]", on=(_A, R(6))),
    *_ravelled("step", f"{_SYSTEM}, T={_T}", on=(_A,)),
    *_ravelled("step", f"([x[0]], [1.0, x[1], 1.0]), T={_T}", on=(positive(2),)),
    *_ravelled("impulse", f"{_SYSTEM}, T={_T}", on=(_A,)),
    *_ravelled("dlsim", f"(0.3 * x, {_REST}, 0.1), y", on=(_A, R(6))),
    *_ravelled("ss2tf", f"x, {_REST}", on=(_A,)), *_ravelled("ss2tf", f"x, {_REST}", on=(
        exactly([[0.0, 1.0], [0.0, 0.0]]),)),  # of a double integrator: eigenvalues meet
    *_ravelled("tf2ss", "x, y", on=(_B3, _A3)),
    *_ravelled("cont2discrete", f"{_SYSTEM}, y[0], method='bilinear'", f"{_SYSTEM}, y[0]",
               on=(_A, positive(1))),
    case(f"{_S}.StateSpace", f"{_S}.StateSpace{_SYSTEM}.to_tf().den", _A),
    case(f"{_S}.TransferFunction",
         f"{_S}.TransferFunction([x[0]], [1.0, x[1], 1.0]).output(y, {_T})[1]", positive(2), R(6)),
    case(f"{_S}.bode", f"{_S}.bode(([x[0]], [1.0, x[1], 1.0]), {_W})[1]", positive(2)),
    *_ravelled("butter", "2, x[0]", "2, [x[0], x[1]], btype='bandpass'", on=(_CUT,)),
    *_of("butter", "4, x[0], output='sos'", on=(_CUT,)),
    *_ravelled("cheby1", "3, 1.0, x[0]", on=(_CUT,)),
    *_ravelled("ellip", "3, 1.0, 30.0, x[0]", on=(_CUT,)),
    *_ravelled("iirnotch", "x[0], 10 * x[1]", on=(_CUT,)),
    *_ravelled("iircomb", "0.25, 10 * x[1]", "0.25, 10 * x[0], 'peak'", on=(_CUT,)),
    *_ravelled("bilinear", "x, y, 2.0", on=(_B3, _A3)),
    *_ravelled("zpk2tf", "x, y, 2.0", on=(_CUT, exactly([0.2, 0.1]))),
    *_of("zpk2sos", "x, y, 2.0", on=(_CUT, exactly([0.2, 0.1]))),
    *_of("tf2sos", "x, y", on=(exactly([0.2, 0.3, -0.1]), _A3)),
    *_ravelled("sos2zpk", _SOS, on=(exactly([[0.2, 0.3, -0.1], [0.5, 0.1, -0.2]]),)),
    *_ravelled("freqz", "x, y, z", "x, y, 6, whole=True", on=(_B3, _A3, exactly([0.2, 0.9]))),
    *_ravelled("freqz_sos", f"{_SOS}, 5", on=(exactly([[0.2, 0.3, -0.1], [0.5, 0.1, -0.2]]),)),
    *_ravelled("residue", "x, y", on=(exactly([1.0, 2.0]), exactly([1.0, 3.0, 2.0]))),
    *_ravelled("residuez", "x, y", on=(exactly([1.0, 2.0]), exactly([1.0, 0.7, 0.1]))),
    *_ravelled("unique_roots", "x", "x, 0.2, 'avg'", "x, 0.2, 'max'",
               on=(exactly([1.0, 2.0, 1.1, 3.0]),)),
    *_of("savgol_coeffs", "5, 2, deriv=1, delta=x[0]", on=(positive(1),)),
    *(row for mode in ("symmetric", "reflect", "edge", "wrap", "smooth", "line", "antireflect",
                       "antisymmetric")
      for row in _of("upfirdn", f"y, x, 3, 2, mode='{mode}'", on=(R(7), R(5)))),
    *_of("upfirdn", "y, x, axis=0, mode='line'", on=(R(7, 2), R(3))),
    *_of("resample_poly", "x, 3, 2, padtype='line'", "x, 2, 3, padtype='mean'"),
    *_of("welch", "x, nperseg=4, average='median'"),
    *_ravelled("csd", "x, y, nperseg=4, average='median'", on=(R(12), R(12))),
    case(f"{_S}.peak_prominences", f"at = {_S}.find_peaks(x)[0]\n"
         f"return {_S}.peak_prominences(x, at)[0], {_S}.peak_prominences(x, at, 5)[0]", R(12)),
    case(f"{_S}.peak_widths", f"at = {_S}.find_peaks(x)[0]\n"
         f"return {_S}.peak_widths(x, at)[0], {_S}.peak_widths(x, at, y[0])[1]",
         R(12), exactly([0.7])),
    case(f"{_S}.peak_widths", f"at = {_S}.find_peaks(x)[0]\n"
         f"return {_S}.peak_widths(x, at, 0.6, {_S}.peak_prominences(x, at))[2:]", R(12)),
)  # fmt: skip
