"""scipy.interpolate: where piecewise polynomials are zero, or have a value.

    CubicSpline(t, y).roots()           # dt, dy, to any order
    PchipInterpolator(t, y).solve(0.5)

scipy finds the roots at every call, and how many there are is read by Python: a trace is for one
number of them. Derivatives are those of p(r) = y: by Newton's step, which adds one order of
derivative and more each time (`steps_of_newton`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradof.tracer.numpy.black_box import call as call_black_box
from gradof.tracer.numpy.functions import as_array, traced_all
from gradof.tracer.scipy.calls import method_of
from gradof.tracer.scipy.implicit import constant
from gradof.tracer.scipy.interpolation import evaluated
from gradof.tracer.scipy.kept import is_traced, kept

_PPOLY = "scipy.interpolate._interpolate.PPoly"


def steps_of_newton(at: Any, residual: Callable[[Any], Any], slope: Callable[[Any], Any]) -> Any:
    """A root that was found by others: the same number, with the derivatives of residual(r) = 0.

    A step from a root that is exact to some order of derivative is exact to twice that and one.
    """
    for _ in range(2):
        off = residual(at)
        at = at - (off - constant(off)) / slope(at)
    return at


def _solved(self: Any, y: Any, discontinuity: Any, extrapolate: Any) -> Any:
    extrapolate = self.extrapolate if extrapolate is None else extrapolate
    c, x = kept(self, "c"), kept(self, "x")
    if np.ndim(c) != 2 or type(self).__name__ == "PPoly":  # which may jump
        raise TypeError("PPoly.solve of traced values of several dims, or of a plain PPoly")
    c, x, value = traced_all(*map(as_array, (c, x, y)))
    plain, recorder = _plain_solve(self, discontinuity, extrapolate), c.recorder
    given = (c, x, value)

    def count(*arrays: Any) -> Any:
        return np.int64(len(plain(*arrays)))

    int(call_black_box(recorder, "scipy.interpolate: how many roots", count, given, None, None))
    found = call_black_box(recorder, "scipy.interpolate: roots", plain, given, None, None)
    return steps_of_newton(
        constant(found), lambda at: evaluated(c, x, at, 0, True) - value,
        lambda at: evaluated(c, x, at, 1, True),
    )  # fmt: skip


def _plain_solve(self: Any, discontinuity: Any, extrapolate: Any) -> Callable[..., Any]:
    from scipy.interpolate import PPoly

    def plain(c: Any, x: Any, y: Any) -> Any:
        return PPoly(c, x, extrapolate).solve(float(y), discontinuity, extrapolate)

    return plain


@method_of("scipy.interpolate.PPoly.solve", f"{_PPOLY}.solve", is_traced)
def _solve(self: Any, y: Any = 0.0, discontinuity: Any = True, extrapolate: Any = None) -> Any:
    return _solved(self, y, discontinuity, extrapolate)


@method_of("scipy.interpolate.PPoly.roots", f"{_PPOLY}.roots", is_traced)
def _roots(self: Any, discontinuity: Any = True, extrapolate: Any = None) -> Any:
    return _solved(self, 0.0, discontinuity, extrapolate)
