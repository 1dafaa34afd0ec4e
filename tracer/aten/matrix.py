"""Adaptors for factorisations of rectangular matrices, exponentials and triangular solves."""

from __future__ import annotations

import torch

from gradof.errors import InferenceError
from gradof.ops.expr import Expr, F
from gradof.ops.factor import eye_like
from gradof.tracer.aten.registry import Call, aten

Pieces = tuple[Expr | None, ...]


def _floats(x: Expr) -> None:
    if x.dtype.kind != "float":
        raise InferenceError(f"a factorisation of {x.type}")


@aten("_linalg_svd.default")
def svd(
    c: Call, x: Expr, full_matrices: bool = False, compute_uv: bool = True,
    *, driver: str | None = None,
) -> Pieces:  # fmt: skip
    _floats(x)
    if not compute_uv:
        return None, F.svdvals(x), None
    u, s, vh = F.svd.multiple(x)
    if full_matrices:  # what completes the bases is not unique, and has no gradient in torch
        more_u, more_vh = (F.detach(part) for part in F.svd_rest.multiple(F.detach(x)))
        u = F.cat(u, more_u, dim=x.rank - 1)
        vh = F.cat(vh, more_vh, dim=x.rank - 2)
    return u, s, vh


@aten("linalg_qr.default")
def qr(c: Call, x: Expr, mode: str = "reduced") -> Pieces:
    _floats(x)
    m, n = x.shape[-2:]
    if mode == "r" or (mode == "complete" and m > n):
        raise InferenceError(f"qr in mode {mode!r}, which has no gradient")
    if m >= n:
        q, r = F.qr.multiple(x)
        return q, r
    q, left = F.qr.multiple(F.slice(x, dim=x.rank - 1, start=0, stop=m, step=1))
    right = q.mT @ F.slice(x, dim=x.rank - 1, start=m, stop=n, step=1)
    return q, F.cat(left, right, dim=x.rank - 1)


@aten("linalg_matrix_exp.default")
def matrix_exp(c: Call, x: Expr) -> Expr:
    return F.matrix_exp(x)


@aten("cholesky.default")
def cholesky(c: Call, x: Expr, upper: bool = False) -> Expr:
    _floats(x)
    y = F.cholesky(x.mT if upper else x)
    return y.mT if upper else y


@aten("cholesky_solve.default")
def cholesky_solve(c: Call, b: Expr, factor: Expr, upper: bool = False) -> Expr:
    _floats(b)
    lower = factor.mT if upper else factor
    return _solved(lower.mT, _solved(lower, b, upper=False), upper=True)


@aten("cholesky_inverse.default")
def cholesky_inverse(c: Call, factor: Expr, upper: bool = False) -> Expr:
    triangle = _triangle(factor, upper, False)
    turned = (F.conj(triangle) if triangle.dtype.kind == "complex" else triangle).mT
    return F.inv(turned @ triangle if upper else triangle @ turned)


def _triangle(x: Expr, upper: bool, unit: bool) -> Expr:
    if not unit:
        return F.triu(x, diagonal=0) if upper else F.tril(x, diagonal=0)
    strict = F.triu(x, diagonal=1) if upper else F.tril(x, diagonal=-1)
    return strict + eye_like(x.shape[-1], x)


