"""scipy.sparse: how matrices with traced elements are made.

    csr_array((values, (rows, columns))), diags([v, w], [0, 1]), kron(A, B), vstack([A, B])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.functions import as_array
from gradof.tracer.scipy.calls import holds_traced, scipy_function
from gradof.tracer.scipy.sparse import (
    Rows,
    beside,
    from_places,
    from_rows,
    is_traced_sparse,
    kind_of,
    library,
    row_of,
    rows_of,
    sorted_rows,
    traced_class,
)


def _constructor(path: str) -> None:
    @scipy_function(f"scipy.sparse: {path}", at=f"scipy.sparse.{path}.__init__", raw=True)
    def made(
        original: Any, self: Any, arg1: Any, shape: Any = None, dtype: Any = None,
        copy: bool = False, **options: Any,
    ) -> None:  # fmt: skip
        if type(arg1) is TracedArray and arg1.is_constant:  # `np.eye(n)` of the function's own
            arg1 = arg1.plain()
        if not holds_traced(arg1):
            original(self, arg1, shape, dtype, copy, **options)
            return
        rows = _rows_from(arg1, shape, self.format)
        cls: Any = type(self)
        self.__class__ = traced_class(cls)
        *self._rows, self._shape = rows


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
        like = library().csr_array if name.endswith("_array") else library().csr_matrix
        place = np.concatenate(row), np.concatenate(column)
        return from_places(np.concatenate(data), *place, shape, like)


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
    return from_places(data, row, column, (s[0] * t[0], s[1] * t[1]), kind_of(A, B))


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
    return from_places(data, np.concatenate(row), np.concatenate(column), shape, kind_of(*blocks))


_combined("vstack")(lambda blocks: _stacked(blocks, 0))
_combined("hstack")(lambda blocks: _stacked(blocks, 1))


def _scaled(path: str) -> None:
    """Elements of a constant matrix times traced ones."""

    @scipy_function(f"scipy.sparse: {path}", at=f"scipy.sparse.{path}", raw=True)
    def scaled(original: Any, self: Any, other: Any) -> Any:
        if is_traced_sparse(self) or not holds_traced(other):
            return original(self, other)
        rows = rows_of(self)
        kind = "array" if isinstance(self, library().sparray) else "matrix"
        data = rows[0] * beside(rows, other)
        return from_rows((data, *rows[1:]), getattr(library(), f"csr_{kind}"))


for _class in ("_base._spbase", "_compressed._cs_matrix", "_dia._dia_base"):
    _scaled(f"{_class}.multiply")
for _class in ("_data._data_matrix", "_dia._dia_base", "_lil._lil_base", "_dok._dok_base"):
    _scaled(f"{_class}._mul_scalar")
