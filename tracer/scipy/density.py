"""scipy.stats.gaussian_kde: scipy's own code, but for the sums of kernels, which are in Cython."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.functions import as_array
from gradof.tracer.scipy.calls import holds_traced, scipy_function
from gradof.tracer.scipy.linalg import triangular
from gradof.tracer.scipy.twins import through_traced

_KDE = "scipy.stats._kde.gaussian_kde"
through_traced("scipy.stats.gaussian_kde.__init__", at=f"{_KDE}.__init__")


@scipy_function("scipy.stats.gaussian_kde.set_bandwidth", at=f"{_KDE}.set_bandwidth", raw=True)
def _set_bandwidth(original: Any, self: Any, bw_method: Any = None) -> None:
    if type(bw_method) is not TracedArray:
        original(self, bw_method)
        return
    self._bw_method = "use constant"
    self.covariance_factor = lambda: bw_method
    self._compute_covariance()


def _energies(self: Any, points: Any) -> tuple[Any, float]:
    """Half the squared distances of points (rows) from data, and the kernel's log norm."""
    data, at = as_array(self.dataset), np.atleast_2d(as_array(points))
    if at.shape[0] != self.d and at.shape[0] == 1:
        at = np.reshape(at, (self.d, 1))
    factor = as_array(self.cho_cov)
    data, at = triangular(factor, data, lower=True), triangular(factor, at, lower=True)
    away = at[:, :, None] - data[:, None, :]
    norm = -0.5 * self.d * math.log(2.0 * math.pi) - np.sum(np.log(np.diagonal(factor)))
    return 0.5 * np.sum(away * away, axis=0), norm


def _evaluate(self: Any, points: Any) -> Any:
    energies, norm = _energies(self, points)
    return np.exp(norm - energies) @ as_array(self.weights)


scipy_function("scipy.stats.gaussian_kde.evaluate", at=f"{_KDE}.evaluate")(_evaluate)
# `kde(x)` is the same function under another name, which scipy's class has looked up before
scipy_function("scipy.stats.gaussian_kde", at=f"{_KDE}.__call__")(_evaluate)


@scipy_function("scipy.stats.gaussian_kde.logpdf", at=f"{_KDE}.logpdf")
def _logpdf(self: Any, x: Any) -> Any:
    energies, norm = _energies(self, x)
    most = np.min(energies, axis=1, keepdims=True)
    total = np.exp(most - energies) @ as_array(self.weights)
    return norm - most[:, 0] + np.log(total)


@scipy_function("scipy.stats.gaussian_kde.integrate_box_1d", at=f"{_KDE}.integrate_box_1d",
                raw=True)
def _box(original: Any, self: Any, low: Any, high: Any) -> Any:
    if not (holds_traced(self) or holds_traced((low, high))):
        return original(self, low, high)
    if self.d != 1:
        raise ValueError("integrate_box_1d() only handles 1D pdfs")
    from scipy.special import ndtr

    spread = np.sqrt(as_array(self.covariance)[0, 0])
    ends = [ndtr((as_array(v) - as_array(self.dataset)[0]) / spread) for v in (low, high)]
    return np.sum(as_array(self.weights) * (ends[1] - ends[0]))
