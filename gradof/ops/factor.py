"""Factorisations of (stacks of) rectangular matrices: singular values, QR, the pseudo-inverse.

>>> u, s, vh = F.svd.multiple(x)     # reduced: u is [m, k], vh is [k, n], k = min(m, n)

Adjoints: J. Townsend, "Differentiating the singular value decomposition" (2016); S. Walter and
L. Lehmann, "Algorithmic differentiation of linear algebra functions" (2010); G. Golub and
V. Pereyra, "The differentiation of pseudo-inverses" (1973).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradof.errors import InferenceError
from gradof.ir.attrs import Attr, Dense
from gradof.ir.types import TensorType, Type
from gradof.ops.complex_numbers import real_dtype
from gradof.ops.expr import Expr, F
from gradof.ops.families import known_shape, tensor
from gradof.ops.registry import Family, Refused, op

Array = NDArray[Any]
Shape = tuple[int, ...]


def _matrix(type_: Type, complex_too: bool = False) -> tuple[TensorType, Shape]:
    x = tensor(type_)
    shape = known_shape(x)
    is_complex = complex_too and x.dtype.is_complex and x.dtype.bits >= 64
    if len(shape) < 2 or (not is_complex and (x.dtype.kind != "float" or x.dtype.bits < 32)):
        raise InferenceError(f"matrices of f32 or f64 are due, not {x}")
    return x, shape


def eye_like(n: int, x: Expr) -> Expr:
    """The identity in x's dtype."""
    eye = Expr(x.emitter.body.constant(Dense.of(np.eye(n))), x.emitter)
    return F.cast(eye, dtype=x.dtype).to_device(x.type.device)


# --- singular values ----------------------------------------------------------------------------


