"""Ufuncs of scipy.special that only scipy itself calls (`_ufuncs._beta_pdf`), in public ones."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gradof.tracer.numpy.ufuncs import COMPOSED


def _special(name: str) -> Any:
    return getattr(importlib.import_module("scipy.special"), name)


def _beta_pdf(x: Any, a: Any, b: Any) -> Any:
    logs = _special("xlogy")(a - 1.0, x) + _special("xlog1py")(b - 1.0, -x)
    return np.exp(logs - _special("betaln")(a, b))


def _log_binom(n: Any, k: Any) -> Any:
    log = _special("gammaln")
    return log(n + 1.0) - log(k + 1.0) - log(n - k + 1.0)


def _binom_pmf(k: Any, n: Any, p: Any) -> Any:
    logs = _special("xlogy")(k, p) + _special("xlog1py")(n - k, -p)
    return np.exp(_log_binom(n, k) + logs)


def _nbinom_pmf(k: Any, n: Any, p: Any) -> Any:
    logs = n * np.log(p) + _special("xlog1py")(k, -p)
    return np.exp(_log_binom(n + k - 1.0, k) + logs)


def _below(name: str) -> Callable[..., Any]:
    """The sum of a binomial distribution's probabilities, all of them where k is n."""

    def function(k: Any, n: Any, p: Any) -> Any:
        k = np.floor(k)
        left = np.where(k < n, n - k, 1.0)
        value = _special(name)(k + 1.0, left, p)
        return np.where(k < n, value, 1.0 if name == "betaincc" else 0.0)

    return function


def _log1mexp(x: Any) -> Any:
    """log(1 - exp(x)) of negative numbers."""
    near = x > -math.log(2.0)
    small, large = np.where(near, x, -0.5), np.where(near, -1.0, x)
    return np.where(near, np.log(-np.expm1(small)), np.log1p(-np.exp(large)))


def _ncx2_pdf(x: Any, df: Any, nc: Any) -> Any:
    order = df * 0.5 - 1.0
    root = np.sqrt(x * nc)
    logs = 0.5 * order * (np.log(x) - np.log(nc)) - 0.5 * np.square(np.sqrt(x) - np.sqrt(nc))
    return 0.5 * np.exp(logs) * _special("ive")(order, root)


COMPOSED["scipy.special._ufuncs"] = {
    "_beta_pdf": _beta_pdf, "_beta_ppf": lambda q, a, b: _special("betaincinv")(a, b, q),
    "_binom_pmf": _binom_pmf, "_binom_cdf": _below("betaincc"), "_binom_sf": _below("betainc"),
    "_nbinom_pmf": _nbinom_pmf,
    "_nbinom_cdf": lambda k, n, p: _special("betainc")(n, np.floor(k) + 1.0, p),
    "_nbinom_sf": lambda k, n, p: _special("betaincc")(n, np.floor(k) + 1.0, p),
    "_cauchy_ppf": lambda q, loc, scale: loc - scale / np.tan(math.pi * q),
    "_cauchy_isf": lambda q, loc, scale: loc + scale / np.tan(math.pi * q),
    "_log1mexp": _log1mexp, "_ncx2_pdf": _ncx2_pdf,
    "_lgam1p": lambda a: _special("gammaln")(a + 1.0),
    "_log1pmx": lambda x: np.log1p(x) - x,
    "_skewnorm_cdf": lambda x, loc, scale, a: (
        _special("ndtr")((x - loc) / scale) - 2.0 * _special("owens_t")((x - loc) / scale, a)),
    "_cosine_cdf": lambda x: 0.5 + (x + np.sin(x)) / (2.0 * math.pi),
    "_sinpi": lambda x: np.sin(math.pi * x), "_cospi": lambda x: np.cos(math.pi * x),
    "_scaled_exp1": lambda x: x * np.exp(x) * _special("exp1")(x),
}  # fmt: skip
