"""The numpy table: sums, moments, extremes, order, scans, nan-skipping, quantiles, statistics."""

from __future__ import annotations

from gradof.testing.numpy_samples import Of, R, case, exactly, holes, matrix, rising, unit

_variants = Of("numpy", R(3, 4), written="np")


SUMS = (
    *_variants("sum", "x", "x, axis=0", "x, axis=(0, 1), keepdims=True", "x, axis=-1, initial=2.0",
               "x, axis=1, where=x > 0", "x, dtype=np.float64", "[x[0], x[1] * 2]"),
    *_variants("prod", "x", "x, axis=1", "x, axis=(0, 1), keepdims=True", "x, 0, initial=3.0",
               "x, where=x > -1"),
    *_variants("mean", "x", "x, axis=0", "x, axis=(0, 1), keepdims=True",
               "x, axis=1, where=x > -1"),
    *_variants("var", "x", "x, axis=0, ddof=1", "x, axis=1, keepdims=True", "x, correction=1",
               "x, axis=0, mean=np.mean(x, axis=0, keepdims=True)", "x, axis=1, where=x < 1.5"),
    *_variants("std", "x", "x, axis=0, ddof=1", "x, axis=1, keepdims=True"),
    *_variants("average", "x", "x, axis=1", "x, axis=1, keepdims=True",
               "x, axis=1, weights=x[0] ** 2", "x, weights=np.square(x), returned=True",
               "x, axis=0, returned=True"),
    *_variants("cumsum", "x", "x, axis=0", "x, axis=-1"),
    *_variants("cumprod", "x", "x, axis=0", "x, axis=-1"),
    *_variants("cumulative_sum", "x, axis=1", "x, axis=0, include_initial=True"),
    *_variants("cumulative_prod", "x, axis=1", "x, axis=0, include_initial=True"),
        case("numpy.prod", "np.prod(x, axis=1)", exactly([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]])),
    case("numpy.cumprod", "np.cumprod(x)", exactly([1.5, 0.0, 2.0, 0.0, 3.0])),
    case("numpy.sum", "np.sum(x)", R(0, 3)),
    case("numpy.max", "np.max(x, axis=0, initial=0.5) + np.min(x, initial=2)", R(0, 3)),
    case("numpy.sum", "np.sum(x)", R()),
)  # fmt: skip
EXTREMES = (
    *_variants(
        "max",
        "x",
        "x, axis=0",
        "x, axis=(0, 1), keepdims=True",
        "x, 1, initial=0.5",
        "x, axis=1, initial=-9, where=x < 1",
    ),
    *_variants("min", "x", "x, axis=0", "x, axis=(0, 1), keepdims=True", "x, 1, initial=0.5"),
    *_variants("amax", "x", "x, axis=-1"),
    *_variants("amin", "x", "x, axis=-1"),
    *_variants("ptp", "x", "x, axis=0", "x, axis=1, keepdims=True"),
    *_variants("sort", "x", "x, axis=0", "x, axis=None", "x, kind='stable'", "x, stable=True"),
    case("numpy.partition", "np.partition(x, 2)[:, 2]", R(3, 4)),
    case("numpy.partition", "np.sort(np.partition(x, (1, 2), axis=0)[:2], 0)", R(5, 3)),
    case("numpy.partition", "np.max(np.partition(x, 3, axis=None)[:3])", R(3, 4)),
    *_variants("sort", "x[:, ::-1]"),
    case("numpy.argsort", "np.take_along_axis(x, np.argsort(x, axis=1), axis=1)", R(3, 4)),
    case("numpy.argpartition", "np.take_along_axis(x, np.argpartition(x, 2, 1), 1)[:, 2]", R(3, 4)),
    case("numpy.argmax", "x[np.argmax(x)] * x[np.argmax(x, axis=0, keepdims=True)]", R(5)),
    case("numpy.argmin", "x[np.argmin(x)] * x", R(5)),
    case("numpy.searchsorted", "x * np.searchsorted(y, x)", R(4), rising(5)),
    case("numpy.digitize", "x * np.digitize(x, [-1.0, 0.0, 1.0])", R(5)),
    case("numpy.lexsort", "x[np.lexsort((x, [1, 0, 1, 0]))] ** 2", R(4)),
    case("numpy.any", "np.where(np.any(x > 1, axis=1), x[:, 0], x[:, 1])", R(3, 3)),
    case("numpy.all", "np.where(np.all(x > -1, axis=1), x[:, 0], x[:, 1])", R(3, 3)),
    case("numpy.isclose", "np.where(np.isclose(x, y), x, x * y)", R(4), R(4)),
    case("numpy.count_nonzero", "x * np.count_nonzero(x > 0)", R(5)),
)

