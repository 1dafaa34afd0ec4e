"""numpy.polynomial: series and fits of traced coefficients or points, by numpy's own code.

    chebmul(a, b); Legendre(a).roots(); Polynomial.fit(t, y, 3).convert().coef
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.polynomial import polynomial, polyutils
from numpy.polynomial._polybase import ABCPolyBase

from gradof.tracer.numpy.functions import composed
from gradof.tracer.scipy.calls import holds_traced, method_of
from gradof.tracer.scipy.twins import through, twin_function

_FUNCTIONS = (
    "add", "sub", "mulx", "mul", "div", "pow", "val", "val2d", "val3d", "grid2d", "grid3d", "der",
    "int", "vander", "vander2d", "vander3d", "companion", "roots", "fromroots", "line",
)  # fmt: skip

for _module, _name in (
    ("chebyshev", "cheb"), ("legendre", "leg"), ("hermite", "herm"), ("hermite_e", "herme"),
    ("laguerre", "lag"), ("polynomial", "poly"),
):  # fmt: skip
    through(*(f"numpy.polynomial.{_module}.{_name}{function}" for function in _FUNCTIONS))
    if _name != "poly":
        through(*(f"numpy.polynomial.{_module}.{n}" for n in (f"poly2{_name}", f"{_name}2poly")))

# what those of Chebyshev call, and what the classes and the fits do with coefficients and points
through(*(
    f"numpy.polynomial.chebyshev.{name}" for name in (
        "_cseries_to_zseries", "_zseries_to_cseries", "_zseries_mul", "_zseries_div",
        "_zseries_der", "_zseries_int",
    )
))  # fmt: skip
through(*(
    f"numpy.polynomial.polyutils.{name}" for name in (
        "as_series", "trimseq", "getdomain", "mapparms", "mapdomain", "_fit", "_vander_nd",
        "_vander_nd_flat", "_fromroots", "_valnd", "_gridnd", "_div", "_add", "_sub", "_pow",
    )
))  # fmt: skip


def _of_two(name: str, evaluated: Any) -> None:
    """A function of numpy's that asks its arguments for a protocol, in some of its versions."""
    function = getattr(polynomial, name)
    if type(function) is type(np.sum):
        composed(function)(lambda x, y, c: evaluated(polynomial.polyval, c, x, y))


_of_two("polyval2d", polyutils._valnd)
_of_two("polygrid2d", polyutils._gridnd)


def _is_traced(value: Any) -> bool:
    if isinstance(value, ABCPolyBase):
        return any(map(holds_traced, (value.coef, value.domain, value.window)))
    return bool(holds_traced(value))


@method_of(
    "numpy.polynomial.Polynomial.__call__", "numpy.polynomial._polybase.ABCPolyBase.__call__",
    _is_traced,
)  # fmt: skip
def _call(self: Any, arg: Any) -> Any:
    """The value at numbers, or the series of another series."""
    if not isinstance(arg, ABCPolyBase):
        return self._val(polyutils.mapdomain(arg, self.domain, self.window), self.coef)
    offset, scale = polyutils.mapparms(self.domain, self.window)
    value = type(self)._val
    return twin_function(f"{value.__module__}.{value.__name__}")(offset + scale * arg, self.coef)
