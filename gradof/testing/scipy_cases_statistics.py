"""The scipy table: scipy.stats, but for univariate distributions."""

from __future__ import annotations

from gradof.testing.numpy_samples import Case, Of, R, Sample, case, definite, exactly, positive

_S = "scipy.stats"
_of = Of(_S, R(8))
_PLANE = "np.array([[1.0, 0.5], [-0.3, 2.0], [0.7, 0.4]])"


def _both(name: str, call: str, *on: Sample, log: str = "logpdf") -> tuple[Case, ...]:
    methods = (log, log.removeprefix("log"))
    return tuple(
        case(f"{_S}.{name}.{m}", f"{_S}.{name}.{m}({call})", *on) for m in methods
    )


MULTIVARIATE = (
    *_both("multivariate_normal", "x, y, z @ z.T", R(4, 3), R(3), definite(3)),
    *_both("multivariate_normal", "x, y, z", R(3), R(3), positive()),
    *_both("multivariate_normal", "x", R(4)),
    case(f"{_S}.multivariate_normal.logpdf",
         f"{_S}.multivariate_normal(y, z @ z.T).logpdf(x)", R(4, 3), R(3), definite(3)),
    case(f"{_S}.multivariate_normal.logpdf",
         f"{_S}.multivariate_normal.logpdf({_PLANE}@x, {_PLANE}@y, {_PLANE}@{_PLANE}.T, True)",
         R(2), R(2)),
    *_of("multivariate_normal.entropy", "cov=x @ x.T", on=(definite(3),)),
    *_both("multivariate_t", "x, y, z @ z.T, u", R(4, 3), R(3), definite(3), positive()),
    *_both("dirichlet", "x / np.sum(x), y", positive(3), positive(3)),
    *_both("multinomial", "np.array([2, 1, 3]), 6, x / np.sum(x)", positive(3), log="logpmf"),
    *_both("dirichlet_multinomial", "np.array([2, 1, 3]), x, 6", positive(3), log="logpmf"),
    *_both("wishart", "x @ x.T, y[()], z @ z.T", definite(2), exactly(4.2), definite(2)),
    *_both("invwishart", "x @ x.T, y[()], z @ z.T", definite(2), exactly(4.2), definite(2)),
    *_both("matrix_normal", "x, y, z @ z.T, u @ u.T", R(2, 3), R(2, 3), definite(2), definite(3)),
    *_both("normal_inverse_gamma", "x, y, z, u, v, 1.5", R(3), positive(3), R(), positive(),
           positive()),
    *_both("vonmises_fisher", "np.array([[0.6, 0.8, 0.0]]), np.array([1.0, 0.0, 0.0]), x[()]",
           exactly(1.7)),
)  # fmt: skip
SUMMARIES = (
    *_of("zscore", "x", "x, ddof=1"), *_of("zmap", "x, x * x"), *_of("gzscore", "x * x"),
    *_of("gmean", "x * x"), *_of("hmean", "x * x"), *_of("pmean", "x * x, 3"),
    *_of("skew", "x", "x, bias=False"), *_of("kurtosis", "x"), *_of("moment", "x, 3"),
    *_of("sem", "x"), *_of("variation", "x * x"), *_of("tmean", "x"),
    *_of("tvar", "x", "x, (-1, 1)"), *_of("tstd", "x, (-1, 1)"), *_of("tsem", "x, (-1.5, 1)"),
    *_of("tstd", "x"), *_of("tsem", "x"), *_of("trim_mean", "x, 0.2"), *_of("gstd", "x * x + 1"),
    *_of("entropy", "x", "x, y", on=(positive(5), positive(5))),
    *_of("circmean", "x"), *_of("circvar", "x"), *_of("circstd", "x"),
    case(f"{_S}.pearsonr", f"{_S}.pearsonr(x, y)[0]", R(7), R(7)),
    case(f"{_S}.linregress", f"tuple({_S}.linregress(x, y))[:3]", R(7), R(7)),
    *(case(f"{_S}.{n}", f"{_S}.{n}(x, {o})[0]", R(7), R(7))
      for n, o in (("ttest_1samp", "0.3"), ("ttest_ind", "y"), ("ttest_rel", "y"),
                   ("f_oneway", "y"), ("bartlett", "y"), ("levene", "y"))),
    *(case(f"{_S}.{n}", f"{_S}.{n}(x)[0]", R(20))
      for n in ("jarque_bera", "skewtest", "kurtosistest", "normaltest")),
    case(f"{_S}.chisquare", f"{_S}.chisquare(x)[0]", positive(5)),
    case(f"{_S}.power_divergence", f"{_S}.power_divergence(x, lambda_=0.5)[0]", positive(5)),
    case(f"{_S}.theilslopes", f"tuple({_S}.theilslopes(x, y))[:2]", R(5), R(5)),
    *_of("differential_entropy", "x"), *_of("kstat", "x, 3"),
    *_of("kstatvar", "x"),
    *_of("wasserstein_distance", "x, y", on=(R(5), R(6))),
    *_of("energy_distance", "x, y", on=(R(5), R(6))),
    *_of("median_abs_deviation", "x"), *_of("iqr", "x", "x, rng=(10, 60)", "x, scale='normal'"),
    case(f"{_S}.boxcox_llf", f"{_S}.boxcox_llf(x, y)", exactly(0.7), positive(6)),
    case(f"{_S}.boxcox", f"{_S}.boxcox(y, x[()])", exactly(0.7), positive(6)),
)  # fmt: skip
_AXES = (
    "axis=0", "axis=1, keepdims=True", "axis=None", "axis=(0, 1)", "axis=-1, nan_policy='omit'",
)  # fmt: skip
# Along axes, of samples with as many rows as columns.
ALONG = tuple(
    case(f"{_S}.{name}", f"{_S}.{name}({args}, {axis}){of}", positive(5, 5), positive(5, 5))
    for name, args, of in (
        *((n, "x", "") for n in ("gmean", "hmean", "skew", "kurtosis", "moment", "sem", "variation",
                                 "tmean", "tvar", "tstd", "tsem", "gstd", "circmean", "circvar",
                                 "circstd", "kstat", "kstatvar", "entropy", "differential_entropy",
                                 "median_abs_deviation")),
        ("pmean", "x, 3", ""), ("trim_mean", "x, 0.2", ""), ("entropy", "x, y", ""),
        *((n, "x", "[0]") for n in ("jarque_bera",)), ("ttest_1samp", "x, 0.3", "[0]"),
        *((n, "x, y", "[0]") for n in ("ttest_ind", "ttest_rel", "f_oneway", "levene", "bartlett")),
        ("levene", "x, y[0]", "[0]"), ("ttest_ind", "x, y[:3]", "[0]"),
    )
    for axis in _AXES if not (args == "x, y[0]" and axis != "axis=0")
    and not (args == "x, y[:3]" and axis not in ("axis=0", "axis=None"))
)  # fmt: skip
_KDE = f"{_S}.gaussian_kde"
DENSITIES = (
    case(_KDE, f"{_KDE}(x)(y)", R(5), R(3)),
    case(f"{_KDE}.evaluate", f"{_KDE}(np.stack([x, z]), 0.7).evaluate(y)", R(5), R(2, 3), R(5)),
    case(f"{_KDE}.logpdf", f"{_KDE}(x, weights=z).logpdf(y)", R(5), R(3), positive(5)),
    case(f"{_KDE}.integrate_box_1d", f"{_KDE}(x).integrate_box_1d(y, 1.5)", R(5), R()),
    case(f"{_KDE}.set_bandwidth", f"k = {_KDE}(x)\nk.set_bandwidth(z[()])\nreturn k(y)", R(5), R(3),
         positive()),
)  # fmt: skip
_SPACE = "scipy.spatial"
MOMENTS = tuple(
    case(f"{_S}.{name}.{method}", f"{_S}.{name}.{method}({args}, loc=z, scale=u)", positive(3),
         positive(3), R(), positive())
    for name, args in (("gamma", "x"), ("beta", "x, y"), ("lognorm", "x"), ("f", "x, y + 4.5"))
    for method in ("mean", "var", "std", "entropy")
)  # fmt: skip
SPACES = (
    case(f"{_SPACE}.distance_matrix", f"{_SPACE}.distance_matrix(x, y)", R(3, 2), R(2, 2)),
    *(case(f"{_SPACE}.{n}", f"{_SPACE}.{n}(x, y, 3)", R(3, 2), R(3, 2))
      for n in ("minkowski_distance", "minkowski_distance_p")),
    case(f"{_SPACE}.KDTree.query",
         f"{_SPACE}.KDTree(np.arange(10.0).reshape(5, 2)).query(x, k=2)[0]", R(3, 2)),
    case(f"{_SPACE}.procrustes", f"{_SPACE}.procrustes(x, y)[2]", R(4, 2), R(4, 2)),
)
# steps: what is multiplied by them has a gradient
RANKS = tuple(
    case(f"{_S}.{name}", f"r = {_S}.{name}({call})\nreturn x * r[0], x * r[1]", R(9), R(9))
    for name, calls in {
        "mannwhitneyu": ("x, y", "x[:6], y, alternative='less', method='asymptotic'"),
        "kruskal": ("x, y, x + 2 * y",), "friedmanchisquare": ("x, y, x + 2 * y",),
        "ranksums": ("x, y",),
    }.items()
    for call in calls
)
CASES = (*MOMENTS, *SPACES, *MULTIVARIATE, *SUMMARIES, *ALONG, *DENSITIES, *RANKS)
