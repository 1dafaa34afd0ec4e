"""scipy.sparse: products and systems, of matrices that are constant or have traced elements.

    S @ x                                     # of any format; S.tocsr() is read
    A = csr_array((values, (rows, columns)))  # values may be traced: A is a `TracedSparse` then
    spsolve(A, b), splu(A).solve(b), A.T @ x, A * 2.0, A + B, A.toarray()

The places of the elements are constants of the trace.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradof.tracer.numpy.functions import as_array
from gradof.tracer.scipy.calls import holds_traced, scipy_function
from gradof.tracer.scipy.emit import emit

Rows = tuple[Any, Any, Any, tuple[int, int]]  # elements, columns, ends of rows, shape


def library() -> Any:
    """scipy.sparse."""
    return importlib.import_module("scipy.sparse")


class TracedSparse:
    """What traced elements make of a sparse matrix: rows, whichever format it was made in."""

    data: Any
    indices: Any
    indptr: Any
    _shape: tuple[int, int]

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self._shape

    @property
    def T(self) -> Any:
        """The transpose."""
        return self.transpose()

    @property
    def dtype(self) -> Any:
        """The dtype of the elements."""
        return self.data.dtype

    @property
    def nnz(self) -> int:
        """How many elements there are."""
        return len(self.indices)

    def with_arrays(self, function: Callable[[Any], Any]) -> Any:
        """As scipy's own, of what the function gives for the elements."""
        rows = (function(self.data), self.indices, self.indptr)
        made = library().csr_array(rows, shape=self._shape)
        return made.asformat(getattr(self, "format", "csr"))

    def _of(self, data: Any) -> Any:
        return from_rows((data, self.indices, self.indptr, self._shape))

    def tocsr(self, copy: bool = False) -> Any:
        """Itself: all formats are one."""
        return self

    tocsc = tocoo = asformat = tolil = todia = tocsr

    def copy(self) -> Any:
        """Itself: its elements are never written to."""
        return self

    def transpose(self, axes: Any = None, copy: bool = False) -> Any:
        """The transpose."""
        row, column = row_of(self.indptr), self.indices
        return from_places(self.data, column, row, self._shape[::-1])

    def toarray(self, order: Any = None, out: Any = None) -> Any:
        """A dense array."""
        if out is not None:
            raise TypeError("argument out")
        m, n = self._shape
        flat = np.zeros(m * n, self.dtype) + 0.0 * np.sum(self.data)
        places = row_of(self.indptr) * n + self.indices
        flat[places] = self.data
        return np.reshape(flat, (m, n))

    todense = toarray

    def diagonal(self, k: int = 0) -> Any:
        """A diagonal."""
        return np.diagonal(self.toarray(), k)

    def sum(self, axis: Any = None) -> Any:
        """The sum of elements, or of those along an axis."""
        if axis is None:
            return np.sum(self.data)
        m, n = self._shape
        ones = np.ones(m if axis % 2 == 0 else n, self.dtype)
        return product(self, ones, turned=axis % 2 == 0)

    def __matmul__(self, other: Any) -> Any:
        return product(self, other)

    dot = __matmul__

    def __rmatmul__(self, other: Any) -> Any:
        return np.swapaxes(product(self, np.swapaxes(as_array(other), -1, 0), turned=True), -1, 0)

    def __mul__(self, other: Any) -> Any:
        if np.ndim(other):
            return product(self, other)
        return self._of(self.data * other)

    __rmul__ = __mul__
    multiply = __mul__

    def __truediv__(self, other: Any) -> Any:
        return self._of(self.data / other)

    def __neg__(self) -> Any:
        return self._of(-self.data)

    def __add__(self, other: Any) -> Any:
        return added(self, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return added(self, -other)

    def __rsub__(self, other: Any) -> Any:
        return added(-self, other)

    def power(self, n: Any) -> Any:
        """Powers of the elements."""
        return self._of(self.data**n)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise TypeError(f"argument: .{name} of a sparse matrix with traced elements")


@functools.lru_cache(maxsize=32)
def _traced_class(cls: type) -> type:
    """One of scipy's classes with the methods above: an object of the first can become one."""
    own = {k: v for k, v in vars(TracedSparse).items() if k not in ("__dict__", "__weakref__")}
    return type(cls.__name__, (cls,), own | {"__module__": "scipy.sparse"})


def is_traced_sparse(value: Any) -> bool:
    """Whether a value is a sparse matrix with traced elements."""
    return hasattr(type(value), "with_arrays")


def from_rows(rows: Rows, like: Any = None) -> Any:
    """A matrix with traced elements."""
    cls = library().csr_array if like is None else like
    made: Any = object.__new__(_traced_class(cls))
    made.data, made.indices, made.indptr, made._shape = rows
    return made


def row_of(indptr: Any) -> Any:
    """The row of each element."""
    return np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))


