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
_PARTS = "n.label(x > 0.1)"
MORPHOLOGY = tuple(
    case(f"{_N}.{name}", f"n = scipy.ndimage\n{source}", R(6, 7))
    for name, source in (
        ("label", f"found, count = {_PARTS}\nparts = range(1, count + 1)\n"
         "return x * found, n.mean(x, found, parts), n.center_of_mass(x, found, parts)"),
        ("label", f"found = {_PARTS}[0]\nreturn n.maximum(x, found, [1, 2]), n.variance(x, found)"),
        ("find_objects", f"return [np.sum(x[at] * x[at]) for at in n.find_objects({_PARTS}[0])]"),
        ("binary_erosion", "return x * n.binary_erosion(x > -1)"),
        ("binary_dilation", "return x * n.binary_dilation(x > 1)"),
        ("binary_opening", "return x * n.binary_opening(x > -1)"),
        ("binary_closing", "return x * n.binary_closing(x > 1)"),
        ("binary_fill_holes", "return x * n.binary_fill_holes(x > 0)"),
        ("binary_propagation", "return x * n.binary_propagation(x > 1, mask=x > 0)"),
        ("binary_hit_or_miss", "return x * n.binary_hit_or_miss(x > 0)"),
        ("distance_transform_edt", "return x * n.distance_transform_edt(x > 0, sampling=(1, 0.5))"),
        ("distance_transform_bf", "return x * n.distance_transform_bf(x > 0)"),
        ("distance_transform_cdt", "return x * n.distance_transform_cdt(x > 0)"),
        ("gaussian_filter", "return x * n.gaussian_filter(10 * x, 1.0, output=int)"),
        ("uniform_filter", "return x * n.uniform_filter(30 * np.round(x).astype(np.int16), 3)"),
        ("map_coordinates", "return n.map_coordinates(x, [[1.2, 3.4], [2.2, 0.7]], output=float)"),
    )
)
CASES = (*FILTERS, *MEASUREMENTS, *MORPHOLOGY)
