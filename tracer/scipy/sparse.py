"""scipy.sparse: products and systems, of matrices that are constant or have traced elements.

    S @ x                                     # of any format; S.tocsr() is read
    A = csr_array((values, (rows, columns)))  # values may be traced: A is a `TracedSparse` then
    spsolve(A, b), splu(A).solve(b), A.T @ x, A * 2.0, A + B, A.toarray()

The places of the elements are constants of the trace.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
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

    _rows: tuple[Any, Any, Any]  # elements, columns, ends of rows
    _shape: tuple[int, int]
    format: str

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
        return self._rows[0].dtype

    @property
    def nnz(self) -> int:
        """How many elements there are."""
        return len(self._rows[1])

    def _laid_out(self) -> tuple[Any, Any, Any]:
        """The elements in the order of the format, with their rows and columns."""
        data, column, indptr = self._rows
        row = row_of(indptr)
        if self.format in ("csr", "coo"):
            return data, row, np.asarray(column)
        if self.format != "csc":
            raise TypeError(f"argument: the elements of a {self.format} matrix of traced values")
        order = np.lexsort((row, column))
        return np.take(data, order), row[order], np.asarray(column)[order]

    @property
    def data(self) -> Any:
        """The elements."""
        return self._laid_out()[0]

    @property
    def row(self) -> Any:
        """The row of each element."""
        return self._laid_out()[1]

    @property
    def col(self) -> Any:
        """The column of each element."""
        return self._laid_out()[2]

    @property
    def indices(self) -> Any:
        """The column of each element; the row where columns are kept."""
        return self.row if self.format == "csc" else self.col

    @property
    def indptr(self) -> Any:
        """Where each row begins and ends, or each column."""
        if self.format == "csr":
            return self._rows[2]
        return np.searchsorted(self.col, np.arange(self._shape[1] + 1))

    def with_arrays(self, function: Callable[[Any], Any]) -> Any:
        """As scipy's own, of what the function gives for the elements."""
        data, indices, indptr = self._rows
        made = library().csr_array((function(data), indices, indptr), shape=self._shape)
        return _class_of_format(self, self.format)(made)

    def _of(self, data: Any) -> Any:
        return from_rows((data, *self._rows[1:], self._shape), _class_of_format(self, "csr"))

    def asformat(self, format: str | None, copy: bool = False) -> Any:
        """In another format."""
        if format is None or format == self.format:
            return self
        return from_rows((*self._rows, self._shape), _class_of_format(self, format))

    def tocsr(self, copy: bool = False) -> Any:
        """By rows."""
        return self.asformat("csr")

    def tocsc(self, copy: bool = False) -> Any:
        """By columns."""
        return self.asformat("csc")

    def tocoo(self, copy: bool = False) -> Any:
        """By places."""
        return self.asformat("coo")

    def tolil(self, copy: bool = False) -> Any:
        """By rows: what it is written for is not traced."""
        return self.asformat("csr")

    todia = tobsr = todok = tolil

    def copy(self) -> Any:
        """Itself: its elements are never written to."""
        return self

    def transpose(self, axes: Any = None, copy: bool = False) -> Any:
        """The transpose."""
        data, column, indptr = self._rows
        like = _class_of_format(self, {"csr": "csc", "csc": "csr"}.get(self.format, "csr"))
        return from_places(data, column, row_of(indptr), self._shape[::-1], like)

    def toarray(self, order: Any = None, out: Any = None) -> Any:
        """A dense array."""
        if out is not None:
            raise TypeError("argument out")
        m, n = self._shape
        data, column, indptr = self._rows
        flat = np.zeros(m * n, self.dtype) + 0.0 * np.sum(data)
        flat[row_of(indptr) * n + column] = data
        return np.reshape(flat, (m, n))

    todense = toarray

    def __getitem__(self, index: Any) -> Any:
        """Rows, columns, blocks and elements, which scipy finds by their numbers."""
        data, column, indptr = self._rows
        cls = _class_of_format(self, "csr")
        numbers = cls((np.arange(1, len(column) + 1), column, indptr), shape=self._shape)
        found = numbers[index]
        if not library().issparse(found):
            places = np.asarray(found)  # 0 where there is no element
            return np.where(places > 0, np.take(data, np.maximum(places, 1) - 1), 0.0)
        if found.ndim != 2:
            raise TypeError("argument: an index that gives a sparse vector")
        rows = found.tocsr()
        like = _class_of_format(self, self.format)
        place = np.take(data, rows.data - 1)
        m, n = map(int, rows.shape)
        return from_rows((place, rows.indices, rows.indptr, (m, n)), like)

    def getrow(self, i: int) -> Any:
        """One row."""
        return self[[i], :]

    def getcol(self, i: int) -> Any:
        """One column."""
        return self[:, [i]]

    def diagonal(self, k: int = 0) -> Any:
        """A diagonal."""
        return np.diagonal(self.toarray(), k)

    def mean(self, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        """The mean of all places, or of those along an axis."""
        m, n = self._shape
        return self.sum(axis) / (m * n if axis is None else (m, n)[axis])

    def sum(self, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        """The sum of elements, or of those along an axis."""
        if dtype is not None or out is not None:
            raise TypeError("argument dtype or out of a sum")
        if axis is None:
            return np.sum(self._rows[0])
        ones = np.ones(self._shape[axis % 2], self.dtype)
        found = product(self, ones, turned=axis % 2 == 0)
        return found if isinstance(self, library().sparray) else np.expand_dims(found, axis)

    def __matmul__(self, other: Any) -> Any:
        return product(self, other)

    dot = __matmul__

    def __rmatmul__(self, other: Any) -> Any:
        if library().issparse(other):
            return product(other, self)
        return np.swapaxes(product(self, np.swapaxes(as_array(other), -1, 0), turned=True), -1, 0)

    def multiply(self, other: Any) -> Any:
        """Element by element; by a dense array, which is broadcast, or a number."""
        return self._of(self._rows[0] * self._beside(other))

    def __mul__(self, other: Any) -> Any:
        if isinstance(self, library().sparray) or not np.ndim(other):
            return self.multiply(other)
        return product(self, other)

    def __rmul__(self, other: Any) -> Any:
        return self.__rmatmul__(other) if np.ndim(other) and not isinstance(
            self, library().sparray) else self.multiply(other)  # fmt: skip

    def __truediv__(self, other: Any) -> Any:
        return self._of(self._rows[0] / self._beside(other))

    def _beside(self, other: Any) -> Any:
        """The elements of a dense array at the places of ours."""
        return beside(rows_of(self), other)

    def __neg__(self) -> Any:
        return self._of(-self._rows[0])

    def __add__(self, other: Any) -> Any:
        return added(self, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return added(self, -other)

    def __rsub__(self, other: Any) -> Any:
        return added(-self, other)

    def power(self, n: Any) -> Any:
        """Powers of the elements."""
        return self._of(self._rows[0] ** n)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise TypeError(f"argument: .{name} of a sparse matrix with traced elements")


@functools.lru_cache(maxsize=32)
def traced_class(cls: type) -> type:
    """One of scipy's classes with the methods above: an object of the first can become one."""
    own = {k: v for k, v in vars(TracedSparse).items() if k not in ("__dict__", "__weakref__")}
    return type(cls.__name__, (cls,), own | {"__module__": "scipy.sparse"})


def is_traced_sparse(value: Any) -> bool:
    """Whether a value is a sparse matrix with traced elements."""
    return hasattr(type(value), "with_arrays")


def from_rows(rows: Rows, like: Any = None) -> Any:
    """A matrix with traced elements."""
    cls = library().csr_array if like is None else like
    made: Any = object.__new__(traced_class(cls))
    *made._rows, made._shape = rows
    return made


def _class_of_format(matrix: Any, format_: str) -> Any:
    """scipy's class of a format, an array's or a matrix's as the given one's."""
    kind = "array" if isinstance(matrix, library().sparray) else "matrix"
    return getattr(library(), f"{format_}_{kind}")


def kind_of(*given: Any) -> Any:
    """The class by rows of what is made of some: an array's if any is, as scipy decides."""
    is_array = any(isinstance(g, library().sparray) for g in given)
    return library().csr_array if is_array else library().csr_matrix


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
        return (*matrix._rows, matrix.shape)
    rows = matrix.tocsr()
    return rows.data, rows.indices, rows.indptr, tuple(map(int, rows.shape))  # type: ignore[return-value]


def product(matrix: Any, x: Any, turned: bool = False) -> Any:
    """A matrix or its transpose, times a vector or a matrix of columns."""
    data, indices, indptr, shape = rows_of(matrix)
    if library().issparse(x):
        return _sparse_product(matrix.transpose() if turned else matrix, x)
    x = as_array(x)
    columns = np.reshape(x, (x.shape[0], -1))
    y = emit("sparse_mm", data, indices, indptr, columns, shape=shape, turned=turned)
    return np.reshape(y, (y.shape[0], *x.shape[1:]))


def _sparse_product(left: Any, right: Any) -> Any:
    """The product of two sparse matrices: each element with a row of the other."""
    (a, column, ends, (m, _)), (b, other, starts, (_, n)) = rows_of(left), rows_of(right)
    counts = np.diff(starts)[column]
    first = np.repeat(np.arange(len(column)), counts)
    start = np.repeat(np.asarray(starts)[:-1][column] - (np.cumsum(counts) - counts), counts)
    second = np.arange(len(first)) + start
    data = np.take(as_array(a), first) * np.take(as_array(b), second)
    return from_places(data, row_of(ends)[first], np.asarray(other)[second], (m, n), kind_of(left))


def beside(rows: Rows, other: Any) -> Any:
    """The elements of a dense array at the places of a sparse matrix; a number as it is."""
    if library().issparse(other):
        raise TypeError("argument: a product of elements of two sparse matrices, one traced")
    if not np.ndim(other):
        return other
    _, column, indptr, shape = rows
    return np.broadcast_to(as_array(other), shape)[row_of(indptr), np.asarray(column)]


def added(left: Any, right: Any) -> Any:
    """The sum of two sparse matrices."""
    if not library().issparse(right):
        raise TypeError("argument: a sum of sparse and dense")
    parts = [rows_of(s) for s in (left, right)]
    data = np.concatenate([as_array(p[0]) for p in parts])
    row, column = map(np.concatenate, zip(*((row_of(p[2]), p[1]) for p in parts), strict=True))
    decides = right if left.format == "dia" and right.format != "dia" else left
    return from_places(data, row, column, parts[0][3], kind_of(decides))


# --- products -------------------------------------------------------------------------------------

_BASE = "scipy.sparse._base._spbase"


def _has_axes(other: Any) -> bool:
    """Whether it is no number, by which scipy's matrices are scaled."""
    return bool(library().issparse(other) or np.ndim(other))


def _matmul(original: Any, self: Any, other: Any) -> Any:
    traced = (holds_traced(other) or is_traced_sparse(self)) and _has_axes(other)
    return product(self, other) if traced else original(self, other)


def _rmatmul(original: Any, self: Any, other: Any) -> Any:
    if not (holds_traced(other) or is_traced_sparse(self)) or not _has_axes(other):
        return original(self, other)
    x = as_array(other)
    return product(self, x, True) if x.ndim == 1 else np.swapaxes(
        product(self, np.swapaxes(x, 0, 1), True), 0, 1)  # fmt: skip


for _at in ("_base._spbase", "_coo._coo_base"):
    for _side, _name, _record in (
        ("_matmul", "S @ x", _matmul), ("_rmatmul", "x @ S", _rmatmul)
    ):  # fmt: skip
        scipy_function(
            f"scipy.sparse: {_name}" if "base._" in _at else f"scipy.sparse: coo {_side}",
            at=f"scipy.sparse.{_at}.{_side}_dispatch", raw=True,
        )(_record)


def _sum(name: str) -> None:
    @scipy_function(f"scipy.sparse: S {name} S", at=f"{_BASE}.{name}", raw=True)
    def summed(original: Any, self: Any, other: Any) -> Any:
        if is_traced_sparse(other):
            return added(self, -other if name == "__sub__" else other)
        return original(self, other)


_sum("__add__")
_sum("__sub__")