def sorted_rows(data: Any, row: Any, column: Any, shape: Any) -> Rows:
    """Elements in rows; those of one place are added up."""
    m, n = shape
    keys = np.asarray(row, np.int64) * n + np.asarray(column, np.int64)
    places, inverse = np.unique(keys, return_inverse=True)
    if len(places) == len(keys):
        order = np.argsort(keys)
        data = data if (order == np.arange(len(order))).all() else np.take(data, order)
    else:
        total = np.zeros(len(places), data.dtype) + 0.0 * np.sum(data)
        np.add.at(total, inverse, data)
        data = total
    ends = np.searchsorted(places, np.arange(m + 1) * n)
    return data, places % n, ends.astype(np.int64), (int(m), int(n))


def from_places(data: Any, row: Any, column: Any, shape: Any, like: Any = None) -> Any:
    """A sparse matrix of elements at places."""
    return from_rows(sorted_rows(data, row, column, shape), like)


def rows_of(matrix: Any) -> Rows:
    """Any sparse matrix in rows."""
    if is_traced_sparse(matrix):
        return matrix.data, matrix.indices, matrix.indptr, matrix.shape
    rows = matrix.tocsr()
    return rows.data, rows.indices, rows.indptr, tuple(map(int, rows.shape))  # type: ignore[return-value]


def product(matrix: Any, x: Any, turned: bool = False) -> Any:
    """A matrix or its transpose, times a vector or a matrix of columns."""
    data, indices, indptr, shape = rows_of(matrix)
    if library().issparse(x):
        raise TypeError("argument: a product of two sparse matrices, one with traced elements")
    x = as_array(x)
    columns = np.reshape(x, (x.shape[0], -1))
    y = emit("sparse_mm", data, indices, indptr, columns, shape=shape, turned=turned)
    return np.reshape(y, (y.shape[0], *x.shape[1:]))


def added(left: Any, right: Any) -> Any:
    """The sum of two sparse matrices."""
    if not library().issparse(right):
        raise TypeError("argument: a sum of sparse and dense")
    parts = [rows_of(s) for s in (left, right)]
    data = np.concatenate([as_array(p[0]) for p in parts])
    row = np.concatenate([row_of(p[2]) for p in parts])
    return from_places(data, row, np.concatenate([p[1] for p in parts]), parts[0][3])


# --- products -------------------------------------------------------------------------------------

_BASE = "scipy.sparse._base._spbase"


@scipy_function("scipy.sparse: S @ x", at=f"{_BASE}._matmul_dispatch")
def _matmul(self: Any, other: Any) -> Any:
    return product(self, other)


@scipy_function("scipy.sparse: x @ S", at=f"{_BASE}._rmatmul_dispatch")
def _rmatmul(self: Any, other: Any) -> Any:
    x = as_array(other)
    return product(self, x, True) if x.ndim == 1 else np.swapaxes(
        product(self, np.swapaxes(x, 0, 1), True), 0, 1)  # fmt: skip


for _side, _record in (("_matmul", _matmul), ("_rmatmul", _rmatmul)):
    _at = f"scipy.sparse._coo._coo_base.{_side}_dispatch"
    scipy_function(f"scipy.sparse: coo {_side}", at=_at)(_record)


def _sum(name: str) -> None:
    @scipy_function(f"scipy.sparse: S {name} S", at=f"{_BASE}.{name}", raw=True)
    def summed(original: Any, self: Any, other: Any) -> Any:
        if is_traced_sparse(other):
            return added(self, -other if name == "__sub__" else other)
        return original(self, other)


_sum("__add__")
_sum("__sub__")

# --- matrices with traced elements ----------------------------------------------------------------


def _constructor(path: str) -> None:
    @scipy_function(f"scipy.sparse: {path}", at=f"scipy.sparse.{path}.__init__", raw=True)
    def made(
        original: Any, self: Any, arg1: Any, shape: Any = None, dtype: Any = None,
        copy: bool = False, **options: Any,
    ) -> None:  # fmt: skip
        if not holds_traced(arg1):
            original(self, arg1, shape, dtype, copy, **options)
            return
        rows = _rows_from(arg1, shape, self.format)
        cls: Any = type(self)
        self.__class__ = _traced_class(cls)
        self.data, self.indices, self.indptr, self._shape = rows


