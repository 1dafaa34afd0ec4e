"""scipy.sparse.linalg: direct solves."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.functions import as_array
from gradof.tracer.scipy.calls import scipy_function
from gradof.tracer.scipy.emit import emit
from gradof.tracer.scipy.sparse import (
    from_rows,
    is_traced_sparse,
    library,
    row_of,
    rows_of,
    sorted_rows,
)


def solved(matrix: Any, b: Any, turned: bool = False) -> Any:
    """The solution of a system with a sparse matrix."""
    if library().issparse(b):
        raise TypeError("argument b that is sparse")
    data, indices, indptr, shape = rows_of(matrix)
    b = as_array(b)
    columns = np.reshape(b, (b.shape[0], -1))
    y = emit("sparse_solve", data, indices, indptr, columns, n=shape[0], turned=turned)
    return np.reshape(y, b.shape)


@scipy_function("scipy.sparse.linalg.spsolve")
def _spsolve(A: Any, b: Any, permc_spec: Any = None, use_umfpack: Any = True) -> Any:
    return solved(A, b)


@scipy_function("scipy.sparse.linalg.spsolve_triangular")
def _spsolve_triangular(
    A: Any, b: Any, lower: bool = True, overwrite_A: Any = None, overwrite_b: Any = None,
    unit_diagonal: bool = False,
) -> Any:  # fmt: skip
    if unit_diagonal:
        raise TypeError("argument unit_diagonal")
    data, indices, indptr, shape = rows_of(A)
    row = row_of(indptr)
    kept = np.flatnonzero(row >= indices if lower else row <= indices)
    part = np.take(data, kept) if isinstance(data, TracedArray) else data[kept]
    return solved(from_rows(sorted_rows(part, row[kept], np.asarray(indices)[kept], shape)), b)


class _Factor:
    """What splu gives while a trace runs: solves may be of traced right-hand sides."""

    def __init__(self, matrix: Any, factor: Callable[[], Any]) -> None:
        self._matrix, self._factor = matrix, factor

    def solve(self, rhs: Any, trans: str = "N") -> Any:
        """As SuperLU's."""
        if isinstance(rhs, TracedArray) or is_traced_sparse(self._matrix):
            return solved(self._matrix, rhs, turned=trans != "N")
        return self._factor().solve(rhs, trans)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._factor(), name)


@scipy_function("scipy.sparse.linalg.splu", raw=True)
def _splu(original: Any, A: Any, *args: Any, **kwargs: Any) -> Any:
    return _Factor(A, functools.cache(lambda: original(A, *args, **kwargs)))


@scipy_function("scipy.sparse.linalg.factorized", raw=True)
def _factorized(original: Any, A: Any) -> Any:
    return _Factor(A, functools.cache(
        lambda: importlib.import_module("scipy.sparse.linalg").splu(A.tocsc()))).solve
