"""More of square matrices: the exponential, LU without pivoting, the order pivots stand for.

Adjoints: A. Al-Mohy and N. Higham, "Computing the Frechet derivative of the matrix exponential"
(2009), formula (1.5); LU after S. Walter and L. Lehmann, "Algorithmic differentiation of linear
algebra functions" (2010).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradof.errors import InferenceError
from gradof.ir.attrs import Attr
from gradof.ir.types import I32, I64, TensorType, Type
from gradof.ops.expr import Expr, F
from gradof.ops.factor import eye_like
from gradof.ops.families import known_shape, tensor
from gradof.ops.registry import Family, op

Array = NDArray[Any]


def _infer_square(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    x = tensor(inputs[0])
    shape = known_shape(x)
    if len(shape) < 2 or shape[-1] != shape[-2] or x.dtype.kind != "float" or x.dtype.bits < 32:
        raise InferenceError(f"square matrices of f32 or f64 are due, not {x}")
    return (x,)


def _np_matrix_exp(x: Array) -> Array:
    from scipy.linalg import expm

    result: Array = expm(x).astype(x.dtype, copy=False) if x.size else x.copy()
    return result


def _matrix_exp_x(g: Expr, x: Expr) -> Expr:
    n, turned = x.shape[-1], x.mT
    top = F.cat(turned, g, dim=x.rank - 1)
    bottom = F.cat(turned * 0.0, turned, dim=x.rank - 1)
    whole = F.matrix_exp(F.cat(top, bottom, dim=x.rank - 2))
    rows = F.slice(whole, dim=x.rank - 2, start=0, stop=n, step=1)
    return F.slice(rows, dim=x.rank - 1, start=n, stop=2 * n, step=1)


op("matrix_exp(x) -> y", family=Family(_infer_square), numpy=_np_matrix_exp,
   torch="torch.linalg.matrix_exp", vjp={"x": _matrix_exp_x},
   doc="The gradient stands in the exponential of a block matrix of twice the size.")  # fmt: skip


def _np_lu(x: Array) -> Array:
    lu = x.copy()
    for k in range(lu.shape[-1] - 1):
        pivot = lu[..., k, None, k]
        # LAPACK leaves the column below a zero pivot as it is, which is zero in pivoted order
        lu[..., k + 1 :, k] /= np.where(pivot == 0, 1, pivot)
        lu[..., k + 1 :, k + 1 :] -= lu[..., k + 1 :, k, None] * lu[..., k, None, k + 1 :]
    return lu


def _lu_x(g: Expr, y: Expr) -> Expr:
    lower = F.tril(y, diagonal=-1) + eye_like(y.shape[-1], y)
    upper = F.triu(y, diagonal=0)
    inner = F.tril(lower.mT @ F.tril(g, diagonal=-1), diagonal=-1)
    inner = inner + F.triu(F.triu(g, diagonal=0) @ upper.mT, diagonal=0)
    right = F.solve_triangular(lower.mT, inner, lower=False)
    return F.solve_triangular(upper, right.mT, lower=False).mT


op("lu_unpivoted(x) -> y", family=Family(_infer_square), numpy=_np_lu, vjp={"x": _lu_x},
   doc="L below the diagonal (its ones left out), U above; of rows in order.")  # fmt: skip


def _infer_order(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    pivots = tensor(inputs[0])
    n = attrs["n"]
    if pivots.dtype.kind != "int" or not isinstance(n, int):
        raise InferenceError(f"pivots are integers, not {pivots}")
    return (TensorType(I64, (*known_shape(pivots)[:-1], n), pivots.device),)


def _np_order(pivots: Array, *, n: int) -> Array:
    order = np.broadcast_to(np.arange(n), (*pivots.shape[:-1], n)).copy()
    for at in np.ndindex(pivots.shape[:-1]):
        row = order[at]
        for i, j in enumerate(pivots[at] - 1):
            row[i], row[j] = row[j], row[i]
    return order


op("pivot_order(pivots; n) -> order", family=Family(_infer_order), numpy=_np_order,
   vjp={"pivots": None}, doc="LAPACK's row exchanges as the order of rows.")  # fmt: skip


def _infer_pivots(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    x = tensor(inputs[0])
    *batch, m, n = known_shape(x)
    if x.dtype.kind != "float" or x.dtype.bits < 32:
        raise InferenceError(f"matrices of f32 or f64 are due, not {x}")
    return (TensorType(I32, (*batch, min(m, n)), x.device),)


def _np_pivots(x: Array) -> Array:
    from scipy.linalg.lapack import get_lapack_funcs

    *batch, m, n = x.shape
    pivots = np.zeros((*batch, min(m, n)), np.int32)
    if pivots.size:
        (factor,) = get_lapack_funcs(("getrf",), (x,))
        for at in np.ndindex(tuple(batch)):
            pivots[at] = factor(x[at])[1] + 1
    return pivots


op("lu_pivots(x) -> pivots", family=Family(_infer_pivots), numpy=_np_pivots,
   torch="torch.linalg.lu_factor_ex({x})[1]", vjp={"x": None},
   doc="The row exchanges of an LU factorisation; a step of the matrix.")  # fmt: skip
