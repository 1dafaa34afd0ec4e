"""Sparse matrices as arguments and results, factors and operators in closures, iterative solves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as sl

import gradof

RNG = np.random.default_rng(3)
DENSE = np.where(RNG.random((5, 5)) < 0.5, RNG.normal(size=(5, 5)), 0.0) + 4 * np.eye(5)
X = RNG.normal(size=5)
FORMATS = ("csr", "csc", "coo", "bsr", "dia", "lil", "dok")


def _slope(f: Callable[[Any], Any], x: Any) -> Any:
    flat = [(f(x + d.reshape(x.shape)) - f(x - d.reshape(x.shape))) / 2e-6
            for d in np.eye(x.size) * 1e-6]  # fmt: skip
    return np.reshape(flat, x.shape)


PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "S @ x": lambda S, x: np.sum((S @ x) ** 2),
    "x @ S": lambda S, x: np.sum((x @ S) ** 3),
    "S.T @ x": lambda S, x: np.sum(np.sin(S.T @ (S @ x))),
    "S.dot": lambda S, x: S.dot(x) @ x,
    "S @ matrix": lambda S, x: np.sum((S @ np.outer(x, x)) ** 2),
    "multiply by a column": lambda S, x: S.multiply(x[:, None]).sum() ** 2,
    "multiply by a row": lambda S, x: np.sum((S.multiply(x[None, :]) @ x) ** 2),
    "scaled": lambda S, x: np.sum(((2.0 * S - S / 3.0) @ x) ** 2),
    "toarray": lambda S, x: np.sum(np.sin(S.toarray()) @ x),
    "diagonal": lambda S, x: np.sum(S.diagonal() * x**2),
    "sums": lambda S, x: np.sum(np.asarray(S.sum(axis=1)).reshape(-1) * x) + S.sum() * x[0],
    "data": lambda S, x: np.sum(S.tocsr().data ** 2) * x[0],
    "of two matrices": lambda S, x: np.sum((S @ (S.T * x[0])) @ x),
    "with an identity": lambda S, x: np.sum(((S + x[0] * sp.eye_array(5)) @ x) ** 2),
    "mean": lambda S, x: S.mean() * x[0] + np.sum(np.asarray(S.mean(axis=0)) * x),
    "shape and nnz": lambda S, x: np.sum((S @ x) ** 2) / S.shape[0] / S.nnz,
    "spsolve": lambda S, x: np.sum(sl.spsolve(S.tocsc(), x) ** 2),
    "splu": lambda S, x: np.sum(sl.splu(S.tocsc()).solve(x) ** 2),
}  # fmt: skip


@pytest.mark.cases(15)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("kind", ["array", "matrix"])
def test_gradients_by_vector_and_by_matrix(name: str, format_: str, kind: str) -> None:
    made: Any = getattr(sp, f"csr_{kind}")(DENSE).asformat(format_)
    f = PROGRAMS[name]
    compiled = gradof.value_and_grad(f, argnums=(0, 1))
    value, (by_matrix, by_vector) = compiled(made, X)
    np.testing.assert_allclose(value, f(made, X), rtol=1e-12)
    np.testing.assert_allclose(by_vector, _slope(lambda x: f(made, x), X), rtol=1e-5, atol=1e-6)
    assert type(by_matrix) is type(made)
    rows = made.tocsr()

    def of_data(data: Any) -> Any:
        again = type(rows)((data, rows.indices, rows.indptr), shape=rows.shape)
        return f(again.asformat(format_), X)

    want = type(rows)((_slope(of_data, rows.data), rows.indices, rows.indptr), shape=rows.shape)
    stored = by_matrix.toarray() * (DENSE != 0)  # a diagonal has places for its zeros, too
    np.testing.assert_allclose(stored, want.toarray(), rtol=1e-5, atol=1e-6)
    compiled((made * 2).asformat(format_), X)  # other elements, the same places
    assert compiled.cache_info().misses <= 2


def test_other_places_are_another_trace_and_elements_are_not() -> None:
    compiled = gradof.grad(lambda S, x: np.sum((S @ x) ** 2), argnums=1)
    np.testing.assert_allclose(sp.csr_array(DENSE) @ X, DENSE @ X)  # scipy remembers dtypes
    for scale in (1.0, 2.0, 3.0):
        S = sp.csr_array(DENSE * scale)
        np.testing.assert_allclose(compiled(S, X), 2 * S.T @ (S @ X), rtol=1e-12)
    assert compiled.cache_info().misses == 1
    S = sp.csr_array(np.tril(DENSE))
    np.testing.assert_allclose(compiled(S, X), 2 * S.T @ (S @ X), rtol=1e-12)
    assert compiled.cache_info().misses == 2


def test_a_matrix_in_a_dict_and_one_that_is_returned() -> None:
    made = {"S": sp.csc_matrix(DENSE), "b": X}

    def model(p: Any) -> Any:
        return {"twice": p["S"] * 2.0, "same": p["S"], "y": p["S"] @ p["b"]}

    for _ in range(2):
        found = gradof.differentiate(model)(made)
        np.testing.assert_allclose(found["twice"].toarray(), 2 * DENSE)
        np.testing.assert_allclose(found["same"].toarray(), DENSE)
        np.testing.assert_allclose(found["y"], DENSE @ X)
    assert all(sp.issparse(found[name]) for name in ("twice", "same"))


def test_a_primitive_takes_a_sparse_matrix() -> None:
    @gradof.primitive
    def solve(S: Any, b: Any) -> Any:
        return sl.spsolve(S, b)

    solve.defvjp(lambda g, y, S, b: (None, solve(S.T.tocsc(), g)))
    S = sp.csc_array(DENSE)
    found = gradof.grad(lambda S, b: np.sum(solve(S, b) ** 2), argnums=1)(S, X)
    want = _slope(lambda b: np.sum(np.linalg.solve(DENSE, b) ** 2), X)
    np.testing.assert_allclose(found, want, rtol=1e-6)


# --- objects --------------------------------------------------------------------------------------

MATRIX = sp.csc_matrix(DENSE)
SYMMETRIC = sp.csc_matrix(DENSE @ DENSE.T + np.eye(5))
LU = sl.splu(MATRIX)
SOLVE = sl.factorized(MATRIX)
ILU = sl.spilu(MATRIX, drop_tol=0.0)


class Difference(sl.LinearOperator):  # type: ignore[misc]
    """An operator of the user's own."""

    def __init__(self, n: int) -> None:
        super().__init__(np.dtype(np.float64), (n - 1, n))

    def _matvec(self, x: Any) -> Any:
        return x[1:] - x[:-1]

    def _rmatvec(self, y: Any) -> Any:
        return np.concatenate([-y[:1], y[:-1] - y[1:], y[-1:]])


