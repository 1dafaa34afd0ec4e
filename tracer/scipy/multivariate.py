"""scipy.stats: densities of vectors and matrices."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gradof.tracer.numpy.functions import as_array
from gradof.tracer.scipy.calls import holds_traced, scipy_function
from gradof.tracer.scipy.linalg import triangular

_HOME = "scipy.stats._multivariate"
_LOG_TWO_PI = math.log(2.0 * math.pi)


def _special(name: str) -> Any:
    return getattr(importlib.import_module("scipy.special"), name)


def _swap(a: Any) -> Any:
    return np.swapaxes(a, -1, -2)


def _with_density(name: str, method: str = "logpdf") -> Callable[[Callable[..., Any]], Any]:
    """Register a log-density, and the density that is its exponential."""

    def register(log: Callable[..., Any]) -> Callable[..., Any]:
        path = f"{_HOME}.{name}_gen"
        scipy_function(f"scipy.stats.{name}.{method}", at=f"{path}.{method}")(log)

        def density(self: Any, *args: Any, **kwargs: Any) -> Any:
            return np.exp(log(self, *args, **kwargs))

        plain = method.removeprefix("log")
        scipy_function(f"scipy.stats.{name}.{plain}", at=f"{path}.{plain}")(density)
        return log

    return register


def _deviations(x: Any, mean: Any, cov: Any) -> tuple[Any, Any]:
    """The distances from the mean as rows, and the covariance as a matrix."""
    x = as_array(x)
    mean, cov = (None if v is None else as_array(v) for v in (mean, cov))
    if cov is not None and cov.ndim == 2:
        dim = cov.shape[0]
    elif mean is not None and mean.ndim:
        dim = mean.shape[0]
    else:
        dim = cov.shape[0] if cov is not None and cov.ndim else 1
    cov = np.eye(dim) if cov is None else cov
    if cov.ndim == 0:
        cov = cov * np.eye(dim)
    elif cov.ndim == 1:
        cov = np.diag(cov)
    if x.ndim == 0:
        x = np.reshape(x, (1,))
    elif x.ndim == 1:
        x = x[:, None] if dim == 1 else x[None, :]
    if x.shape[-1] == 1 < dim:  # scipy takes one number for all, too
        x = np.broadcast_to(x, (*x.shape[:-1], dim))
    return x if mean is None else x - mean, cov


def _whitened(x: Any, mean: Any, cov: Any) -> tuple[Any, Any, int]:
    """Squared distances, the covariance's log-determinant, and the dim."""
    away, cov = _deviations(x, mean, cov)
    dim = cov.shape[0]
    factor = np.linalg.cholesky(cov)
    rows = np.reshape(away, (-1, dim))
    white = triangular(factor, _swap(rows), lower=True)
    squares = np.reshape(np.sum(white * white, axis=0), away.shape[:-1])
    return np.squeeze(squares), 2.0 * np.sum(np.log(np.diagonal(factor))), dim


def _singular_normal(x: Any, mean: Any, cov: Any) -> Any:
    """The log-density on the support of a covariance, which may be less than the space."""
    away, cov = _deviations(x, mean, cov)
    sizes, axes = np.linalg.eigh(cov)
    smallest = 1e6 * np.finfo(np.float64).eps * np.max(np.abs(sizes))  # as scipy counts the rank
    kept = sizes > smallest
    spread = np.where(kept, sizes, 1.0)
    along = away @ axes
    squares = np.sum(np.where(kept, along**2 / spread, 0.0), axis=-1)
    logs = -0.5 * (np.sum(kept) * _LOG_TWO_PI + np.sum(np.log(spread)) + squares)
    outside = np.sqrt(np.sum(np.where(kept, 0.0, along) ** 2, axis=-1))
    return np.squeeze(np.where(outside < 1e3 * smallest, logs, -np.inf))


