"""Ufuncs of scipy.special that only scipy itself calls (`_ufuncs._beta_pdf`), in public ones."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gradof.errors import OutputError
from gradof.ops.expr import F
from gradof.tracer.numpy.active import active_recorder
from gradof.tracer.numpy.black_box import call as call_black_box
from gradof.tracer.numpy.functions import as_array, whole
from gradof.tracer.numpy.ufuncs import COMPOSED
from gradof.tracer.state.source import user_loc


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


def _faddeeva(x: Any, y: Any) -> tuple[Any, Any]:
    """Real and imaginary part of w(x + iy), whose derivative is 2i / sqrt(pi) - 2 z w."""

    def run(x: Any, y: Any) -> Any:
        w = _special("wofz")(np.asarray(x) + 1j * np.asarray(y))
        return np.asarray(w.real), np.asarray(w.imag)

    def rule(args: Any, result: Any, g: Any) -> Any:
        (x, y), (u, v) = args, _faddeeva(*args)
        real = -2.0 * (x * u - y * v)
        imag = 2.0 / math.sqrt(math.pi) - 2.0 * (x * v + y * u)
        return [g[0] * real + g[1] * imag, g[1] * real - g[0] * imag]

    x, y = np.broadcast_arrays(x, y)
    recorder = active_recorder()
    if recorder is None:
        found: tuple[Any, Any] = run(x, y)
        return found
    u, v = call_black_box(recorder, "scipy.special.wofz", run, (x, y), None, rule)
    return u, v


def _wofz(z: Any) -> Any:
    u, v = _faddeeva(np.real(z), np.imag(z))
    recorder: Any = active_recorder()
    u, v = (recorder.traced(part) for part in (u, v))
    return recorder.wrap(u.concrete + 1j * v.concrete, F.complex(u.expr, v.expr))


def _voigt(x: Any, sigma: Any, gamma: Any) -> Any:
    """The Voigt profile; at a sigma of 0 the first terms of its series there (heat equation)."""
    is_zero = sigma == 0.0
    square = np.where(is_zero, x * x + gamma * gamma, 1.0)
    cauchy = gamma / (math.pi * square)
    curvature = cauchy * (6.0 * x * x - 2.0 * gamma * gamma) / (square * square)
    width = np.where(is_zero, 1.0, sigma) * math.sqrt(2.0)
    profile = _faddeeva(x / width, gamma / width)[0] / (width * math.sqrt(math.pi))
    return np.where(is_zero, cauchy + 0.5 * sigma * sigma * curvature, profile)


def _lambertw(z: Any, k: Any, tol: Any) -> Any:
    """A real value of Lambert's W: its derivative is exp(-W) / (1 + W)."""
    branch = int(whole(k)) if np.ndim(k) == 0 else 2
    if np.iscomplexobj(z) or branch not in (0, -1):
        raise TypeError("argument of lambertw that is complex, or on a branch that is")

    def run(z: Any) -> Any:
        w = _special("lambertw")(z, branch)
        if np.any(np.imag(w)):
            raise OutputError(
                "scipy.special.lambertw: the value is complex, below -1/e", loc=user_loc(),
                hint="clip the argument to -1/e, or give branch 0 positive ones",
            )
        return np.asarray(np.real(w))

    def value(z: Any) -> Any:
        def rule(args: Any, result: Any, g: Any) -> Any:
            w = value(args[0])
            return [g * np.exp(-w) / (1.0 + w)]

        recorder = active_recorder()
        if recorder is None:
            return run(z)
        return call_black_box(recorder, "scipy.special.lambertw", run, (z,), None, rule)

    return value(as_array(z)) + 0.0j


COMPOSED["scipy.special._ufuncs"] = {
    "_lambertw": _lambertw,
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
COMPOSED["scipy.special"]["voigt_profile"] = _voigt
COMPOSED["scipy.special"]["wofz"] = _wofz
