"""scipy.linalg: systems, factorisations, eigenvalues."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradof.tracer.numpy.functions import as_array
from gradof.tracer.scipy.calls import scipy_function
from gradof.tracer.scipy.emit import emit


def _swap(a: Any) -> Any:
    return np.swapaxes(a, -1, -2)


def real_only(a: Any) -> Any:
    """The array, of which the adaptor has rules for real numbers alone."""
    a = as_array(a)
    if a.dtype.kind == "c":
        raise TypeError("argument with complex numbers")
    return a


def symmetric(a: Any, lower: bool) -> Any:
    """The symmetric matrix of which one triangle is given."""
    n = a.shape[-1]
    below = np.tril(a) if lower else _swap(np.triu(a))
    return below + _swap(below) - below * np.eye(n, dtype=a.dtype)


def _as_column(a: Any, b: Any) -> tuple[Any, bool]:
    vector = np.ndim(b) == 1 and np.ndim(a) >= 2
    return (b[:, None] if vector else b), vector


def triangular(a: Any, b: Any, lower: bool, unit: bool = False) -> Any:
    """a^-1 b of one triangle, for vectors too."""
    a, b = real_only(a), real_only(b)
    if unit:
        eye = np.eye(a.shape[-1], dtype=a.dtype)
        a = a * (1 - eye) + eye
    right, vector = _as_column(a, b)
    y = emit("solve_triangular", a, right, lower=bool(lower))
    return y[..., 0] if vector else y


# --- systems --------------------------------------------------------------------------------------


@scipy_function("scipy.linalg.inv")
def _inv(
    a: Any, overwrite_a: Any = None, check_finite: Any = None, *, assume_a: Any = None,
    lower: bool = False,
) -> Any:  # fmt: skip
    return np.linalg.inv(_assumed(as_array(a), assume_a, lower))


@scipy_function("scipy.linalg.det")
def _det(a: Any, overwrite_a: Any = None, check_finite: Any = None) -> Any:
    return np.linalg.det(a)


def _assumed(a: Any, kind: Any, lower: bool) -> Any:
    """The matrix that is meant, of which only a part may be read."""
    if kind in (None, "gen", "general"):
        return a
    if kind in ("sym", "symmetric", "pos", "positive definite", "her", "hermitian"):
        return symmetric(real_only(a), lower)
    if kind in ("upper triangular", "lower triangular"):
        return np.tril(a) if kind.startswith("lower") else np.triu(a)
    if kind == "diagonal":
        return a * np.eye(a.shape[-1], dtype=a.dtype)
    if kind == "tridiagonal":
        return np.triu(np.tril(a, 1), -1)
    raise TypeError(f"argument assume_a={kind!r}")


@scipy_function("scipy.linalg.solve")
def _solve(
    a: Any, b: Any, lower: bool = False, overwrite_a: Any = None, overwrite_b: Any = None,
    check_finite: Any = None, assume_a: Any = None, transposed: bool = False,
) -> Any:  # fmt: skip
    a = _assumed(as_array(a), assume_a, lower)
    right, vector = _as_column(a, as_array(b))
    y = np.linalg.solve(_swap(a) if transposed else a, right)
    return y[..., 0] if vector else y


_TRANS: dict[Any, bool] = {0: False, "N": False, 1: True, "T": True, 2: True, "C": True}


def _turned(trans: Any) -> bool:
    return _TRANS[trans.upper() if isinstance(trans, str) else trans]


@scipy_function("scipy.linalg.solve_triangular")
def _solve_triangular(
    a: Any, b: Any, trans: Any = 0, lower: bool = False, unit_diagonal: bool = False,
    overwrite_b: Any = None, check_finite: Any = None,
) -> Any:  # fmt: skip
    turned = _turned(trans)
    a = as_array(a)
    return triangular(_swap(a) if turned else a, b, bool(lower) != turned, unit_diagonal)


@scipy_function("scipy.linalg.cholesky")
def _cholesky(a: Any, lower: bool = False, overwrite_a: Any = None, check_finite: Any = None
              ) -> Any:  # fmt: skip
    a = real_only(a)
    return np.linalg.cholesky(a, upper=not lower)


@scipy_function("scipy.linalg.cho_factor")
def _cho_factor(a: Any, lower: bool = False, overwrite_a: Any = None, check_finite: Any = None
                ) -> Any:  # fmt: skip
    c = _cholesky(a, lower)
    batch = np.shape(a)[:-2]
    flag = np.full(batch, bool(lower)) if batch else lower
    return c + (np.triu(a, 1) if lower else np.tril(a, -1)), flag


@scipy_function("scipy.linalg.cho_solve")
def _cho_solve(
    c_and_lower: Any, b: Any, overwrite_b: Any = None, check_finite: Any = None
) -> Any:
    c, lower = c_and_lower
    c, lower = real_only(c), bool(np.all(lower))
    half = triangular(c if lower else _swap(c), b, lower=True)
    return triangular(_swap(c) if lower else c, half, lower=False)


@scipy_function("scipy.linalg.lu_factor")
def _lu_factor(a: Any, overwrite_a: Any = None, check_finite: Any = None) -> Any:
    a = real_only(a)
    n = _square(a, "lu_factor")
    pivots = emit("lu_pivots", a)
    order = emit("pivot_order", pivots, n=n)
    rows = np.take_along_axis(a, order[..., None], axis=-2)
    return emit("lu_unpivoted", rows), pivots - 1


@scipy_function("scipy.linalg.lu_solve")
def _lu_solve(
    lu_and_piv: Any, b: Any, trans: Any = 0, overwrite_b: Any = None, check_finite: Any = None
) -> Any:
    lu, piv = lu_and_piv
    lu, b = real_only(lu), real_only(b)
    order = emit("pivot_order", as_array(piv) + 1, n=lu.shape[-1])
    right, vector = _as_column(lu, b)
    if _turned(trans):
        half = triangular(_swap(lu), right, lower=True)
        whole = triangular(_swap(lu), half, lower=False, unit=True)
        y = np.take_along_axis(whole, np.argsort(order, axis=-1)[..., None], axis=-2)
    else:
        moved = np.take_along_axis(right, order[..., None], axis=-2)
        y = triangular(lu, triangular(lu, moved, lower=True, unit=True), lower=False)
    return y[..., 0] if vector else y


def _square(a: Any, name: str) -> int:
    if a.shape[-1] != a.shape[-2]:
        raise TypeError(f"argument of {name} that is not square")
    return int(a.shape[-1])


@scipy_function("scipy.linalg.lu")
def _lu(
    a: Any, permute_l: bool = False, overwrite_a: Any = None, check_finite: Any = None,
    p_indices: bool = False,
) -> Any:  # fmt: skip
    a = real_only(a)
    n = _square(a, "lu")
    order = emit("pivot_order", emit("lu_pivots", a), n=n)
    both = emit("lu_unpivoted", np.take_along_axis(a, order[..., None], axis=-2))
    eye = np.eye(n, dtype=both.dtype)
    lower, upper = np.tril(both, -1) + eye, np.triu(both)
    back = np.argsort(order, axis=-1)
    if permute_l:
        return np.take_along_axis(lower, back[..., None], axis=-2), upper
    if p_indices:
        return back, lower, upper
    columns = np.arange(n)
    return (back[..., None] == columns).astype(both.dtype), lower, upper


@scipy_function("scipy.linalg.lstsq")
def _lstsq(
    a: Any, b: Any, cond: Any = None, overwrite_a: Any = None, overwrite_b: Any = None,
    check_finite: Any = None, lapack_driver: Any = None,
) -> Any:  # fmt: skip
    a, b = real_only(a), real_only(b)
    m, n = a.shape
    s = np.linalg.svdvals(a)
    cut = np.finfo(s.dtype).eps if cond is None else cond
    rank = int(np.sum(s > cut * np.max(s)))
    if rank == n:
        q, r = np.linalg.qr(a)
        x = triangular(r, np.matmul(_swap(q), b), lower=False)
    else:  # the shortest of the many solutions
        x = np.matmul(np.linalg.pinv(a, cut), b)
    if lapack_driver == "gelsy":  # the driver gives neither
        return x, np.zeros((0,), a.dtype), rank, None
    left = np.sum(np.square(b - np.matmul(a, x)), axis=0)
    return x, left if m > n == rank else np.zeros((0,), a.dtype), rank, s


# --- banded and structured systems ----------------------------------------------------------------


@scipy_function("scipy.linalg.solve_banded")
def _solve_banded(
    l_and_u: Any, ab: Any, b: Any, overwrite_ab: Any = None, overwrite_b: Any = None,
    check_finite: Any = None,
) -> Any:  # fmt: skip
    low, high = map(int, l_and_u)
    return banded(real_only(ab), real_only(b), low, high)


def banded(ab: Any, b: Any, low: int, high: int) -> Any:
    """a^-1 b for a in diagonals, of right-hand sides of any rank."""
    flat = np.reshape(b, (b.shape[0], -1))
    return np.reshape(emit("solve_banded", ab, flat, low=low, high=high), b.shape)


def _both_bands(ab: Any, lower: bool) -> tuple[Any, int]:
    """A symmetric banded matrix's diagonals, all of them."""
    u = ab.shape[0] - 1
    n = ab.shape[1]
    zero = np.zeros((n,), ab.dtype)
    above: list[Any] = []
    below: list[Any] = []
    for k in range(u, 0, -1):
        line = ab[k] if lower else ab[u - k]
        kept = line[: n - k] if lower else line[k:]
        pad = zero[:k]
        above.append(np.concatenate([pad, kept]))
        below.insert(0, np.concatenate([kept, pad]))
    middle = ab[0] if lower else ab[u]
    return np.stack([*above, middle, *below]), u


