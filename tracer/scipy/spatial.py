"""scipy.spatial: nearest neighbours, and distances by their Python code.

    d, i = KDTree(sites).query(x, k=2)      # i is found anew at each call; d has derivatives in x
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.black_box import call as call_black_box
from gradof.tracer.numpy.functions import as_array
from gradof.tracer.scipy.calls import scipy_function
from gradof.tracer.scipy.twins import through

through(*(f"scipy.spatial.{n}" for n in
          ("distance_matrix", "minkowski_distance", "minkowski_distance_p")))  # fmt: skip


@scipy_function("scipy.spatial.KDTree.query", at="scipy.spatial._kdtree.KDTree.query", raw=True)
def _query(
    original: Any, self: Any, x: Any, k: Any = 1, eps: Any = 0.0, p: Any = 2.0,
    distance_upper_bound: Any = np.inf, workers: int = 1,
) -> Any:  # fmt: skip
    if type(x) is not TracedArray:
        return original(self, x, k, eps, p, distance_upper_bound, workers)
    if np.any(np.isinf(self.boxsize if self.boxsize is not None else 0.0)) or (
        self.boxsize is not None and np.any(np.asarray(self.boxsize) > 0)
    ):
        raise TypeError("KDTree.query of traced values with boxsize")

    def found(at: Any) -> Any:
        return original(self, np.array(at), k, eps, p, distance_upper_bound, workers)[1]

    i = call_black_box(x.recorder, "scipy.spatial.KDTree.query", found, (x,), None, None)
    data = np.concatenate([np.asarray(self.data), np.full((1, self.m), np.inf)])  # none is there
    at = as_array(x).astype(np.float64)
    at = at[..., None, :] if i.ndim == at.ndim else at
    missing = np.equal(i, self.n)
    away = np.where(missing[..., None], 1.0, at - np.take(data, np.where(missing, 0, i), axis=0))
    size = np.abs(away)
    if p == np.inf:
        d = np.max(size, axis=-1)
    elif p == 1:
        d = np.sum(size, axis=-1)
    else:
        d = np.sum(size**p, axis=-1) ** (1.0 / p)
    return np.where(missing, np.inf, d), i
