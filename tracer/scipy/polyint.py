"""scipy.interpolate: one polynomial through points, in its barycentric form.

    BarycentricInterpolator(x, y)(points)      # dx, dy, dpoints

Its weights are found here: scipy multiplies in an order that it draws, which a trace cannot take.
They differ by rounding.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradof.tracer.numpy.functions import as_array
from gradof.tracer.scipy.calls import scipy_function

_CLASS = "BarycentricInterpolator"


@scipy_function(f"scipy.interpolate.{_CLASS}.__init__",
                at=f"scipy.interpolate._polyint.{_CLASS}.__init__", raw=True)
def _barycentric(
    original: Any, self: Any, xi: Any, yi: Any = None, axis: int = 0, *, wi: Any = None,
    **options: Any,
) -> None:  # fmt: skip
    if wi is None:
        wi = _weights(as_array(xi).astype(np.float64))
    original(self, xi, yi, axis, wi=wi, **options)


def _weights(x: Any) -> Any:
    """1 / prod(x_i - x_j), each times 4 / (max x - min x): Berrut and Trefethen (2004), p. 510."""
    n = x.shape[0]
    scale = 4.0 / (np.max(x) - np.min(x)) if n > 1 else 1.0
    away = (x[:, None] - x[None, :]) * scale
    prod = np.prod(np.where(np.eye(n, dtype=bool), 1.0, away), axis=1)
    if np.any(prod == 0.0):  # at every call
        raise ValueError("Interpolation points xi must be distinct.")
    return 1.0 / prod