def _normal(x: Any, mean: Any, cov: Any, allow_singular: Any = False) -> Any:
    if allow_singular:
        return _singular_normal(x, mean, cov)
    squares, log_det, dim = _whitened(x, mean, cov)
    return -0.5 * (dim * _LOG_TWO_PI + log_det + squares)


@_with_density("multivariate_normal")
def _normal_logpdf(
    self: Any, x: Any, mean: Any = None, cov: Any = 1, allow_singular: bool = False
) -> Any:
    return _normal(x, mean, cov, allow_singular)


@scipy_function("scipy.stats.multivariate_normal_frozen.__init__",
                at=f"{_HOME}.multivariate_normal_frozen.__init__", raw=True)
def _frozen(
    original: Any, self: Any, mean: Any = None, cov: Any = 1, allow_singular: bool = False,
    seed: Any = None, maxpts: Any = None, abseps: float = 1e-5, releps: float = 1e-5,
) -> None:  # fmt: skip
    if not holds_traced((mean, cov)):
        original(self, mean, cov, allow_singular, seed, maxpts, abseps, releps)
        return
    if allow_singular:
        raise TypeError("argument allow_singular")
    stats = importlib.import_module("scipy.stats")
    self._dist, self.mean, self._traced = stats.multivariate_normal, mean, (mean, cov)


def _frozen_method(name: str) -> None:
    @scipy_function(f"scipy.stats.multivariate_normal_frozen.{name}",
                    at=f"{_HOME}.multivariate_normal_frozen.{name}", raw=True)
    def method(original: Any, self: Any, x: Any) -> Any:
        given = vars(self).get("_traced")
        if given is None and not holds_traced(x):
            return original(self, x)
        mean, cov = (self.mean, self.cov) if given is None else given
        return getattr(self._dist, name)(x, mean, cov)


_frozen_method("logpdf")
_frozen_method("pdf")


@scipy_function("scipy.stats.multivariate_normal.entropy",
                at=f"{_HOME}.multivariate_normal_gen.entropy")
def _normal_entropy(self: Any, mean: Any = None, cov: Any = 1) -> Any:
    cov = np.atleast_2d(as_array(cov))
    return 0.5 * (cov.shape[0] * (_LOG_TWO_PI + 1.0) + np.linalg.slogdet(cov)[1])


@_with_density("multivariate_t")
def _t(self: Any, x: Any, loc: Any = None, shape: Any = 1, df: Any = 1) -> Any:
    squares, log_det, dim = _whitened(x, loc, shape)
    log = _special("gammaln")
    half = 0.5 * (df + dim)
    constant = log(half) - log(0.5 * df) - 0.5 * dim * np.log(df * math.pi) - 0.5 * log_det
    return constant - half * np.log1p(squares / df)


@_with_density("dirichlet")
def _dirichlet(self: Any, x: Any, alpha: Any) -> Any:
    x, alpha = as_array(x), as_array(alpha)
    if x.shape[0] == alpha.shape[0] - 1:
        x = np.concatenate([x, 1.0 - np.sum(x, axis=0, keepdims=True)], axis=0)
    log = _special("gammaln")
    constant = log(np.sum(alpha)) - np.sum(log(alpha))
    column = np.reshape(alpha, (-1,) + (1,) * (x.ndim - 1))
    return constant + np.sum(_special("xlogy")(column - 1.0, x), axis=0)


@_with_density("multinomial", "logpmf")
def _multinomial(self: Any, x: Any, n: Any, p: Any) -> Any:
    x, p, n = as_array(x), as_array(p), as_array(n)
    # the last probability is what is left of the others, as scipy has it
    p = np.concatenate([p[..., :-1], 1.0 - np.sum(p[..., :-1], axis=-1, keepdims=True)], axis=-1)
    log = _special("gammaln")
    return log(n + 1.0) + np.sum(_special("xlogy")(x, p) - log(x + 1.0), axis=-1)


