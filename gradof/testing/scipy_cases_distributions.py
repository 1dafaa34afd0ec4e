"""The scipy table: univariate distributions of scipy.stats, at quantiles of their own."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from gradof.testing.numpy_samples import Array, Case, Sample, case, exactly

_METHODS = ("pdf", "logpdf", "cdf", "logcdf", "sf", "logsf", "ppf", "isf")
_DENSITY = ("pdf", "logpdf")
# name: shape parameters, by float or, where they count, by int
_CONTINUOUS: dict[str, tuple[float, ...]] = {
    "alpha": (3.6,), "anglit": (), "arcsine": (), "argus": (1.0,), "beta": (2.3, 1.6),
    "betaprime": (5, 6), "bradford": (0.3,), "burr": (10.5, 4.3), "burr12": (10, 4),
    "cauchy": (), "chi": (7.5,), "chi2": (5.5,), "cosine": (), "crystalball": (2.0, 3.0),
    "dgamma": (2.1,), "dweibull": (2.07,), "erlang": (10,), "expon": (), "exponnorm": (1.5,),
    "exponpow": (2.7,), "exponweib": (2.9, 1.95), "f": (29, 18), "fatiguelife": (0.7,),
    "fisk": (3.1,), "foldcauchy": (1.7,), "foldnorm": (1.95,), "gamma": (1.99,),
    "genextreme": (-0.1,), "gengamma": (4.4, 3.1),
    "genhalflogistic": (0.77,), "genlogistic": (0.41,), "gennorm": (1.3,), "halfgennorm": (0.67,),
    "genpareto": (0.1,), "gibrat": (), "gompertz": (0.95,), "gumbel_l": (), "gumbel_r": (),
    "halfcauchy": (), "halflogistic": (), "halfnorm": (), "hypsecant": (), "invgamma": (4.1,),
    "invgauss": (0.6,), "invweibull": (10.6,), "jf_skew_t": (8, 4), "johnsonsb": (4.3, 3.2),
    "johnsonsu": (2.55, 2.25), "kappa3": (1.0,), "laplace": (), "laplace_asymmetric": (1.3,),
    "levy": (), "levy_l": (), "loggamma": (0.41,), "logistic": (), "loglaplace": (3.25,),
    "lognorm": (0.95,), "loguniform": (0.01, 1.25), "lomax": (1.9,), "maxwell": (),
    "mielke": (10.4, 4.6), "moyal": (), "nakagami": (4.97,), "norm": (), "pareto": (2.6,),
    "powerlaw": (1.66,), "powerlognorm": (2.1, 0.45), "powernorm": (4.4,), "rayleigh": (),
    "rdist": (1.6,), "reciprocal": (0.01, 1.25), "semicircular": (), "skewcauchy": (0.5,),
    "skewnorm": (4.0,), "t": (2.7,), "triang": (0.16,), "truncexpon": (4.7,),
    "truncweibull_min": (2.5, 0.25, 1.75), "tukeylambda": (3.1,), "uniform": (), "wald": (),
    "weibull_max": (2.9,), "weibull_min": (1.8,), "wrapcauchy": (0.03,), "recipinvgauss": (0.63,),
}  # fmt: skip
_SOME: dict[str, tuple[tuple[float, ...], tuple[str, ...]]] = {
    "dpareto_lognorm": ((3, 1.2, 1.5, 2), _DENSITY), "norminvgauss": ((1.25, 0.5), _DENSITY),
    "rice": ((0.77,), _DENSITY), "rel_breitwigner": ((36.5,), _DENSITY),
    "vonmises": ((3.99,), _DENSITY), "vonmises_line": ((3.99,), _DENSITY),
    "genexpon": ((9.1, 16.2, 3.3), _METHODS[:6]), "truncnorm": ((-1.1, 2.7), _METHODS[:7]),
}  # fmt: skip
_MASSES = ("pmf", "logpmf", "cdf", "logcdf", "sf", "logsf")
# name: parameters in the source, where x is the vector of those that are not whole; their values
_DISCRETE: dict[str, tuple[str, tuple[float, ...], tuple[str, ...]]] = {
    "bernoulli": ("x[0]", (0.3,), _MASSES), "binom": ("5, x[0]", (0.4,), _MASSES),
    "geom": ("x[0]", (0.5,), _MASSES), "poisson": ("x[0]", (0.6,), _MASSES),
    "nbinom": ("x[0], x[1]", (2.4, 0.4), _MASSES), "planck": ("x[0]", (0.51,), _MASSES),
    "dlaplace": ("x[0]", (0.8,), _MASSES), "boltzmann": ("x[0], 19", (1.4,), _MASSES),
    "betabinom": ("5, x[0], x[1]", (2.3, 0.63), _MASSES[:2]),
    "betanbinom": ("5, x[0], x[1]", (9.3, 1.0), _MASSES[:2]),
    "logser": ("x[0]", (0.6,), ("pmf", "logpmf", "sf")),
    "yulesimon": ("x[0]", (3.0,), _MASSES[:2]),
    "skellam": ("x[0], x[1]", (15.0, 8.0), _MASSES[:2]),
}  # fmt: skip
_LEVELS = (0.2, 0.45, 0.8)


def _quantiles(name: str, shapes: tuple[float, ...]) -> Sample:
    def draw(rng: np.random.Generator) -> Array:
        stats: Any = importlib.import_module("scipy.stats")
        return np.asarray(getattr(stats, name).ppf(_LEVELS, *shapes), np.float64)

    return draw


def _continuous(name: str, shapes: tuple[float, ...], methods: tuple[str, ...]) -> list[Case]:
    given = "".join(f", {letter}" for letter in "yzuv"[: len(shapes)])
    made = []
    for method in methods:
        at = exactly(_LEVELS) if method in ("ppf", "isf") else _quantiles(name, shapes)
        path = f"scipy.stats.{name}.{method}"
        made.append(case(path, f"{path}(x{given})", at, *(exactly(float(s)) for s in shapes)))
    return made


def _discrete(name: str, text: str, values: tuple[float, ...], methods: tuple[str, ...]) -> Any:
    for method in methods:
        path = f"scipy.stats.{name}.{method}"
        yield case(path, f"{path}(np.array([1, 2, 3]), {text})", exactly(values))


_SCALED = tuple(
    case(f"scipy.stats.{name}.{method}", f"scipy.stats.{name}.{method}(x, *y, loc=z, scale=u)",
         exactly([0.4, 1.3, -0.2]), exactly(shapes), exactly(-0.7), exactly([1.2, 0.8, 2.1]))
    for name, shapes in (("norm", ()), ("gamma", (2.3,)), ("t", (3.1,)), ("lognorm", (0.7,)))
    for method in ("logpdf", "cdf", "sf")
)  # fmt: skip
_FROZEN = (
    case("scipy.stats.norm.logpdf", "scipy.stats.norm(y, z).logpdf(x)", exactly([0.4, 1.3]),
         exactly(0.3), exactly(1.4)),
    case("scipy.stats.gamma.logpdf", "scipy.stats.gamma(y, scale=z).logpdf(x)",
         exactly([0.4, -1.3]), exactly(2.3), exactly(1.4)),
    case("scipy.stats.norm.expect", "scipy.stats.norm(x, y).expect(np.square)",
         exactly(0.3), exactly(1.4)),
    case("scipy.stats.norm.expect", "scipy.stats.norm(x, y).expect(lb=-x, ub=3 * y)",
         exactly(0.3), exactly(1.4)),
    case("scipy.stats.gamma.expect",
         "scipy.stats.gamma.expect(lambda v: np.log(v + y), (x,), scale=y, lb=0.2,"
         " conditional=True)",
         exactly(2.3), exactly(1.4)),
)  # fmt: skip
CASES = (
    *(c for name, shapes in _CONTINUOUS.items() for c in _continuous(name, shapes, _METHODS)),
    *(c for name, (shapes, some) in _SOME.items() for c in _continuous(name, shapes, some)),
    *(c for name, row in _DISCRETE.items() for c in _discrete(name, *row)),
    *_SCALED, *_FROZEN,
)  # fmt: skip
