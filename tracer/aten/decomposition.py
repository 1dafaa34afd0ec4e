"""Inverses, solutions, determinants and factorisations of aten.

aten's ops return the pieces of a factorisation beside the result, for their own backward. Those
that the rules of `gradof.ops.decomposition` do not need are left out: reading one is an error.
"""

from __future__ import annotations

from gradof.ops.expr import Expr, F
from gradof.tracer.aten.registry import Call, aten

Pieces = tuple[Expr | None, ...]


@aten("linalg_inv_ex.default")
def inverse(c: Call, x: Expr, *, check_errors: bool = False) -> Pieces:
    return tuple(F.inv_ex.multiple(x, check_errors=check_errors))


@aten("_linalg_solve_ex.default")
def solve(
    c: Call, a: Expr, b: Expr, *, left: bool = True, check_errors: bool = False
) -> Pieces:
    vector = b.rank == 1 or (b.rank == a.rank - 1 and b.shape == a.shape[:-1])
    if vector:
        y = F.solve(a, b.reshape((*b.shape, 1)))
        return y.reshape(y.shape[:-1]), None, None, None
    y = F.solve(a, b) if left else F.solve(a.mT, b.mT).mT
    return y, None, None, None


@aten("linalg_cholesky_ex.default")
def cholesky(c: Call, x: Expr, *, upper: bool = False, check_errors: bool = False) -> Pieces:
    y, info = F.cholesky_ex.multiple(x.mT if upper else x, check_errors=check_errors)
    return (y.mT if upper else y), info


@aten("_linalg_det.default")
def det(c: Call, x: Expr) -> Pieces:
    return F.det(x), None, None


@aten("_linalg_slogdet.default")
def slogdet(c: Call, x: Expr) -> Pieces:
    sign, logabs = F.slogdet.multiple(x)
    return sign, logabs, None, None


@aten("_linalg_eigh.default")
def eigh(c: Call, x: Expr, UPLO: str = "L", compute_v: bool = True) -> Pieces:
    x = x if UPLO.upper() == "L" else x.mT
    values, vectors = F.eigh.multiple(x)
    return values, vectors


@aten("linalg_eig.default")
def eig(c: Call, x: Expr) -> Pieces:
    values, vectors = F.eig.multiple(x)
    return values, vectors


@aten("linalg_eigvals.default", "_linalg_eigvals.default")
def eigvals(c: Call, x: Expr) -> Expr:
    return F.eig.multiple(x)[0]