OPERATOR = sl.LinearOperator(
    (5, 5), matvec=lambda v: MATRIX @ v, rmatvec=lambda v: MATRIX.T @ v, dtype=np.float64
)
DIFFERENCE = Difference(5)
PRECONDITIONER = sl.LinearOperator((5, 5), matvec=LU.solve, rmatvec=lambda v: LU.solve(v, "T"))
OBJECTS: dict[str, Callable[[Any], Any]] = {
    "a factor": lambda b: np.sum(LU.solve(b) ** 3),
    "its transpose": lambda b: np.sum(LU.solve(b, "T") ** 3),
    "several columns": lambda b: np.sum(LU.solve(np.stack([b, b**2], axis=1)) ** 2),
    "factorized": lambda b: np.sum(SOLVE(b) ** 3),
    "an incomplete factor": lambda b: np.sum(ILU.solve(b) ** 3),
    "an operator": lambda b: np.sum(np.sin(OPERATOR @ b)),
    "matvec and rmatvec": lambda b: np.sum(OPERATOR.rmatvec(OPERATOR.matvec(b)) ** 2),
    "its adjoint": lambda b: np.sum((OPERATOR.H @ b) ** 2),
    "a sum and a product": lambda b: np.sum(((OPERATOR + 2 * OPERATOR.T) @ b) ** 2),
    "an operator of one's own": lambda b: np.sum((DIFFERENCE @ b) ** 4),
    "its transpose's": lambda b: np.sum((DIFFERENCE.T @ (DIFFERENCE @ b) ** 2) ** 2),
    "matmat": lambda b: np.sum((OPERATOR @ np.outer(b, b)) ** 2),
    "aslinearoperator": lambda b: np.sum((sl.aslinearoperator(MATRIX) @ b) ** 2),
    "cg": lambda b: np.sum(sl.cg(SYMMETRIC, b, rtol=1e-13)[0] ** 3),
    "cg, preconditioned": lambda b: np.sum(
        sl.cg(SYMMETRIC, b, rtol=1e-13, M=sp.diags(1 / SYMMETRIC.diagonal()))[0] ** 3),
    "gmres": lambda b: np.sum(sl.gmres(OPERATOR, b, rtol=1e-13, M=PRECONDITIONER)[0] ** 3),
    "lgmres": lambda b: np.sum(sl.lgmres(MATRIX, b, rtol=1e-12)[0] ** 3),
    "minres": lambda b: np.sum(sl.minres(SYMMETRIC, b, rtol=1e-14)[0] ** 2),
}  # fmt: skip


@pytest.mark.cases(9)
@pytest.mark.parametrize("name", OBJECTS)
def test_objects_of_scipys_in_closures(name: str) -> None:
    f = OBJECTS[name]
    gradof.grad(lambda b: f(b))(X)  # scipy notes in a dict what dtypes it has met: a trace more
    compiled = gradof.value_and_grad(f)
    for b in (X, X * 2):
        value, slope = compiled(b)
        np.testing.assert_allclose(value, f(b), rtol=1e-9)
        np.testing.assert_allclose(slope, _slope(f, b), rtol=1e-5, atol=1e-6)
    gradient = gradof.grad(f)
    hessian = gradof.hessian(f)(X)
    columns = [(gradient(X + d) - gradient(X - d)) / 2e-5 for d in np.eye(5) * 1e-5]
    np.testing.assert_allclose(hessian, np.stack(columns, axis=1), rtol=1e-4, atol=1e-4)
    assert compiled.cache_info().misses == 1


