"""numpy.polynomial: series and fits of traced coefficients or points, by numpy's own code."""

from __future__ import annotations

from gradof.tracer.scipy.twins import through

for _module, _name in (
    ("chebyshev", "cheb"), ("legendre", "leg"), ("hermite", "herm"), ("hermite_e", "herme"),
    ("laguerre", "lag"), ("polynomial", "poly"),
):  # fmt: skip
    for _function in ("val", "vander", "der", "int"):
        through(f"numpy.polynomial.{_module}.{_name}{_function}")

# what the classes, and the fits, do with their coefficients and points
for _name in ("as_series", "trimseq", "getdomain", "mapparms", "mapdomain", "_fit"):
    through(f"numpy.polynomial.polyutils.{_name}")