def _rows_from(arg1: Any, shape: Any, kind: str) -> Rows:
    if is_traced_sparse(arg1):
        return rows_of(arg1)
    if isinstance(arg1, tuple) and len(arg1) == 2:
        data, (row, column) = arg1
        if shape is None:
            shape = (int(np.max(row)) + 1, int(np.max(column)) + 1)
        return sorted_rows(as_array(data), row, column, shape)
    if isinstance(arg1, tuple) and len(arg1) == 3:
        data, indices, indptr = arg1
        major, minor = row_of(np.asarray(indptr)), np.asarray(indices)
        if shape is None:
            ends = (len(indptr) - 1, int(np.max(minor)) + 1)
            shape = ends if kind == "csr" else ends[::-1]
        row, column = (major, minor) if kind == "csr" else (minor, major)
        return sorted_rows(as_array(data), row, column, shape)
    raise TypeError("a sparse matrix of a dense traced array has places that depend on values; "
                    "give its elements and their places")  # fmt: skip


_constructor("_compressed._cs_matrix")
_constructor("_coo._coo_base")


def _diagonals(name: str, offsets_default: Any) -> None:
    @scipy_function(f"scipy.sparse.{name}", raw=True)
    def diagonals(
        original: Any, diagonals: Any, /, offsets: Any = offsets_default, shape: Any = None,
        **options: Any,
    ) -> Any:  # fmt: skip
        if not holds_traced(diagonals):
            return original(diagonals, offsets=offsets, shape=shape, **options)
        if np.ndim(offsets) == 0:
            first = as_array(diagonals)
            diagonals, offsets = [first if first.ndim == 1 else first[0]], [offsets]
        lines = [np.atleast_1d(as_array(d)) for d in diagonals]
        if shape is None:
            n = len(lines[0]) + abs(int(offsets[0]))
            shape = (n, n)
        data, row, column = [], [], []
        for line, k in zip(lines, map(int, offsets), strict=True):
            count = min(shape[0] + min(k, 0), shape[1] - max(k, 0))
            data.append(np.broadcast_to(line, (count,)) if len(line) == 1 else line[:count])
            row.append(np.arange(count) + max(-k, 0))
            column.append(np.arange(count) + max(k, 0))
        return from_places(np.concatenate(data), np.concatenate(row), np.concatenate(column), shape)


_diagonals("diags", 0)
_diagonals("diags_array", 0)


def _combined(name: str) -> Callable[[Callable[..., Any]], Any]:
    def register(record: Callable[..., Any]) -> Any:
        @scipy_function(f"scipy.sparse.{name}", raw=True)
        def combined(original: Any, *args: Any, **kwargs: Any) -> Any:
            traced = any(map(_has_traced, (*args, *kwargs.values())))
            return record(*args) if traced else original(*args, **kwargs)

        return combined

    return register


def _has_traced(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_has_traced, value))
    return is_traced_sparse(value)


@_combined("kron")
def _kron(A: Any, B: Any) -> Any:
    (a, j, p, s), (b, k, q, t) = map(rows_of, map(_sparse, (A, B)))
    data = np.reshape(as_array(a)[:, None] * as_array(b)[None, :], -1)
    row = (row_of(p)[:, None] * t[0] + row_of(q)).reshape(-1)
    column = (np.asarray(j)[:, None] * t[1] + np.asarray(k)).reshape(-1)
    return from_places(data, row, column, (s[0] * t[0], s[1] * t[1]))


def _sparse(value: Any) -> Any:
    return value if library().issparse(value) else library().csr_array(value)


def _stacked(blocks: Sequence[Any], axis: int) -> Any:
    parts = [rows_of(_sparse(b)) for b in blocks]
    starts = np.cumsum([0, *(p[3][axis] for p in parts)])
    row = [row_of(p[2]) + (s if axis == 0 else 0) for p, s in zip(parts, starts, strict=False)]
    column = [np.asarray(p[1]) + (s if axis == 1 else 0)
              for p, s in zip(parts, starts, strict=False)]  # fmt: skip
    shape = (int(starts[-1]), parts[0][3][1]) if axis == 0 else (parts[0][3][0], int(starts[-1]))
    data = np.concatenate([as_array(p[0]) for p in parts])
    return from_places(data, np.concatenate(row), np.concatenate(column), shape)


_combined("vstack")(lambda blocks: _stacked(blocks, 0))
_combined("hstack")(lambda blocks: _stacked(blocks, 1))
