"""Products and systems with a sparse matrix in rows: elements, their columns, and where rows end.

>>> F.sparse_mm(data, indices, indptr, x, shape=(m, n), turned=False)    # S @ x, or S^T @ x turned
>>> F.sparse_solve(data, indices, indptr, b, n=n, turned=False)          # S^-1 b

The elements are operands like any other; the places are integers. The lowerings need scipy.

Note [Factors that are kept]
A backward solves with the transpose of what its forward has factored. The last two factorisations
are kept with the elements they are of, and are taken where these are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradof.errors import InferenceError
from gradof.ir import forks
from gradof.ir.attrs import Attr
from gradof.ir.types import I64, TensorType, Type
from gradof.ops.expr import Expr, F, Like
from gradof.ops.families import known_shape, tensor
from gradof.ops.registry import Family, op

Array = NDArray[Any]
KEPT = 2


def _sparse() -> Any:
    import scipy.sparse.linalg

    return scipy.sparse


def _operands(inputs: Sequence[Type]) -> tuple[TensorType, TensorType]:
    data, indices, indptr, x = map(tensor, inputs)
    whole = all(t.dtype.kind == "int" for t in (indices, indptr))
    if data.dtype != x.dtype or x.dtype.kind != "float" or x.dtype.bits < 32 or not whole:
        raise InferenceError("floats of one dtype, and integers for their places, are due")
    if len(known_shape(x)) != 2 or known_shape(data) != known_shape(indices):
        raise InferenceError(f"a matrix of columns is due, not {x}")
    return data, x


def _infer_mm(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    _, x = _operands(inputs)
    shape = attrs["shape"]
    if not isinstance(shape, tuple) or len(shape) != 2:
        raise InferenceError("the shape of a matrix is due")
    rows, columns = shape[::-1] if attrs["turned"] else shape
    if known_shape(x)[0] != columns or not isinstance(rows, int):
        raise InferenceError(f"a matrix of shape {shape} cannot be multiplied with {x}")
    return (x.with_shape((rows, known_shape(x)[1])),)


def _matrix(data: Array, indices: Array, indptr: Array, shape: Any) -> Any:
    return _sparse().csr_array((data, indices, indptr), shape=shape, copy=False)


def _np_mm(
    data: Array, indices: Array, indptr: Array, x: Array, *, shape: Any, turned: bool
) -> Array:
    matrix = _matrix(data, indices, indptr, shape)
    result: Array = np.ascontiguousarray((matrix.T if turned else matrix) @ x)
    return result


def _by_element(
    left: Expr, right: Expr, indices: Expr, indptr: Expr, data_like: Like
) -> Expr:
    """For each element of the matrix, the product of rows of two others: left by row."""
    rows = F.csr_rows(indptr, nnz=data_like.shape[0])
    picked = F.index_select(left, rows, dim=0)
    return (picked * F.index_select(right, indices, dim=0)).sum((1,))


def _mm_data(
    g: Expr, data_like: Like, indices: Expr, indptr: Expr, x: Expr, turned: bool
) -> Expr:
    left, right = (x, g) if turned else (g, x)
    return _by_element(left, right, indices, indptr, data_like)


def _mm_x(
    g: Expr, data: Expr, indices: Expr, indptr: Expr, shape: Attr, turned: bool
) -> Expr:
    return F.sparse_mm(data, indices, indptr, g, shape=shape, turned=not turned)


op("sparse_mm(data, indices, indptr, x; shape, turned) -> y", family=Family(_infer_mm),
   numpy=_np_mm, traits={"linear"},
   vjp={"data": _mm_data, "indices": None, "indptr": None, "x": _mm_x},
   doc="A sparse matrix, or its transpose, times a dense one.")


def _infer_rows(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    indptr, nnz = tensor(inputs[0]), attrs["nnz"]
    if indptr.dtype.kind != "int" or not isinstance(nnz, int):
        raise InferenceError("where the rows end, and how many elements there are, is due")
    return (TensorType(I64, (nnz,), indptr.device),)


def _np_rows(indptr: Array, *, nnz: int) -> Array:
    return np.repeat(np.arange(len(indptr) - 1), np.diff(indptr)).astype(np.int64)


op("csr_rows(indptr; nnz) -> rows", family=Family(_infer_rows), numpy=_np_rows,
   vjp={"indptr": None}, doc="The row of each element.")

# --- systems ------------------------------------------------------------------------------------


def _infer_solve(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    _, b = _operands(inputs)
    if known_shape(b)[0] != attrs["n"]:
        raise InferenceError(f"a system of {attrs['n']} equations has no right-hand sides {b}")
    return (b,)


_FACTORS: list[tuple[tuple[Array, Array, Array], Any]] = []
_LOCK = forks.lock()


def _factor(data: Array, indices: Array, indptr: Array) -> Any:
    """The factorisation of a matrix; see Note [Factors that are kept]."""
    given = data, indices, indptr
    with _LOCK:
        kept = list(_FACTORS)
    for arrays, found in kept:
        if all(a.dtype == b.dtype and np.array_equal(a, b)
               for a, b in zip(arrays, given, strict=True)):  # fmt: skip
            return found
    n = len(indptr) - 1
    made = _sparse().linalg.splu(_matrix(data, indices, indptr, (n, n)).tocsc())
    with _LOCK:
        _FACTORS.insert(0, (tuple(np.array(a) for a in given), made))  # type: ignore[arg-type]
        del _FACTORS[KEPT:]
    return made


def _np_solve(
    data: Array, indices: Array, indptr: Array, b: Array, *, n: int, turned: bool
) -> Array:
    if not b.size:
        return b.copy()
    trans = "T" if turned else "N"
    result: Array = _factor(data, indices, indptr).solve(np.ascontiguousarray(b), trans=trans)
    return np.ascontiguousarray(result, b.dtype)


def _solve_b(
    g: Expr, data: Expr, indices: Expr, indptr: Expr, n: int, turned: bool
) -> Expr:
    return F.sparse_solve(data, indices, indptr, g, n=n, turned=not turned)


def _solve_data(
    g: Expr, data: Expr, data_like: Like, indices: Expr, indptr: Expr, y: Expr, n: int,
    turned: bool,
) -> Expr:  # fmt: skip
    w = _solve_b(g, data, indices, indptr, n, turned)
    left, right = (y, w) if turned else (w, y)
    return -_by_element(left, right, indices, indptr, data_like)


op("sparse_solve(data, indices, indptr, b; n, turned) -> y", family=Family(_infer_solve),
   numpy=_np_solve,
   vjp={"data": _solve_data, "indices": None, "indptr": None, "b": _solve_b},
   doc="The solution of a sparse system, or of its transpose, by SuperLU.")