@scipy_function("scipy.linalg.solveh_banded")
def _solveh_banded(
    ab: Any, b: Any, overwrite_ab: Any = None, overwrite_b: Any = None, lower: bool = False,
    check_finite: Any = None,
) -> Any:  # fmt: skip
    whole, u = _both_bands(real_only(ab), lower)
    return banded(whole, real_only(b), u, u)


def dense_of_bands(ab: Any, lower: bool) -> Any:
    """The symmetric matrix of which one triangle's diagonals are given."""
    u, n = ab.shape[0] - 1, ab.shape[1]
    rows = [np.diag(ab[0 if lower else u])]
    for k in range(1, u + 1):
        line = ab[k][: n - k] if lower else ab[u - k][k:]
        rows.append(np.diag(line, k) + np.diag(line, -k))
    return sum(rows[1:], rows[0])


@scipy_function("scipy.linalg.cholesky_banded")
def _cholesky_banded(
    ab: Any, overwrite_ab: Any = None, lower: bool = False, check_finite: Any = None
) -> Any:
    ab = real_only(ab)
    u, n = ab.shape[0] - 1, ab.shape[1]
    factor = np.linalg.cholesky(dense_of_bands(ab, lower))
    zero = np.zeros((n,), ab.dtype)
    lines = [np.concatenate([np.diagonal(factor, -k), zero[:k]]) if lower
             else np.concatenate([zero[:k], np.diagonal(factor, -k)]) for k in range(u + 1)]
    rest = [0.0 * line for line in lines]
    for k in range(1, u + 1):  # what is not read stays as it was
        corner = ab[k][n - k:] if lower else ab[u - k][:k]
        rest[k] = np.concatenate([zero[k:], corner] if lower else [corner, zero[k:]])
    lines = [line + more for line, more in zip(lines, rest, strict=True)]
    return np.stack(lines if lower else lines[::-1])


@scipy_function("scipy.linalg.cho_solve_banded")
def _cho_solve_banded(
    cb_and_lower: Any, b: Any, overwrite_b: Any = None, check_finite: Any = None
) -> Any:
    cb, lower = cb_and_lower
    cb, b = real_only(cb), real_only(b)
    u = cb.shape[0] - 1
    n = cb.shape[1]
    zero = np.zeros((n,), cb.dtype)
    # the other factor's diagonals: each moved
    lines = [np.concatenate([zero[:k], cb[k][: n - k]]) if lower
             else np.concatenate([cb[u - k][k:], zero[:k]]) for k in range(u + 1)]
    turned = np.stack(lines[::-1] if lower else lines)
    low, up = (cb, turned) if lower else (turned, cb)
    return banded(up, banded(low, b, u, 0), 0, u)