_nan = Of("numpy", holes(3, 4), written="np")


NANS = (
    *_nan(
        "nansum", "x", "x, axis=0", "x, axis=1, keepdims=True", "x, initial=1.0", "x, where=x > 0"
    ),
    *_nan("nanprod", "x", "x, axis=0", "x, axis=1, keepdims=True"),
    *_nan("nanmean", "x", "x, axis=0", "x, axis=1, keepdims=True", "x, where=x > 0"),
    *_nan("nanvar", "x", "x, axis=0, ddof=1", "x, axis=1, keepdims=True", "x, correction=1"),
    *_nan("nanstd", "x", "x, axis=0, ddof=1", "x, axis=1, keepdims=True"),
    *_nan("nanmax", "x", "x, axis=0", "x, axis=1, keepdims=True", "x, initial=0.3"),
    *_nan("nanmin", "x", "x, axis=0", "x, axis=1, keepdims=True", "x, initial=0.3"),
    *_nan("nancumsum", "x", "x, axis=0"),
    *_nan("nancumprod", "x", "x, axis=0"),
    *_nan("nanmedian", "x", "x, axis=0", "x, axis=1, keepdims=True"),
    *_nan("nanpercentile", "x, 30", "x, [20, 60], axis=0", "x, 45, axis=1, keepdims=True"),
    *_nan("nanquantile", "x, 0.3", "x, [0.2, 0.6], axis=0", "x, 0.45, axis=1, keepdims=True"),
    case("numpy.nanargmax", "x[[0, 1, 2], np.nanargmax(x, axis=1)]", holes(3, 4)),
    case("numpy.nanargmin", "np.ravel(x)[np.nanargmin(x)] * x[1]", R(3, 3)),
)
ORDER = (
    *_variants("median", "x", "x, axis=0", "x, axis=1, keepdims=True", "x, axis=(0, 1)"),
    *_variants("percentile", "x, 30", "x, [20, 60], axis=0", "x, 45.0, axis=1, keepdims=True",
               *(f"x, 37, axis=1, method='{m}'" for m in ("lower", "higher", "nearest", "midpoint",
                 "hazen", "weibull", "median_unbiased", "inverted_cdf", "closest_observation",
                 "averaged_inverted_cdf", "interpolated_inverted_cdf", "normal_unbiased"))),
    *_variants("quantile", "x, 0.3", "x, [0.2, 0.6], axis=0", "x, 0.45, axis=1, keepdims=True",
               "x, 0.3, axis=(0, 1)", "x, 0.6, method='lower'", "x, 0.6, method='hazen'"),
    case("numpy.quantile", "np.quantile(x, y)", R(6), unit(3)),
)  # fmt: skip
STATISTICS = (
    *_variants("cov", "x", "x, rowvar=False", "x[0], x[1]", "x, bias=True", "x, ddof=2",
               "x, fweights=[1, 2, 1, 3]", "x, aweights=[1.0, 0.5, 2.0, 1.5]"),
    *_variants("corrcoef", "x", "x[:, :3], rowvar=False", "x[0], x[1]"),
    *_variants("diff", "x", "x, n=2", "x, axis=0", "x, prepend=0", "x, axis=1, append=x[:, :1]"),
    *_variants("ediff1d", "x", "x, to_end=[1.0, 2.0]", "x, to_begin=x[0, 0], to_end=x[0, :2]"),
    *_variants("gradient", "x", "x, axis=0", "x, 0.5, axis=1", "x, 0.5, 2.0", "x, edge_order=2",
               "x, [0.0, 0.7, 1.0], axis=0"),
    *_variants("trapezoid", "x", "x, dx=0.5, axis=0", "x, x=[0.0, 0.5, 2.0, 2.5]"),
    case("numpy.trapezoid", "np.trapezoid(y, x)", rising(4), R(3, 4)),
    case("numpy.gradient", "np.gradient(y, x, edge_order=2)", rising(5), R(5)),
    case("numpy.interp", "np.interp(x, y, z)", R(4, low=-1, high=1), rising(5), R(5)),
    case("numpy.interp", "np.interp(x, y, z, left=1.0, right=-2.0)", R(6, low=-3, high=3),
         rising(5), R(5)),
    case("numpy.interp", "np.interp(x, [0.0, 1.5, 4.0], y, period=6.0)",
         R(6, low=-5, high=9), R(3)),
    case("numpy.convolve", "np.convolve(x, y)", R(5), R(3)),
    case("numpy.convolve", "np.convolve(x, y, mode='same')", R(3), R(6)),
    case("numpy.convolve", "np.convolve(x, y, 'valid')", R(6), R(3)),
    case("numpy.correlate", "np.correlate(x, y)", R(6), R(3)),
    case("numpy.correlate", "np.correlate(x, y, 'full')", R(3), R(5)),
    case("numpy.correlate", "np.correlate(x, y, 'same')", R(6), R(3)),
    case("numpy.polyval", "np.polyval(x, y)", R(4), R(3, 2)),
    case("numpy.polyval", "np.polyval([1.0, -2.0, 0.5], x)", R(3)),
    case("numpy.polyadd", "np.polyadd(x, y)", R(4), R(2)),
    case("numpy.polysub", "np.polysub(x, y)", R(2), R(4)),
    case("numpy.polymul", "np.polymul(x, y)", R(4), R(2)),
    case("numpy.polydiv", "np.polydiv(x, y)", exactly([1.0, 2.0, 3.0, 4.0]), exactly([1.0, 3.0])),
    case("numpy.polyder", "np.polyder(x)", R(4)),
    case("numpy.polyder", "np.polyder(x, 2)", R(5)),
    case("numpy.polyint", "np.polyint(x)", R(4)),
    case("numpy.polyint", "np.polyint(x, 2, k=[1.0, 2.0])", R(3)),
    case("numpy.polyfit", "np.polyfit(x, y, 2)", R(6), R(6)),
    case("numpy.vander", "np.vander(x)", R(4)),
    case("numpy.vander", "np.vander(x, 3, increasing=True)", R(4)),
    case("numpy.poly", "np.poly(x)", R(4)),
    case("numpy.poly", "np.poly(x)", matrix(3)),
    case("numpy.poly", "np.poly(np.concatenate([x + 1j * y, x - 1j * y]))", R(2), R(2)),
    case("numpy.poly", "np.poly(x * [[0, 1], [0, 0]])", matrix(2)),
    case("numpy.bincount", "np.bincount([0, 2, 2, 1], weights=x, minlength=5)", R(4)),
    case("numpy.histogram", "np.histogram([0.1, 0.4, 0.5, 0.9], 3, weights=x)[0]", R(4)),
    case("numpy.histogram2d", "np.histogram2d([0, 2, 2, 1], [0, 1, 1, 3], 2, weights=x)[0]", R(4)),
    case("numpy.histogramdd", "np.histogramdd([[0.0, 0.3, 1.0]], 2, weights=x)[0]", R(3)),
    case("numpy.union1d", "np.union1d(x, y)", R(2), R(3)),
    case("numpy.trim_zeros", "np.trim_zeros(np.array([0.0, x[0], 0.0, x[1], 0.0]), 'f')", R(2)),
)  # fmt: skip

CASES = SUMS + EXTREMES + NANS + ORDER + STATISTICS