@aten("linalg_solve_triangular.default")
def solve_triangular(
    c: Call, a: Expr, b: Expr, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Expr:
    _floats(a)
    triangle = _triangle(a, upper, unitriangular)
    return _solved(triangle, b, upper) if left else _solved(triangle.mT, b.mT, not upper).mT


def _solved(a: Expr, b: Expr, upper: bool) -> Expr:
    """The system of one triangle of a, which torch solves whether it is singular or not."""
    return F.solve_triangular(a, b, lower=not upper)


@aten("triangular_solve.default")
def old_triangular_solve(
    c: Call, b: Expr, a: Expr, upper: bool = True, transpose: bool = False,
    unitriangular: bool = False,
) -> Pieces:  # fmt: skip
    _floats(a)
    triangle = _triangle(a, upper, unitriangular)
    whole = F.expand(a, shape=c.type(1).shape) if a.shape != c.type(1).shape else a
    turned = triangle.mT if transpose else triangle
    return _solved(turned, b, upper != transpose), F.copy(whole)


@aten("linalg_pinv.atol_rtol_tensor")
def pinv(
    c: Call, x: Expr, *, atol: Expr | None = None, rtol: Expr | None = None,
    hermitian: bool = False,
) -> Expr:  # fmt: skip
    _floats(x)
    small = max(x.shape[-2:], default=0) * torch.finfo(c.results[0].dtype).eps
    if atol is not None and _number(c.kwargs["atol"], atol) != 0.0:
        raise InferenceError("an absolute tolerance")
    if rtol is not None:
        small = _number(c.kwargs["rtol"], rtol)
    if hermitian:  # one triangle is read, and the gradient is that of the whole
        lower = F.tril(F.detach(x), diagonal=0)
        x = x + (lower + F.tril(lower, diagonal=-1).mT - F.detach(x))
    return F.pinv(x, rcond=small)


def _number(tensor: torch.Tensor, x: Expr) -> float:
    """A tolerance that is the same at every call."""
    node = x.value.node
    if node is None or any(v.node is None for v in node.inputs) or tensor.dim():
        raise InferenceError("a tolerance that is computed from the arguments")
    return float(tensor)


# --- LU -----------------------------------------------------------------------------------------


def _reordered(x: Expr, order: Expr) -> Expr:
    """Rows of (stacks of) matrices in another order."""
    index = order.reshape((*order.shape, 1)).expand((*order.shape, x.shape[-1]))
    return F.gather(x, index, dim=x.rank - 2)


def _factored(x: Expr, pivots: Expr) -> Expr:
    """L and U in one matrix, the rows exchanged as the pivots say."""
    m, n = x.shape[-2:]
    k, rows, columns = min(m, n), x.rank - 2, x.rank - 1
    x = _reordered(x, F.pivot_order(pivots, n=m))

    def part(x: Expr, dim: int, start: int, stop: int) -> Expr:
        return F.slice(x, dim=dim, start=start, stop=stop, step=1)

    square = F.lu_unpivoted(part(part(x, rows, 0, k), columns, 0, k))
    if m > n:
        # LAPACK leaves the column below a zero pivot as it is
        stays = (eye_like(k, square) != 0.0) & (square == 0.0)
        pivoted = F.where(stays, 1.0, square)
        below = _solved(pivoted.mT, part(x, rows, k, m).mT, upper=False).mT
        return F.cat(square, below, dim=rows)
    if n > m:
        unit = _triangle(square, False, True)
        return F.cat(square, _solved(unit, part(x, columns, k, n), upper=False),
                     dim=columns)  # fmt: skip
    return square


def _unpacked(lu: Expr) -> tuple[Expr, Expr]:
    m, n = lu.shape[-2:]
    k = min(m, n)
    left = F.slice(lu, dim=lu.rank - 1, start=0, stop=k, step=1)
    top = F.slice(lu, dim=lu.rank - 2, start=0, stop=k, step=1)
    ones = F.expand(F.slice(eye_like(m, lu), dim=1, start=0, stop=k, step=1), shape=left.shape)
    return F.tril(left, diagonal=-1) + ones, F.triu(top, diagonal=0)


def _permutation(order: Expr, like: Expr) -> Expr:
    """The matrix P with x = P x[order]."""
    eye = eye_like(order.shape[-1], like)
    return F.index(eye, order, dims=(0,)).mT


@aten("linalg_lu_factor_ex.default")
def lu_factor(c: Call, x: Expr, *, pivot: bool = True, check_errors: bool = False) -> Pieces:
    _floats(x)
    if not pivot:
        raise InferenceError("lu_factor without pivots")
    pivots = F.lu_pivots(F.detach(x))
    lu = _factored(x, pivots)
    k = min(x.shape[-2:])
    if not k:
        return lu, pivots, None
    diagonal = F.detach(F.diagonal(lu, dim1=x.rank - 2, dim2=x.rank - 1, offset=0))
    bad = (diagonal == 0.0).cast(c.type(1).dtype)
    first = F.argmax(bad, dim=bad.rank - 1, keepdims=False) + 1
    any_bad = F.amax(bad, dims=(bad.rank - 1,), keepdims=False)
    return lu, pivots, first.cast(c.type(2).dtype) * any_bad.cast(c.type(2).dtype)


@aten("linalg_lu.default")
def lu(c: Call, x: Expr, *, pivot: bool = True) -> Pieces:
    _floats(x)
    if not pivot:
        raise InferenceError("lu without pivots")
    pivots = F.lu_pivots(F.detach(x))
    lower, upper = _unpacked(_factored(x, pivots))
    return _permutation(F.pivot_order(pivots, n=x.shape[-2]), x), lower, upper


@aten("lu_unpack.default")
def lu_unpack(
    c: Call, lu: Expr, pivots: Expr, unpack_data: bool = True, unpack_pivots: bool = True
) -> Pieces:
    _floats(lu)
    if not unpack_data or not unpack_pivots:
        raise InferenceError("lu_unpack of one part only")
    lower, upper = _unpacked(lu)
    return _permutation(F.pivot_order(pivots, n=lu.shape[-2]), lu), lower, upper


@aten("linalg_lu_solve.default")
def lu_solve(
    c: Call, lu: Expr, pivots: Expr, b: Expr, *, left: bool = True, adjoint: bool = False
) -> Expr:
    _floats(lu)
    lower, upper = _triangle(lu, False, True), _triangle(lu, True, False)
    order = F.pivot_order(pivots, n=lu.shape[-1])
    if not left:  # x a = b is a^T x^T = b^T
        b, adjoint = b.mT, not adjoint
    batch = tuple(c.type().shape or ())[:-2]
    b = F.expand(b, shape=(*batch, *b.shape[-2:]))
    order = F.expand(order, shape=(*batch, order.shape[-1]))
    if adjoint:
        y = _solved(lower.mT, _solved(upper.mT, b, upper=False), upper=True)
        _, back = F.sort.multiple(order, dim=order.rank - 1, descending=False, stable=True)
        x = _reordered(y, back)
    else:
        x = _solved(upper, _solved(lower, _reordered(b, order), upper=False), upper=True)
    return x if left else x.mT


