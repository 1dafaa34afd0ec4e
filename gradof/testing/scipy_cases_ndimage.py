"""The scipy table: scipy.ndimage."""

from __future__ import annotations

from gradof.testing.numpy_samples import Of, R, case, positive

_N = "scipy.ndimage"
_of = Of(_N, R(5, 6))


_MODES = ("reflect", "mirror", "nearest", "wrap", "constant")
_ROW = "np.array([0.2, 0.5, -0.3, 0.1])"
_LABELS = "np.array([[1, 1, 2], [0, 2, 1]])"
FILTERS = (
    *_of("correlate1d", f"x, {_ROW}", f"x, {_ROW}, axis=0, origin=1",
         *(f"x, {_ROW}, mode='{m}', cval=0.7" for m in _MODES)),
    *_of("correlate1d", "x, y", on=(R(5, 6), R(3))),
    *_of("convolve1d", f"x, {_ROW}", f"x, {_ROW}, origin=-1", f"x, {_ROW}[:3], mode='mirror'"),
    *_of("gaussian_filter1d", "x, 0.8", "x, 0.8, order=1", "x, 0.8, order=2, mode='wrap'"),
    *_of("gaussian_filter1d", "x, y[0]", on=(R(8), positive(1, low=0.7, high=0.9))),
    *_of("gaussian_filter", "x, 0.8", "x, (0.5, 1.0), order=(1, 0)", "x, 0.6, axes=(1,)"),
    *_of("uniform_filter1d", "x, 3", "x, 4, origin=1"), *_of("uniform_filter", "x, 3", "x, (2, 3)"),
    *_of("sobel", "x", "x, axis=0, mode='nearest'"), *_of("prewitt", "x"), *_of("laplace", "x"),
    *_of("gaussian_filter", "x, (0, 0.8)", "x, 0.8, mode=['wrap', 'nearest']"),
    *_of("gaussian_laplace", "x, 0.7", "x, 0.7, axes=(1,)", "x, 0.7, mode=['wrap', 'nearest']"),
    *_of("gaussian_gradient_magnitude", "x, 0.7", "x, 0.7, axes=(1,)",
         "x, (0.7, 0.5), mode=['wrap', 'nearest']", "x, 0.7, mode='mirror'"),
    *_of("correlate", "x, y", "x, y, mode='mirror', origin=(0, 1)", on=(R(5, 6), R(3, 4))),
    *_of("convolve", "x, y", "x, y, mode='constant', cval=1.0", on=(R(5, 6), R(2, 3))),
    *_of("maximum_filter", "x, 3", "x, footprint=np.array([[0, 1, 0], [1, 1, 1]])"),
    *_of("minimum_filter", "x, (2, 3)", "x, 3, origin=1"), *_of("maximum_filter1d", "x, 3"),
    *_of("minimum_filter1d", "x, 2, axis=0"),
    *_of("median_filter", "x, 3"), *_of("rank_filter", "x, 2, 3", "x, -2, size=3"),
    *_of("percentile_filter", "x, 30, 3"),
    *_of("grey_erosion", "x, 3"), *_of("grey_dilation", "x, (2, 3)"), *_of("grey_opening", "x, 3"),
    *_of("grey_closing", "x, 3"), *_of("morphological_gradient", "x, 3"),
    *_of("morphological_laplace", "x, 3"), *_of("white_tophat", "x, 3"),
    *_of("black_tophat", "x, 3"),
    case("scipy.signal.medfilt", "scipy.signal.medfilt(x, 3)", R(5, 6)),
    case("scipy.signal.medfilt2d", "scipy.signal.medfilt2d(x, 3)", R(5, 6)),
)  # fmt: skip
MEASUREMENTS = tuple(
    c for name in ("sum_labels", "mean", "variance", "standard_deviation", "minimum", "maximum",
                   "median", "center_of_mass")
    for c in _of(name, "x", f"x, {_LABELS}", f"x, {_LABELS}, [1, 2]", on=(positive(2, 3),))
)  # fmt: skip
CASES = (*FILTERS, *MEASUREMENTS)
