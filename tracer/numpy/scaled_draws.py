"""Random numbers whose parameters are traced: standard numbers, which are then scaled.

    rng.normal(mu, sigma, 100)           mu + sigma * rng.standard_normal(100)
    rng.gumbel(loc, scale)               loc + scale * rng.gumbel(0.0, 1.0)

numpy computes them so from the same bits, so that one seed gives plain numpy's numbers. A gradient
goes to the parameters.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from gradof.tracer.numpy.functions import as_array
from gradof.tracer.numpy.recorder import contains_traced

Draw = Callable[..., Any]  # draw(name, *parameters) of one generator


def _size(size: Any, *parameters: Any) -> Any:
    return np.broadcast_shapes(*map(np.shape, parameters)) or None if size is None else size


def _normal(draw: Draw, _: Any, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
    return loc + scale * draw("standard_normal", _size(size, loc, scale))


def _lognormal(draw: Draw, _: Any, mean: Any = 0.0, sigma: Any = 1.0, size: Any = None) -> Any:
    return np.exp(_normal(draw, _, mean, sigma, size))


def _uniform(draw: Draw, rng: Any, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Any:
    name = "random" if isinstance(rng, np.random.Generator) else "random_sample"
    return low + (high - low) * draw(name, _size(size, low, high))


def _exponential(draw: Draw, _: Any, scale: Any = 1.0, size: Any = None) -> Any:
    return scale * draw("standard_exponential", _size(size, scale))


def _moved(
    name: str, draw: Draw, _: Any, loc: Any = 0.0, scale: Any = 1.0, size: Any = None
) -> Any:
    return loc + scale * draw(name, 0.0, 1.0, _size(size, loc, scale))


def _rayleigh(draw: Draw, _: Any, scale: Any = 1.0, size: Any = None) -> Any:
    return scale * draw("rayleigh", 1.0, _size(size, scale))


def _gamma(draw: Draw, _: Any, shape: Any, scale: Any = 1.0, size: Any = None) -> Any:
    # the shape decides which numbers are drawn, and how many: a gradient by it is an error
    return scale * draw("standard_gamma", shape, _size(size, shape, scale))


def _weibull(draw: Draw, _: Any, a: Any, size: Any = None) -> Any:
    return draw("standard_exponential", _size(size, a)) ** (1.0 / a)


def _pareto(draw: Draw, _: Any, a: Any, size: Any = None) -> Any:
    return np.expm1(draw("standard_exponential", _size(size, a)) / a)


def _power(draw: Draw, _: Any, a: Any, size: Any = None) -> Any:
    return (-np.expm1(-draw("standard_exponential", _size(size, a)))) ** (1.0 / a)


def _multivariate_normal(
    draw: Draw, rng: Any, mean: Any, cov: Any, size: Any = None, check_valid: str = "warn",
    tol: float = 1e-8, *, method: str = "svd",
) -> Any:  # fmt: skip
    mean = as_array(mean)
    if not contains_traced(cov):
        named = {"method": method} if isinstance(rng, np.random.Generator) else {}
        return mean + draw(
            "multivariate_normal", np.zeros(mean.shape), cov, size, check_valid, tol, **named
        )
    lead = () if size is None else tuple(np.atleast_1d(size).tolist())
    z = draw("standard_normal", (*lead, *mean.shape))
    return mean + np.matmul(z, np.matrix_transpose(_factor(as_array(cov), method)))


def _factor(cov: Any, method: str) -> Any:
    """A matrix whose product with its transpose is the covariance, as numpy chooses it."""
    if method == "cholesky":
        return np.linalg.cholesky(cov)
    if method == "eigh":
        sizes, vectors = np.linalg.eigh(cov)
        return vectors * np.sqrt(np.abs(sizes))
    left, sizes, _ = np.linalg.svd(cov)
    return left * np.sqrt(sizes)


SCALED: dict[str, Callable[..., Any]] = {
    "normal": _normal, "lognormal": _lognormal, "uniform": _uniform, "exponential": _exponential,
    "rayleigh": _rayleigh, "gamma": _gamma, "weibull": _weibull, "pareto": _pareto,
    "power": _power, "multivariate_normal": _multivariate_normal,
    **{name: functools.partial(_moved, name) for name in ("laplace", "logistic", "gumbel")},
}