@_with_density("dirichlet_multinomial", "logpmf")
def _dirichlet_multinomial(self: Any, x: Any, alpha: Any, n: Any) -> Any:
    x, alpha, n = as_array(x), as_array(alpha), as_array(n)
    log, whole = _special("gammaln"), np.sum(alpha, axis=-1)
    constant = log(whole) + log(n + 1.0) - log(n + whole)
    return constant + np.sum(log(x + alpha) - log(alpha) - log(x + 1.0), axis=-1)


def _log_det(a: Any) -> Any:
    return np.linalg.slogdet(a)[1]


def _one_matrix(x: Any) -> Any:
    x = as_array(x)
    if x.ndim != 2:
        raise TypeError("argument x that is no single matrix")
    return x


@_with_density("wishart")
def _wishart(self: Any, x: Any, df: Any, scale: Any) -> Any:
    x, scale = _one_matrix(x), as_array(scale)
    dim = x.shape[0]
    trace = np.sum(np.diagonal(np.linalg.solve(scale, x)))
    constant = 0.5 * df * dim * math.log(2.0) + 0.5 * df * _log_det(scale)
    constant = constant + _special("multigammaln")(as_array(0.5 * df), dim)
    return 0.5 * (df - dim - 1.0) * _log_det(x) - 0.5 * trace - constant


@_with_density("invwishart")
def _invwishart(self: Any, x: Any, df: Any, scale: Any) -> Any:
    x, scale = _one_matrix(x), as_array(scale)
    dim = x.shape[0]
    trace = np.sum(np.diagonal(np.linalg.solve(x, scale)))
    constant = 0.5 * df * _log_det(scale) - 0.5 * df * dim * math.log(2.0)
    constant = constant - _special("multigammaln")(as_array(0.5 * df), dim)
    return constant - 0.5 * (df + dim + 1.0) * _log_det(x) - 0.5 * trace


@_with_density("matrix_normal")
def _matrix_normal(
    self: Any, X: Any, mean: Any = None, rowcov: Any = 1, colcov: Any = 1
) -> Any:
    x, rows, columns = as_array(X), as_array(rowcov), as_array(colcov)
    m, n = x.shape[-2:]
    away = x if mean is None else x - mean
    rows = rows * np.eye(m) if rows.ndim == 0 else rows
    columns = columns * np.eye(n) if columns.ndim == 0 else columns
    half = triangular(np.linalg.cholesky(rows), away, lower=True)
    white = triangular(np.linalg.cholesky(columns), _swap(half), lower=True)
    constant = m * n * _LOG_TWO_PI + n * _log_det(rows) + m * _log_det(columns)
    return -0.5 * (constant + np.sum(white * white, axis=(-2, -1)))


@_with_density("normal_inverse_gamma")
def _normal_inverse_gamma(
    self: Any, x: Any, s2: Any, mu: Any = 0, lmbda: Any = 1, a: Any = 1, b: Any = 1
) -> Any:
    s2 = as_array(s2)
    shape = as_array(a)
    logs = 0.5 * (np.log(lmbda) - _LOG_TWO_PI - np.log(s2)) + shape * np.log(b)
    logs = logs - _special("gammaln")(shape) - (shape + 1.0) * np.log(s2)
    return logs - (2.0 * b + lmbda * np.square(x - mu)) / (2.0 * s2)


@_with_density("vonmises_fisher")
def _vonmises_fisher(self: Any, x: Any, mu: Any = None, kappa: Any = 1) -> Any:
    x, mu = as_array(x), as_array(mu)
    order = 0.5 * mu.shape[0] - 1.0
    kappa = as_array(kappa)
    bessel = np.log(_special("ive")(order, kappa)) + kappa
    constant = order * np.log(kappa) - 0.5 * mu.shape[0] * _LOG_TWO_PI - bessel
    return constant + kappa * np.sum(x * mu, axis=-1)
