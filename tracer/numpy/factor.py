"""numpy.linalg: solving, inverses, determinants, factorisations, and the norms that need them."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from gradof.ops.expr import Expr, F
from gradof.tracer.numpy.functions import (
    as_array,
    axes,
    axis_of,
    composed,
    expression,
    squared_size,
    traced_all,
    whole,
)
from gradof.tracer.numpy.recorder import Recorder, real

# --- solving --------------------------------------------------------------------------------------


def _matrix(r: Recorder, a: Any, *others: Any) -> tuple[Expr, np.dtype[Any]]:
    array = r.traced(as_array(a))
    dtype = np.result_type(array.dtype, *(as_array(real(o)).dtype for o in others))
    dtype = dtype if dtype.kind in "fc" else np.dtype(np.float64)
    return array.expr.cast(r.ir_dtype(dtype)), dtype


@expression(np.linalg.inv)
def _inv(r: Recorder, a: Any) -> Expr:
    return F.inv(_matrix(r, a)[0])


@expression(np.linalg.solve)
def _solve(r: Recorder, a: Any, b: Any) -> Expr:
    x, dtype = _matrix(r, a, b)
    right = r.traced(as_array(b)).expr.cast(r.ir_dtype(dtype))
    vector = right.rank == 1
    right = right.reshape((*right.shape, 1)) if vector else right
    y = F.solve(x, right)
    return y.reshape(y.shape[:-1]) if vector else y


@expression(np.linalg.det)
def _det(r: Recorder, a: Any) -> Expr:
    return F.det(_matrix(r, a)[0])


@composed(np.linalg.slogdet)
def _slogdet(a: Any) -> Any:
    r = a.recorder
    sign, log = np.linalg.slogdet(real(a))
    signs, logs = F.slogdet.multiple(_matrix(r, a)[0])
    return r.wrap(sign, signs), r.wrap(log, logs)


@functools.lru_cache(maxsize=64)
def _triangles(n: int) -> tuple[Any, Any, Any]:
    """Where the lower triangle, the upper one and the diagonal are: the same arrays each time."""
    below = np.tri(n, dtype=bool)
    return below, below.T, below & below.T


def of_triangle(a: Any, lower: bool) -> Any:
    """The matrix of which numpy reads one triangle, (..., n, n).

    Its gradient is that triangle's, except where both are equal and not zero: there each has half,
    as of functions of symmetric matrices. A matrix filled on one side only keeps the whole of it.
    """
    n = a.shape[-1]
    if n < 2 and a.dtype.kind != "c":
        return a
    other = np.conj(np.swapaxes(a, -1, -2))
    alike = (a == other) & (a != 0) | _triangles(n)[2]
    mean = np.multiply(a, 0.5) + np.multiply(other, 0.5)
    return np.where(alike, mean, np.where(_triangles(n)[not lower], a, other))


@expression(np.linalg.cholesky)
def _cholesky(r: Recorder, a: Any, /, *, upper: bool = False) -> Expr:
    lower = F.cholesky(_matrix(r, of_triangle(as_array(a), not upper))[0])
    return lower.mT if upper else lower


@composed(np.linalg.eigh)
def _eigh(a: Any, UPLO: Any = "L") -> Any:
    r = a.recorder
    values, vectors = np.linalg.eigh(real(a), UPLO)
    x = _matrix(r, of_triangle(a, UPLO in ("L", "l")))[0]
    w, v = F.eigh.multiple(x)
    return r.wrap(values, w), r.wrap(vectors, v)


@composed(np.linalg.eig)
def _eig(a: Any) -> Any:
    r = a.recorder
    values, vectors = np.linalg.eig(real(a))
    parts = F.eig.multiple(_matrix(r, a)[0])
    whole = [r.wrap(np.asarray(c, p.dtype.name.replace("c", "complex")), p)
             for c, p in zip((values, vectors), parts, strict=True)]  # fmt: skip
    if np.iscomplexobj(a):
        return tuple(whole)
    # of a real matrix numpy before 2.5 gives real numbers where they all are: the trace holds where
    # it does
    is_real = bool(np.all(np.imag(whole[0]) == 0)) and not np.iscomplexobj(values)
    return tuple(map(np.real, whole)) if is_real else tuple(whole)


@composed(np.linalg.eigvals)
def _eigvals(a: Any) -> Any:
    return np.linalg.eig(a)[0]


@composed(np.linalg.eigvalsh)
def _eigvalsh(a: Any, UPLO: Any = "L") -> Any:
    return np.linalg.eigh(a, UPLO)[0]


@composed(np.linalg.tensorsolve)
def _tensorsolve(a: Any, b: Any, axes: Any = None) -> Any:
    a, b = as_array(a), as_array(b)
    if axes is not None:
        moved = [axis_of(d, a.ndim) for d in axes]
        a = np.transpose(a, [d for d in range(a.ndim) if d not in moved] + moved)
    inner = np.shape(a)[np.ndim(b) :]
    size = math.prod(inner)
    solution = np.linalg.solve(np.reshape(a, (b.size, size)), np.ravel(b))
    return np.reshape(solution, inner)


@composed(np.linalg.tensorinv)
def _tensorinv(a: Any, ind: int = 2) -> Any:
    outer, inner = a.shape[:ind], a.shape[ind:]
    flat = np.reshape(a, (math.prod(outer), math.prod(inner)))
    return np.reshape(np.linalg.inv(flat), (*inner, *outer))


@composed(np.linalg.pinv)
def _pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Any:
    a = as_array(a)
    cut = rtol if rcond is None else rcond
    if cut is not None and np.ndim(cut):
        raise TypeError("argument rcond that is an array")
    r = a.recorder
    x, dtype = _matrix(r, of_triangle(a, True) if hermitian else a)
    cut = (1e-15 if rtol is None else None) if cut is None else float(cut)
    if cut is None:
        cut = float(max(a.shape[-2:]) * np.finfo(dtype).eps)
    concrete = np.asarray(np.linalg.pinv(real(a), cut, hermitian), dtype)
    return r.wrap(concrete, F.pinv(x, rcond=cut))


@composed(np.linalg.lstsq)
def _lstsq(a: Any, b: Any, rcond: Any = None) -> Any:
    a, b = traced_all(a, b)
    m, n = a.shape
    s = np.linalg.svdvals(a)
    cut = float(np.finfo(s.dtype).eps * max(m, n)) if rcond is None else float(rcond)
    cut = float(np.finfo(s.dtype).eps) if cut < 0 else cut
    solution = np.matmul(np.linalg.pinv(a, cut), b)
    rank = np.sum(s > cut * np.max(s)).astype(np.int32)
    full = np.linalg.lstsq(real(a), real(b), rcond)
    left = np.sum(squared_size(b - np.matmul(a, solution)), axis=0)
    residuals = np.reshape(left, -1) if full[1].size else np.reshape(left, -1)[:0]
    return solution, residuals, rank, s


@composed(np.linalg.matrix_rank)
def _matrix_rank(A: Any, tol: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Any:
    if np.ndim(A) < 2:
        return np.asarray(np.any(A != 0)).astype(np.int64)
    s = np.linalg.svd(A, compute_uv=False, hermitian=hermitian)
    if tol is None:
        scale = max(np.shape(A)[-2:]) * np.finfo(s.dtype).eps if rtol is None else rtol
        tol = np.max(s, axis=-1, keepdims=True, initial=0) * scale
    return np.sum(s > tol, axis=-1)


# --- factorisations -------------------------------------------------------------------------------


@composed(np.linalg.svd)
def _svd(a: Any, full_matrices: bool = True, compute_uv: bool = True,
         hermitian: bool = False) -> Any:  # fmt: skip
    r, matrix = a.recorder, real(a)
    x, dtype = _matrix(r, a)
    if hermitian:
        return _svd_by_eigh(a, compute_uv)
    if not compute_uv:
        return r.wrap(np.linalg.svd(matrix.astype(dtype), compute_uv=False), F.svdvals(x))
    parts = np.linalg.svd(matrix.astype(dtype), full_matrices=False)
    exprs = F.svd.multiple(x)
    u, s, vh = (r.wrap(c, e) for c, e in zip(parts, exprs, strict=True))
    if full_matrices and a.shape[-1] != a.shape[-2]:
        whole = np.linalg.svd(matrix.astype(dtype))
        k = s.shape[-1]
        more_u, more_vh = F.svd_rest.multiple(x)
        if a.shape[-2] > k:
            u = np.concatenate([u, r.wrap(whole[0][..., k:], more_u)], axis=-1)
        else:
            vh = np.concatenate([vh, r.wrap(whole[2][..., k:, :], more_vh)], axis=-2)
    return u, s, vh


def _svd_by_eigh(a: Any, compute_uv: bool) -> Any:
    w, v = np.linalg.eigh(a)
    size = np.abs(w)
    order = np.flip(np.argsort(size, axis=-1), -1)
    s = np.take_along_axis(size, order, axis=-1)
    if not compute_uv:
        return s
    sign = np.take_along_axis(np.where(w < 0, -1.0, 1.0).astype(w.dtype), order, axis=-1)
    u = np.take_along_axis(v, order[..., None, :], axis=-1)
    return u, s, np.swapaxes(u * sign[..., None, :], -1, -2)


@composed(np.linalg.svdvals)
def _svdvals(x: Any, /) -> Any:
    return np.linalg.svd(x, compute_uv=False)


@composed(np.linalg.qr)
def _qr(a: Any, mode: str = "reduced") -> Any:
    m, n = a.shape[-2:]
    if mode not in ("reduced", "r", "complete") or (mode == "complete" and m > n):
        raise TypeError(f"argument mode={mode!r}, whose result is not unique")
    r = a.recorder
    first = a if m >= n else a[..., :m]
    x, dtype = _matrix(r, first)
    parts = np.linalg.qr(real(first).astype(dtype))
    q, upper = (r.wrap(c, e) for c, e in zip(parts, F.qr.multiple(x), strict=True))
    if m < n:
        upper = np.concatenate([upper, np.swapaxes(q, -1, -2) @ a[..., m:]], axis=-1)
    return upper if mode == "r" else (q, upper)


# --- norms ----------------------------------------------------------------------------------------


@composed(np.linalg.norm)
def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    x = as_array(x)
    rank, ord = np.ndim(x), whole(ord)
    if ord is None:
        return np.linalg.vector_norm(x, axis=axis, keepdims=keepdims)
    dims = tuple(range(rank)) if axis is None else axis
    if isinstance(dims, (int, np.integer)) or len(dims) == 1:
        return np.linalg.vector_norm(x, ord=ord, axis=axis, keepdims=keepdims)
    return _matrix_norm(x, ord, tuple(axis_of(d, rank) for d in dims), keepdims)


@composed(np.linalg.matrix_norm)
def _matrix_norm_function(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    return _matrix_norm(x, ord, (x.ndim - 2, x.ndim - 1), keepdims)


def _matrix_norm(x: Any, ord: Any, dims: tuple[int, ...], keepdims: bool) -> Any:
    if ord is None or ord == "fro":
        return np.linalg.vector_norm(x, axis=dims, keepdims=keepdims)
    if ord in (2, -2, "nuc"):
        s = np.linalg.svdvals(np.moveaxis(x, dims, (-2, -1)))
        kinds: dict[Any, Any] = {2: np.max, -2: np.min, "nuc": np.sum}
        result = kinds[ord](s, axis=-1)
        return np.expand_dims(result, sorted(dims)) if keepdims else result
    summed, reduced = dims if abs(ord) == 1 else dims[::-1]
    sums = np.sum(np.abs(x), axis=summed, keepdims=True)
    result = (np.max if ord > 0 else np.min)(sums, axis=reduced, keepdims=True)
    return result if keepdims else np.squeeze(result, axis=dims)


@composed(np.linalg.vector_norm)
def _vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """The gradient at zero is zero, as torch's is."""
    array = traced_all(np.abs(x) if np.iscomplexobj(x) else x)[0]
    r = array.recorder
    expr, dtype = _matrix(r, array)
    value = np.linalg.vector_norm(
        real(array).astype(dtype), axis=axis, keepdims=keepdims, ord=ord
    )
    dims = axes(axis, array.ndim)
    kind = 2.0 if ord is None else float(ord)
    norm = F.vector_norm(expr, ord=kind, dims=dims, keepdims=bool(keepdims))
    return r.wrap(value, norm)


@composed(np.linalg.cond)
def _cond(x: Any, p: Any = None) -> Any:
    if p in (None, 2, -2):
        s = np.linalg.svdvals(x)
        return s[..., -1] / s[..., 0] if p == -2 else s[..., 0] / s[..., -1]
    both = (np.linalg.norm(y, p, axis=(-2, -1)) for y in (x, np.linalg.inv(x)))
    return next(both) * next(both)
