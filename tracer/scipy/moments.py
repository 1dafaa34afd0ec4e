"""scipy.stats: means, variances and entropies of distributions, by their own closed forms.

    gamma.mean(a, scale=s), norm(mu, sigma).std(), beta.entropy(a, b)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradof.tracer.numpy.functions import as_array
from gradof.tracer.scipy.calls import scipy_function
from gradof.tracer.scipy.closures import known
from gradof.tracer.scipy.twins import stand_in, twin_of

_BASE = "scipy.stats._distn_infrastructure"


def _moments(dist: Any, args: Any, kwds: Any) -> tuple[Any, Any]:
    """Mean and variance; TypeError where scipy integrates for them."""
    shapes, loc, scale = dist._parse_args(*args, **kwds)
    twin = twin_of(dist)
    shapes = tuple(as_array(s).astype(np.float64) for s in shapes)
    options = {"moments": "mv"} if dist._stats_has_moments else {}
    mean, variance = twin._stats(*shapes, **options)[:2]
    if mean is None or variance is None:
        raise TypeError("argument: a distribution whose moments scipy finds by integrals")
    valid = twin._argcheck(*shapes) & np.greater(scale, 0)
    return (np.where(valid, mean * scale + loc, np.nan),
            np.where(valid, variance * scale * scale, np.nan))  # fmt: skip


def _moment(name: str, of: Any) -> None:
    @scipy_function(f"{_BASE}.rv_generic.{name}")
    def record(self: Any, *args: Any, **kwds: Any) -> Any:
        return of(*_moments(self, args, kwds))


_moment("mean", lambda mean, variance: mean)
_moment("var", lambda mean, variance: variance)
_moment("std", lambda mean, variance: np.sqrt(variance))


@scipy_function(f"{_BASE}.rv_generic.entropy")
def _entropy(self: Any, *args: Any, **kwds: Any) -> Any:
    shapes, _, scale = self._parse_args(*args, **kwds)
    twin = twin_of(self)
    owner = next(c for c in type(twin).__mro__[1:] if "_entropy" in vars(c))
    if owner.__name__ in ("rv_generic", "rv_continuous", "rv_discrete"):
        raise TypeError("argument: a distribution whose entropy scipy finds by integrals")
    shapes = tuple(as_array(s).astype(np.float64) for s in shapes)
    valid = twin._argcheck(*shapes) & np.greater(scale, 0)
    return np.where(valid, twin._entropy(*shapes) + np.log(scale), np.nan)


@scipy_function(f"{_BASE}.rv_continuous.expect", raw=True)
def _expect(
    original: Any, self: Any, func: Any = None, args: Any = (), loc: Any = 0, scale: Any = 1,
    lb: Any = None, ub: Any = None, conditional: bool = False, **kwds: Any,
) -> Any:  # fmt: skip
    """scipy's three integrals. Infinite ends are constants: it scales them, and 0 inf is nan."""
    if not known((func, args, loc, scale, lb, ub)):
        return original(self, func, args, loc, scale, lb, ub, conditional, **kwds)
    from scipy import integrate

    def density(x: Any, *shapes: Any) -> Any:
        value = x if func is None else func(x)
        return value * self.pdf(x, *shapes, loc=loc, scale=scale)

    start, end = self._get_support(*args)
    low, high = _end(lb, start, loc, scale), _end(ub, end, loc, scale)
    under, below = (float(v > 0) if type(v) is float and np.isinf(v)
                    else self.cdf(v, *args, loc=loc, scale=scale) for v in (low, high))  # fmt: skip
    shares = np.stack([as_array(under + (below - under) * a) for a in (0.05, 0.95)])
    first, last = self.ppf(shares, *args, loc=loc, scale=scale)
    pieces = ((low, first), (first, last), (last, high))
    total: Any = sum(integrate.quad(density, *piece, args=args, **kwds)[0] for piece in pieces)
    return as_array(total / (below - under) if conditional else total)[()]


def _end(given: Any, of_support: Any, loc: Any, scale: Any) -> Any:
    if given is not None:
        return given
    fixed = isinstance(of_support, float) and np.isinf(of_support)
    return float(of_support) if fixed else loc + of_support * scale


@stand_in("scipy.stats._continuous_distns", "_lazyselect")
def _select(conditions: Any, choices: Any, arrays: Any, default: Any = 0) -> Any:
    """The first choice whose condition holds; scipy's is written into by places."""
    result: Any = default
    for where, choice in list(zip(conditions, choices, strict=True))[::-1]:
        result = np.where(where, choice(*(np.where(where, a, 0.5) for a in arrays)), result)
    return result
