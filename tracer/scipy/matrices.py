"""scipy.linalg: eigenvalues, singular values, functions of matrices, matrix equations."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradof.tracer.numpy.functions import as_array
from gradof.tracer.scipy.calls import scipy_function
from gradof.tracer.scipy.emit import emit
from gradof.tracer.scipy.linalg import dense_of_bands, real_only, symmetric, triangular


def _swap(a: Any) -> Any:
    return np.swapaxes(a, -1, -2)


# --- factorisations -------------------------------------------------------------------------------


def _eigh_of(
    a: Any, b: Any, lower: bool, kind: int, subset: Any, driver: str | None = None
) -> tuple[Any, Any]:
    a = symmetric(real_only(a), lower)
    if b is None:
        w, v = emit("eigh_by", a, driver=driver or ("lower" if lower else "upper"))
    elif kind == 1:
        factor = np.linalg.cholesky(symmetric(real_only(b), lower))
        half = triangular(factor, a, lower=True)
        whole = triangular(factor, _swap(half), lower=True)
        w, y = np.linalg.eigh((whole + _swap(whole)) * 0.5)
        v = triangular(_swap(factor), y, lower=False)
    else:
        raise TypeError(f"argument type={kind}")
    if subset is not None:
        first, last = map(int, subset)
        w, v = w[..., first : last + 1], v[..., first : last + 1]
    return w, v


@scipy_function("scipy.linalg.eigh")
def _eigh(
    a: Any, b: Any = None, *, lower: bool = True, eigvals_only: bool = False,
    overwrite_a: Any = None, overwrite_b: Any = None, type: int = 1, check_finite: Any = None,
    subset_by_index: Any = None, subset_by_value: Any = None, driver: Any = None,
) -> Any:  # fmt: skip
    if subset_by_value is not None:
        raise TypeError("argument subset_by_value")
    w, v = _eigh_of(a, b, lower, type, subset_by_index)
    return w if eigvals_only else (w, v)


@scipy_function("scipy.linalg.eigvalsh")
def _eigvalsh(
    a: Any, b: Any = None, *, lower: bool = True, overwrite_a: Any = None, overwrite_b: Any = None,
    type: int = 1, check_finite: Any = None, subset_by_index: Any = None,
    subset_by_value: Any = None, driver: Any = None,
) -> Any:  # fmt: skip
    if subset_by_value is not None:
        raise TypeError("argument subset_by_value")
    return _eigh_of(a, b, lower, type, subset_by_index)[0]


@scipy_function("scipy.linalg.eigh_tridiagonal")
def _eigh_tridiagonal(
    d: Any, e: Any, eigvals_only: bool = False, select: str = "a", select_range: Any = None,
    check_finite: Any = None, tol: float = 0.0, lapack_driver: str = "auto",
) -> Any:  # fmt: skip
    if select != "a":
        raise TypeError(f"argument select={select!r}")
    w, v = _eigh_of(
        np.diag(as_array(d)) + np.diag(as_array(e), -1), None, True, 1, None, "tridiagonal"
    )
    return w if eigvals_only else (w, v)


@scipy_function("scipy.linalg.eigvalsh_tridiagonal")
def _eigvalsh_tridiagonal(
    d: Any, e: Any, select: str = "a", select_range: Any = None, check_finite: Any = None,
    tol: float = 0.0, lapack_driver: str = "auto",
) -> Any:  # fmt: skip
    return _eigh_tridiagonal(d, e, True, select)


@scipy_function("scipy.linalg.eigvals_banded")
def _eigvals_banded(
    a_band: Any, lower: bool = False, overwrite_a_band: Any = None, select: str = "a",
    select_range: Any = None, check_finite: Any = None,
) -> Any:  # fmt: skip
    if select != "a":
        raise TypeError(f"argument select={select!r}")
    return _eigh_of(dense_of_bands(real_only(a_band), lower), None, True, 1, None)[0]


@scipy_function("scipy.linalg.svd")
def _svd(
    a: Any, full_matrices: bool = True, compute_uv: bool = True, overwrite_a: Any = None,
    check_finite: Any = None, lapack_driver: str = "gesdd",
) -> Any:  # fmt: skip
    if lapack_driver != "gesdd":
        raise TypeError(f"argument lapack_driver={lapack_driver!r}")
    svd: Any = np.linalg.svd
    return svd(real_only(a), full_matrices, compute_uv)


@scipy_function("scipy.linalg.eigvals")
def _eigvals(
    a: Any, b: Any = None, overwrite_a: Any = None, check_finite: Any = None,
    homogeneous_eigvals: bool = False,
) -> Any:  # fmt: skip
    return _eig(a, b, False, False, homogeneous_eigvals=homogeneous_eigvals)


@scipy_function("scipy.linalg.eig")
def _eig(
    a: Any, b: Any = None, left: bool = False, right: bool = True, overwrite_a: Any = None,
    overwrite_b: Any = None, check_finite: Any = None, homogeneous_eigvals: bool = False,
) -> Any:  # fmt: skip
    if b is not None or left or homogeneous_eigvals:
        raise TypeError("argument b, left or homogeneous_eigvals")
    w, v = np.linalg.eig(as_array(a))
    if np.iscomplexobj(v) and not np.iscomplexobj(a) and bool(np.all(np.imag(w) == 0)):
        v = np.real(v)  # numpy 2.5 leaves that to its caller
    return (w * (1.0 + 0.0j), v) if right else w * (1.0 + 0.0j)


@scipy_function("scipy.linalg.svdvals")
def _svdvals(a: Any, overwrite_a: Any = None, check_finite: Any = None) -> Any:
    return np.linalg.svdvals(real_only(a))


@scipy_function("scipy.linalg.diagsvd")
def _diagsvd(s: Any, M: int, N: int) -> Any:
    square = np.diag(as_array(s))
    return np.pad(square, ((0, M - len(square)), (0, N - len(square))))


@scipy_function("scipy.linalg.qr")
def _qr(
    a: Any, overwrite_a: Any = None, lwork: Any = None, mode: str = "full",
    pivoting: bool = False, check_finite: Any = None,
) -> Any:  # fmt: skip
    a = real_only(a)
    m, n = a.shape[-2:]
    if pivoting or mode == "raw" or (m > n and mode != "economic"):
        raise TypeError(f"argument mode={mode!r} or pivoting, whose result is not unique")
    q, r = np.linalg.qr(a)
    return (r,) if mode == "r" else (q, r)


@scipy_function("scipy.linalg.polar")
def _polar(a: Any, side: str = "right") -> Any:
    a = real_only(a)
    w, s, vh = np.linalg.svd(a, full_matrices=False)
    p = _swap(vh) @ (s[..., None] * vh) if side == "right" else (w * s[..., None, :]) @ _swap(w)
    return w @ vh, p


@scipy_function("scipy.linalg.orthogonal_procrustes")
def _orthogonal_procrustes(A: Any, B: Any, check_finite: Any = None) -> Any:
    u, w, vt = np.linalg.svd(_swap(_swap(real_only(B)) @ real_only(A)))
    return u @ vt, np.sum(w)


@scipy_function("scipy.linalg.subspace_angles")
def _subspace_angles(A: Any, B: Any) -> Any:
    qa, qb = (np.linalg.svd(real_only(x), full_matrices=False)[0] for x in (A, B))
    inner = qa.T @ qb
    cosines = np.linalg.svdvals(inner)
    rest = (qb - qa @ inner) if qa.shape[1] >= qb.shape[1] else (qa - qb @ inner.T)
    sines = np.clip(np.linalg.svdvals(rest), -1.0, 1.0)
    near = cosines**2 >= 0.5
    small = np.arcsin(np.where(near, sines[: len(cosines)], 0.0))
    large = np.arccos(np.where(near, 0.5, np.clip(cosines[::-1], -1.0, 1.0)))
    return np.where(near, small, large)


@scipy_function("scipy.linalg.pinv")
def _pinv(
    a: Any, *, atol: Any = None, rtol: Any = None, return_rank: bool = False,
    check_finite: Any = None,
) -> Any:  # fmt: skip
    a = real_only(a)
    if atol is not None:
        raise TypeError("argument atol")
    cut = max(a.shape[-2:]) * np.finfo(a.dtype).eps if rtol is None else float(rtol)
    y = np.linalg.pinv(a, cut)
    return (y, np.linalg.matrix_rank(a, rtol=cut)) if return_rank else y


@scipy_function("scipy.linalg.pinvh")
def _pinvh(
    a: Any, atol: Any = None, rtol: Any = None, lower: bool = True, return_rank: bool = False,
    check_finite: Any = None,
) -> Any:  # fmt: skip
    return _pinv(symmetric(real_only(a), lower), atol=atol, rtol=rtol, return_rank=return_rank)


@scipy_function("scipy.linalg.norm")
def _norm(
    a: Any, ord: Any = None, axis: Any = None, keepdims: bool = False, check_finite: Any = None
) -> Any:
    return np.linalg.norm(a, ord, axis, keepdims)


# --- functions of matrices ------------------------------------------------------------------------


def _of_matrix(op: str, A: Any) -> Any:
    """A function of a matrix; a + ib is the real matrix of [a, -b] above [b, a]."""
    A = as_array(A)
    if A.dtype.kind != "c":
        return emit(op, A)
    n, a, b = A.shape[-1], A.real, A.imag
    above, below = np.concatenate([a, -b], axis=-1), np.concatenate([b, a], axis=-1)
    found = emit(op, np.concatenate([above, below], axis=-2))[..., :n]
    return found[..., :n, :] + 1j * found[..., n:, :]


@scipy_function("scipy.linalg.expm")
def expm(A: Any) -> Any:
    """The exponential."""
    return _of_matrix("matrix_exp", A)


def _principal(op: str, function: Any, A: Any) -> Any:
    """A function with a cut along the negative numbers: scipy's result for these is complex.

    The op gives nan there. Which of the two it is, is a branch of the trace. Raises TypeError for a
    matrix that its eigenvectors do not give back, as one with a Jordan block.
    """
    A = as_array(A)
    found = _of_matrix(op, A)
    if not np.any(np.isnan(found)) or np.any(np.isnan(A)):
        return found
    values, vectors = np.linalg.eig(A)
    back = np.linalg.inv(vectors)
    error = np.abs(np.matmul(vectors * values[..., None, :], back) - A)
    most = float(np.sqrt(np.finfo(A.dtype).eps)) * np.max(np.abs(A), axis=(-2, -1), keepdims=True)
    if not np.all(error <= most):
        raise TypeError("an argument without a basis of eigenvectors, whose result is complex")
    return np.matmul(vectors * function(values + 0j)[..., None, :], back)


@scipy_function("scipy.linalg.logm")
def _logm(A: Any, disp: Any = None) -> Any:
    if disp is not None and not disp:
        raise TypeError("argument disp=False, which asks for an estimate of the error")
    return _principal("matrix_log", np.log, A)


@scipy_function("scipy.linalg.sqrtm")
def _sqrtm(A: Any, disp: Any = None, blocksize: Any = None) -> Any:
    if disp is not None and not disp:
        raise TypeError("argument disp=False, which asks for an estimate of the error")
    return _principal("matrix_sqrt", np.sqrt, A)


@scipy_function("scipy.linalg.fractional_matrix_power")
def _fractional_matrix_power(A: Any, t: Any) -> Any:
    return expm(t * _principal("matrix_log", np.log, A))


def _turned(a: Any) -> tuple[Any, Any]:
    """cos and sin of a matrix, from the exponential of a real one of twice the size."""
    a = real_only(a)
    n = a.shape[-1]
    zero = np.zeros_like(a)
    whole = expm(np.concatenate([np.concatenate([zero, -a], axis=-1),
                                 np.concatenate([a, zero], axis=-1)], axis=-2))  # fmt: skip
    return whole[..., :n, :n], whole[..., n:, :n]


@scipy_function("scipy.linalg.cosm")
def _cosm(A: Any) -> Any:
    return _turned(A)[0]


@scipy_function("scipy.linalg.sinm")
def _sinm(A: Any) -> Any:
    return _turned(A)[1]


@scipy_function("scipy.linalg.tanm")
def _tanm(A: Any) -> Any:
    return np.linalg.solve(*_turned(A))


@scipy_function("scipy.linalg.coshm")
def _coshm(A: Any) -> Any:
    return 0.5 * (expm(A) + expm(-A))


@scipy_function("scipy.linalg.sinhm")
def _sinhm(A: Any) -> Any:
    return 0.5 * (expm(A) - expm(-A))


@scipy_function("scipy.linalg.tanhm")
def _tanhm(A: Any) -> Any:
    return np.linalg.solve(_coshm(A), _sinhm(A))


@scipy_function("scipy.linalg.signm")
def _signm(A: Any, disp: Any = None) -> Any:
    root = emit("matrix_sqrt", np.matmul(real_only(A), A))
    return np.linalg.solve(root, A)


@scipy_function("scipy.linalg.expm_frechet")
def _expm_frechet(
    A: Any, E: Any, method: Any = None, compute_expm: bool = True, check_finite: Any = None
) -> Any:
    a, e = real_only(A), real_only(E)
    n = a.shape[-1]
    whole = expm(np.concatenate([np.concatenate([a, e], axis=-1),
                                 np.concatenate([np.zeros_like(a), a], axis=-1)], axis=-2))
    step = whole[..., :n, n:]
    return (whole[..., :n, :n], step) if compute_expm else step


# --- matrix equations -----------------------------------------------------------------------------


@scipy_function("scipy.linalg.solve_sylvester")
def _solve_sylvester(a: Any, b: Any, q: Any) -> Any:
    return emit("sylvester", real_only(a), real_only(b), real_only(q))


@scipy_function("scipy.linalg.solve_continuous_lyapunov")
def _solve_continuous_lyapunov(a: Any, q: Any) -> Any:
    a = real_only(a)
    return emit("sylvester", a, _swap(a), real_only(q))


@scipy_function("scipy.linalg.solve_discrete_lyapunov")
def _solve_discrete_lyapunov(a: Any, q: Any, method: Any = None) -> Any:
    a, q = real_only(a), real_only(q)
    left = np.eye(a.shape[0] ** 2, dtype=a.dtype) - np.kron(a, a)
    return np.reshape(np.linalg.solve(left, np.ravel(q)), q.shape)


@scipy_function("scipy.linalg.solve_continuous_are")
def _solve_continuous_are(
    a: Any, b: Any, q: Any, r: Any, e: Any = None, s: Any = None, balanced: bool = True
) -> Any:
    if e is not None or s is not None:
        raise TypeError("argument e or s")
    a, b, q, r = map(real_only, (a, b, q, r))
    return emit("care", a, b @ np.linalg.solve(r, _swap(b)), q)


@scipy_function("scipy.linalg.solve_discrete_are")
def _solve_discrete_are(
    a: Any, b: Any, q: Any, r: Any, e: Any = None, s: Any = None, balanced: bool = True
) -> Any:
    if e is not None or s is not None:
        raise TypeError("argument e or s")
    a, b, q, r = map(real_only, (a, b, q, r))
    return emit("dare", a, b @ np.linalg.solve(r, _swap(b)), q)
