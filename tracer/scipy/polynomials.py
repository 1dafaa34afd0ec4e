"""numpy.polynomial: values of series whose coefficients are traced, by numpy's own code."""

from __future__ import annotations

from gradof.tracer.scipy.twins import through

for _module, _name in (
    ("chebyshev", "chebval"), ("legendre", "legval"), ("hermite", "hermval"),
    ("hermite_e", "hermeval"), ("laguerre", "lagval"), ("polynomial", "polyval"),
):  # fmt: skip
    through(f"numpy.polynomial.{_module}.{_name}")
