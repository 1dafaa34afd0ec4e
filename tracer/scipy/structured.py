"""scipy.linalg: matrices of a structure, and systems of them."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import numpy as np

from gradof.tracer.numpy.functions import as_array
from gradof.tracer.scipy.calls import scipy_function


@scipy_function("scipy.linalg.toeplitz")
def _toeplitz(c: Any, r: Any = None) -> Any:
    c = as_array(c)
    r = np.conj(c) if r is None else as_array(r)
    values = np.concatenate([np.flip(c, -1), r[..., 1:]], axis=-1)
    m, n = c.shape[-1], r.shape[-1]
    places = np.arange(n) - np.arange(m)[:, None] + m - 1
    return np.take(values, places, axis=-1)


_BATCHES = [int(part) for part in version("scipy").split(".")[:2]] >= [1, 19]


def _lines(c: Any) -> Any:
    """What makes a matrix: an array of several dims was ravelled before it became a batch."""
    return as_array(c) if _BATCHES else np.ravel(as_array(c))


@scipy_function("scipy.linalg.hankel")
def _hankel(c: Any, r: Any = None) -> Any:
    c = _lines(c)
    r = np.zeros_like(c) if r is None else _lines(r)
    values = np.concatenate([c, r[..., 1:]], axis=-1)
    places = np.arange(r.shape[-1]) + np.arange(c.shape[-1])[:, None]
    return np.take(values, places, axis=-1)


@scipy_function("scipy.linalg.circulant")
def _circulant(c: Any) -> Any:
    c = as_array(c)
    n = c.shape[-1]
    return np.take(c, (np.arange(n)[:, None] - np.arange(n)) % n, axis=-1)


def _pair(c_or_cr: Any) -> tuple[Any, Any]:
    if isinstance(c_or_cr, tuple):
        return as_array(c_or_cr[0]), as_array(c_or_cr[1])
    return as_array(c_or_cr), np.conj(as_array(c_or_cr))


@scipy_function("scipy.linalg.solve_toeplitz")
def _solve_toeplitz(c_or_cr: Any, b: Any, check_finite: Any = None) -> Any:
    return np.linalg.solve(_toeplitz(*_pair(c_or_cr)), b)


@scipy_function("scipy.linalg.matmul_toeplitz")
def _matmul_toeplitz(c_or_cr: Any, x: Any, check_finite: Any = None, workers: Any = None) -> Any:
    return np.matmul(_toeplitz(*_pair(c_or_cr)), x)


@scipy_function("scipy.linalg.solve_circulant")
def _solve_circulant(
    c: Any, b: Any, singular: str = "raise", tol: Any = None, caxis: int = -1, baxis: int = 0,
    outaxis: int = 0,
) -> Any:  # fmt: skip
    c, b = as_array(c), as_array(b)
    if c.ndim != 1 or singular != "raise":
        raise TypeError("argument c of more than one dim, or singular")
    right = np.moveaxis(b, baxis, 0)
    y = np.linalg.solve(_circulant(c), np.reshape(right, (right.shape[0], -1)))
    return np.moveaxis(np.reshape(y, right.shape), 0, outaxis)


@scipy_function("scipy.linalg.companion")
def _companion(a: Any) -> Any:
    a = as_array(a)
    n = a.shape[-1]
    first = -a[..., 1:] / a[..., :1]
    rest = np.broadcast_to(np.eye(n - 2, n - 1, dtype=a.dtype), (*a.shape[:-1], n - 2, n - 1))
    return np.concatenate([first[..., None, :], rest], axis=-2)


@scipy_function("scipy.linalg.fiedler")
def _fiedler(a: Any) -> Any:
    a = as_array(a)
    return np.abs(a[..., :, None] - a[..., None, :])


@scipy_function("scipy.linalg.leslie")
def _leslie(f: Any, s: Any) -> Any:
    f, s = as_array(f), as_array(s)
    if f.ndim != 1:
        raise TypeError("argument f of more than one dim")
    below = np.diag(s, 0)
    rest = np.concatenate([below, np.zeros((len(s), 1), f.dtype)], axis=1)
    return np.concatenate([f[None], rest], axis=0)


@scipy_function("scipy.linalg.block_diag")
def _block_diag(*arrs: Any) -> Any:
    parts = [np.atleast_2d(as_array(a)) for a in arrs]
    if any(p.ndim != 2 for p in parts):
        raise TypeError("argument of more than two dims")
    widths = [p.shape[1] for p in parts]
    rows = []
    for i, p in enumerate(parts):
        rows.append(np.pad(p, ((0, 0), (sum(widths[:i]), sum(widths[i + 1 :])))))
    return np.concatenate(rows, axis=0)


@scipy_function("scipy.linalg.khatri_rao")
def _khatri_rao(a: Any, b: Any) -> Any:
    a, b = as_array(a), as_array(b)
    both = a[..., :, None, :] * b[..., None, :, :]
    return np.reshape(both, (*both.shape[:-3], -1, both.shape[-1]))


@scipy_function("scipy.linalg.convolution_matrix")
def _convolution_matrix(a: Any, n: int, mode: str = "full") -> Any:
    a = as_array(a)
    if a.ndim != 1:
        raise TypeError("argument a of more than one dim")
    m = a.shape[0]
    zero = np.zeros((n - 1,), a.dtype)
    whole = np.concatenate([zero, a, zero])
    places = np.arange(m + n - 1)[:, None] - np.arange(n) + n - 1
    if mode == "same":
        trim = min(n, m) - 1
        start = trim // 2
        places = places[start : len(places) - (trim - start)]
    elif mode == "valid":
        trim = min(n, m) - 1
        places = places[trim : len(places) - trim]
    return np.take(whole, places)


# --- what structure a matrix has, which is read ---------------------------------------------------


def _equal_across(name: str, mirrored: Any) -> None:
    @scipy_function(f"scipy.linalg.{name}")
    def equal(a: Any, atol: Any = None, rtol: Any = None) -> Any:
        a = as_array(a)
        other = mirrored(np.swapaxes(a, -2, -1))
        if atol or rtol:
            same = np.isclose(a, other, atol=atol or 0.0, rtol=rtol or 0.0)
        else:  # of the diagonal, scipy asks at most whether it is real
            unasked = np.eye(a.shape[-1], dtype=bool)
            unasked = unasked & (a.imag == 0) if name == "ishermitian" else unasked
            same = (a == other) | unasked
        whole = np.all(same, axis=(-2, -1))
        return bool(whole) if a.ndim == 2 else whole


_equal_across("issymmetric", np.positive)
_equal_across("ishermitian", np.conj)


@scipy_function("scipy.linalg.bandwidth")
def _bandwidth(a: Any) -> Any:
    a = as_array(a)
    below = np.arange(a.shape[-2])[:, None] - np.arange(a.shape[-1])
    sides = (np.where(a != 0, side, 0) for side in (below, -below))
    return tuple(np.max(side, axis=(-2, -1), initial=0) for side in sides)