def test_factors_and_operators_as_arguments() -> None:
    found = gradof.grad(lambda lu, b: np.sum(lu.solve(b) ** 2), argnums=1)(LU, X)
    np.testing.assert_allclose(found, 2 * LU.solve(LU.solve(X), "T"), rtol=1e-9)
    found = gradof.grad(lambda op, b: np.sum((op @ b) ** 2), argnums=1)(OPERATOR, X)
    np.testing.assert_allclose(found, 2 * DENSE.T @ (DENSE @ X), rtol=1e-9)


CONSTANT: dict[str, Callable[[Any], Any]] = {
    "times a vector": lambda x: (sp.csr_array(DENSE) * x).sum() ** 2,
    "multiply": lambda x: np.sum((sp.csc_matrix(DENSE).multiply(x) @ x) ** 2),
    "a scaled identity": lambda x: np.sum((sp.csr_array(DENSE) @ (x[0] * sp.eye_array(5))) @ x),
    "elements of both": lambda x: np.sum((x[0] * sp.csr_array(DENSE)).power(2) @ x),
}  # fmt: skip


@pytest.mark.parametrize("name", CONSTANT)
def test_constant_matrices_and_traced_factors(name: str) -> None:
    f = CONSTANT[name]
    value, slope = gradof.value_and_grad(f)(X)
    np.testing.assert_allclose(value, f(X), rtol=1e-12)
    np.testing.assert_allclose(slope, _slope(f, X), rtol=1e-5, atol=1e-6)


def test_an_operator_with_traced_parts() -> None:
    def f(w: Any) -> Any:
        scaled = sl.LinearOperator((5, 5), matvec=lambda v: w * (MATRIX @ v), dtype=np.float64)
        return np.sum((scaled @ (w**2)) ** 2)

    np.testing.assert_allclose(gradof.grad(f)(X), _slope(f, X), rtol=1e-5, atol=1e-6)


def test_matrices_whose_places_have_like_sums_are_told_apart() -> None:
    """Checksums that add bytes up took these for one matrix."""
    elements, x = np.array([1.0, 2.0, 3.0]), np.array([1.0, 10.0, 100.0, 1000.0, 10000.0])
    compiled = gradof.value_and_grad(lambda x, m: np.sum((m @ x) ** 2), 0)
    for columns in ([1, 2, 3], [2, 0, 4], [1, 2, 3]):
        matrix = sp.csr_array((elements, columns, [0, 1, 2, 3]), shape=(3, 5))
        value, gradient = compiled(x, matrix)
        np.testing.assert_allclose(value, np.sum((matrix @ x) ** 2))
        np.testing.assert_allclose(gradient, 2 * matrix.T @ (matrix @ x))


SOME = np.array([0, 2, 3])
PARTS: dict[str, Callable[[Any], Any]] = {
    "rows, then columns": lambda m: m[SOME][:, SOME] @ np.arange(1.0, 4.0),
    "a block": lambda m: m[np.ix_(SOME, SOME)].toarray() ** 2,
    "slices": lambda m: m[1:, :3] @ np.arange(1.0, 4.0),
    "elements": lambda m: m[2, 3] + m[0, 0],
    "a mask": lambda m: m[np.array([True, False, True, True])] @ np.arange(1.0, 5.0),
    "rows alone": lambda m: m.getrow(2).toarray() ** 2 + m[[0]].toarray(),
}


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("make", [sp.csr_matrix, sp.csc_matrix])
def test_parts_of_a_matrix_with_traced_elements(name: str, make: Any) -> None:
    row, column = np.array([0, 1, 2, 2, 3, 0]), np.array([1, 0, 2, 3, 3, 2])

    def f(x: Any) -> Any:
        return np.sum(PARTS[name](make((np.concatenate([x, x**2]), (row, column)), shape=(4, 4))))

    x = np.array([0.3, 0.7, 1.1])
    value, gradient = gradof.value_and_grad(f)(x)
    slope = [(f(x + e) - f(x - e)) / 2e-6 for e in np.eye(3) * 1e-6]
    np.testing.assert_allclose(value, f(x))
    np.testing.assert_allclose(gradient, slope, rtol=1e-6, atol=1e-8)


def test_matrices_of_the_functions_own() -> None:
    def fn(x: Any) -> Any:
        keys = sp.dok_array((3, 3))
        keys[0, 1] = 2.0
        drawn = sp.random(3, 3, 0.5, random_state=0)
        return keys @ x + sp.csr_array(np.eye(3)) @ x + drawn @ x

    x = np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(gradof.differentiate(fn)(x), fn(x))
