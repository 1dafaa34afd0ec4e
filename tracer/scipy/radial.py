"""scipy.interpolate.RBFInterpolator: a linear system of the distances, whose solution is recorded.

    RBFInterpolator(sites, values, kernel="gaussian", epsilon=2.0)(points)     # d of all three
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradof.tracer.numpy.functions import as_array
from gradof.tracer.numpy.recorder import real
from gradof.tracer.scipy.calls import holds_traced, scipy_function

_AT = "scipy.interpolate._rbfinterp.RBFInterpolator"


def _root(square: Any) -> Any:
    """The distance, whose derivative where it is zero is zero."""
    away = square > 0
    return np.where(away, np.sqrt(np.where(away, square, 1.0)), 0.0)


def _plate(square: Any) -> Any:
    away = square > 0
    return np.where(away, 0.5 * square * np.log(np.where(away, square, 1.0)), 0.0)


# of squared distances
_KERNELS: dict[str, Callable[[Any], Any]] = {
    "linear": lambda s: -_root(s), "thin_plate_spline": _plate, "cubic": lambda s: s * _root(s),
    "quintic": lambda s: -s * s * _root(s), "multiquadric": lambda s: -np.sqrt(s + 1.0),
    "inverse_multiquadric": lambda s: 1.0 / np.sqrt(s + 1.0),
    "inverse_quadratic": lambda s: 1.0 / (s + 1.0), "gaussian": lambda s: np.exp(-s),
}


def _squares(x: Any, y: Any) -> Any:
    away = x[:, None, :] - y[None, :, :]
    return np.sum(away * away, axis=-1)


def _monomials(self: Any, x: Any) -> Any:
    scaled = (x - self._shift) / self._scale
    return np.stack(
        [np.prod(scaled ** row, axis=-1) for row in np.asarray(self.powers)], axis=-1
    )


@scipy_function("scipy.interpolate.RBFInterpolator", at=f"{_AT}.__init__", raw=True)
def _made(
    original: Any, self: Any, y: Any, d: Any, neighbors: Any = None, smoothing: Any = 0.0,
    kernel: str = "thin_plate_spline", epsilon: Any = None, degree: Any = None,
) -> None:  # fmt: skip
    if not holds_traced((y, d, smoothing, epsilon)):
        original(self, y, d, neighbors, smoothing, kernel, epsilon, degree)
        return
    if neighbors is not None or np.iscomplexobj(d):
        raise TypeError("RBFInterpolator of traced values with neighbors or complex numbers")
    y, d, smooth = (as_array(v).astype(np.float64) for v in (y, d, smoothing))
    width = as_array(1.0 if epsilon is None else epsilon)
    # scipy looks at what it is given, and says what is wrong with it
    original(self, real(y), real(d), None, real(smooth), kernel,
             None if epsilon is None else float(real(width)), degree)  # fmt: skip
    rows = np.reshape(d, (y.shape[0], -1))
    inner = _KERNELS[self.kernel](_squares(y, y) * (width * width))
    inner = inner + np.diag(np.broadcast_to(smooth, (y.shape[0],)))
    count = len(self.powers)
    if count:
        outer = _monomials(self, y)
        left = np.concatenate([
            np.concatenate([inner, outer], axis=1),
            np.concatenate([np.swapaxes(outer, 0, 1), np.zeros((count, count))], axis=1),
        ])  # fmt: skip
        rows = np.concatenate([rows, np.zeros((count, rows.shape[1]))])
    else:
        left = inner
    self._coeffs, self.y, self.d, self._width = np.linalg.solve(left, rows), y, d, width


@scipy_function("scipy.interpolate.RBFInterpolator.__call__", at=f"{_AT}.__call__")
def _call(self: Any, x: Any) -> Any:
    if self.neighbors is not None:
        raise TypeError("argument x that is traced, with neighbors")
    at, y = as_array(x), as_array(self.y)
    width = as_array(getattr(self, "_width", self.epsilon))
    parts = [_KERNELS[self.kernel](_squares(at, y) * (width * width))]
    if len(self.powers):
        parts.append(_monomials(self, at))
    out = np.concatenate(parts, axis=1) @ as_array(self._coeffs)
    return np.reshape(out, (at.shape[0], *self.d_shape))