def _infer_svd(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    x, (*batch, m, n) = _matrix(inputs[0], complex_too=True)
    k = min(m, n)
    return x.with_shape((*batch, m, k)), _real(x).with_shape((*batch, k)), x.with_shape(
        (*batch, k, n)
    )


def _real(x: TensorType) -> TensorType:
    return x.with_dtype(real_dtype(x.dtype)) if x.dtype.is_complex else x


def _svd_x(
    g_u: Expr, g_s: Expr, g_vh: Expr, u: Expr, s: Expr, vh: Expr, x: Expr
) -> Expr:
    k, (m, n) = s.shape[-1], x.shape[-2:]
    on_diagonal = Dense.of(np.eye(k, dtype=bool))
    row = s.reshape((*s.shape[:-1], 1, k))
    column = s.reshape((*s.shape, 1))
    # s_j / (s_j^2 - s_i^2) in two quotients: squares of 1e-20 are no numbers of float32
    gaps = F.where(on_diagonal, 1.0, row - column)
    total = F.where(row + column == 0.0, 1.0, row + column)  # of a matrix that has no full rank

    if x.dtype.is_complex:
        return _svd_complex(g_u, g_s, g_vh, u, s, vh, gaps, total)

    def turned(basis: Expr, g: Expr) -> Expr:
        inner = basis.mT @ g
        return F.where(on_diagonal, 0.0, (inner - inner.mT) / gaps)

    v, g_v = vh.mT, g_vh.mT
    middle = turned(u, g_u) * (row / total) + turned(v, g_v) * (column / total)
    middle = middle + F.where(on_diagonal, g_s.reshape(row.shape).expand(gaps.shape), 0.0)
    whole = u @ middle @ vh
    if m > k:
        whole = whole + (g_u - u @ (u.mT @ g_u)) / row @ vh
    if n > k:
        whole = whole + u @ ((g_v - v @ (v.mT @ g_v)) / row).mT
    return whole


def _svd_complex(
    g_u: Expr, g_s: Expr, g_vh: Expr, u: Expr, s: Expr, vh: Expr, gaps: Expr, total: Expr
) -> Expr:
    """The same of a complex matrix; the vectors are given conjugated."""
    k, m, n, dtype = s.shape[-1], u.shape[-2], vh.shape[-1], u.dtype
    on_diagonal = Dense.of(np.eye(k, dtype=bool))
    u, vh = F.conj(u), F.conj(vh)
    s, gaps, total = [F.cast(e, dtype=dtype) for e in (s, gaps, total)]
    row, column = s.reshape((*s.shape[:-1], 1, k)), s.reshape((*s.shape, 1))

    def adjoint(y: Expr) -> Expr:
        return F.conj(y.mT)

    v, g_v = adjoint(vh), adjoint(g_vh)
    in_u, in_v = adjoint(u) @ g_u, vh @ g_v
    skew_u, skew_v = in_u - adjoint(in_u), in_v - adjoint(in_v)
    middle = F.where(on_diagonal, 0.0, skew_u / gaps) * (row / total)
    middle = middle + F.where(on_diagonal, 0.0, skew_v / gaps) * (column / total)
    phases = skew_u / (row * 2.0)  # of vectors whose common phase the result does not read
    spread = F.cast(g_s, dtype=dtype).reshape(row.shape).expand(gaps.shape)
    whole = u @ (middle + F.where(on_diagonal, spread + phases, 0.0)) @ vh
    if m > k:
        whole = whole + (g_u - u @ in_u) / row @ vh
    if n > k:
        whole = whole + u @ adjoint((g_v - v @ in_v) / row)
    return whole


op("svd(x) -> u, s, vh", family=Family(_infer_svd),
   numpy="np.linalg.svd({x}, full_matrices=False)",
   torch="torch.linalg.svd({x}, full_matrices=False)", vjp={"x": _svd_x},
   doc="Reduced. Gradients of the vectors need distinct, nonzero singular values.")


def _infer_svdvals(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    x, (*batch, m, n) = _matrix(inputs[0], complex_too=True)
    return (_real(x).with_shape((*batch, min(m, n))),)


def _svdvals_x(g: Expr, x: Expr) -> Expr:
    u, _, vh = F.svd.multiple(x)
    weights = g.reshape((*g.shape[:-1], 1, g.shape[-1]))
    if x.dtype.is_complex:  # x is given conjugated
        return F.conj((u * F.cast(weights, dtype=x.dtype)) @ vh)
    return (u * weights) @ vh


op("svdvals(x) -> s", family=Family(_infer_svdvals), vjp={"x": _svdvals_x},
   numpy="np.linalg.svd({x}, compute_uv=False)", torch="torch.linalg.svdvals({x})",
   doc="The singular values alone, whose gradient needs no gaps between them.")


def _infer_svd_rest(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    x, (*batch, m, n) = _matrix(inputs[0])
    k = min(m, n)
    return x.with_shape((*batch, m, m - k)), x.with_shape((*batch, n - k, n))


def _np_svd_rest(x: Array) -> tuple[Array, Array]:
    u, s, vh = np.linalg.svd(x, full_matrices=True)
    k = s.shape[-1]
    return u[..., k:], vh[..., k:, :]


op("svd_rest(x) -> u, vh", family=Family(_infer_svd_rest), numpy=_np_svd_rest,
   vjp={"x": Refused("the vectors that complete a basis are not unique; full_matrices=False "
                     "leaves them out")},
   doc="What full_matrices=True adds to the reduced vectors.")

# --- QR -----------------------------------------------------------------------------------------


def _infer_qr(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    x, (*batch, m, n) = _matrix(inputs[0])
    if m < n:
        raise InferenceError("qr of more columns than rows: take it of the first ones")
    return x, x.with_shape((*batch, n, n))


def _qr_x(g_q: Expr, g_r: Expr, q: Expr, r: Expr) -> Expr:
    inner = r @ g_r.mT - g_q.mT @ q
    mirrored = F.tril(inner, diagonal=0) + F.tril(inner, diagonal=-1).mT
    return F.solve_triangular(r, (g_q + q @ mirrored).mT, lower=False).mT


op("qr(x) -> q, r", family=Family(_infer_qr), numpy="np.linalg.qr({x})",
   torch="torch.linalg.qr({x})", vjp={"x": _qr_x},
   doc="Reduced, of at least as many rows as columns. The gradient needs full rank.")

# --- pseudo-inverse -----------------------------------------------------------------------------


def _infer_pinv(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    x, (*batch, m, n) = _matrix(inputs[0])
    return (x.with_shape((*batch, n, m)),)


def _pinv_x(g: Expr, x: Expr, y: Expr) -> Expr:
    m, n = x.shape[-2:]
    left, right = eye_like(m, x) - x @ y, eye_like(n, x) - y @ x
    return left @ g.mT @ (y @ y.mT) + (y.mT @ y) @ g.mT @ right - y.mT @ g @ y.mT


op("pinv(x; rcond) -> y", family=Family(_infer_pinv), numpy="np.linalg.pinv({x}, {rcond})",
   torch="torch.linalg.pinv({x}, rtol={rcond})",
   vjp={"x": _pinv_x}, doc="The gradient holds where the rank does not change.")
