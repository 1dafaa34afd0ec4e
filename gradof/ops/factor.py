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
from gradof.ops.expr import Expr, F
from gradof.ops.families import known_shape, tensor
from gradof.ops.registry import Family, Refused, op

Array = NDArray[Any]
Shape = tuple[int, ...]


def _matrix(type_: Type) -> tuple[TensorType, Shape]:
    x = tensor(type_)
    shape = known_shape(x)
    if len(shape) < 2 or x.dtype.kind != "float" or x.dtype.bits < 32:
        raise InferenceError(f"matrices of f32 or f64 are due, not {x}")
    return x, shape


def eye_like(n: int, x: Expr) -> Expr:
    """The identity in x's dtype."""
    eye = Expr(x.emitter.body.constant(Dense.of(np.eye(n))), x.emitter)
    return F.cast(eye, dtype=x.dtype).to_device(x.type.device)


# --- singular values ----------------------------------------------------------------------------


def _infer_svd(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    x, (*batch, m, n) = _matrix(inputs[0])
    k = min(m, n)
    shapes = ((*batch, m, k), (*batch, k), (*batch, k, n))
    return tuple(x.with_shape(tuple(shape)) for shape in shapes)


def _svd_x(
    g_u: Expr, g_s: Expr, g_vh: Expr, u: Expr, s: Expr, vh: Expr, x: Expr
) -> Expr:
    k, (m, n) = s.shape[-1], x.shape[-2:]
    on_diagonal = Dense.of(np.eye(k, dtype=bool))
    row = s.reshape((*s.shape[:-1], 1, k))
    column = s.reshape((*s.shape, 1))
    # 1 / (s_j^2 - s_i^2), in factors that do not overflow
    gaps = F.where(on_diagonal, 1.0, (row - column) * (row + column))

    def turned(basis: Expr, g: Expr) -> Expr:
        inner = basis.mT @ g
        return F.where(on_diagonal, 0.0, (inner - inner.mT) / gaps)

    v, g_v = vh.mT, g_vh.mT
    middle = turned(u, g_u) * row + column * turned(v, g_v)
    middle = middle + F.where(on_diagonal, g_s.reshape(row.shape).expand(gaps.shape), 0.0)
    whole = u @ middle @ vh
    if m > k:
        whole = whole + (g_u - u @ (u.mT @ g_u)) / row @ vh
    if n > k:
        whole = whole + u @ ((g_v - v @ (v.mT @ g_v)) / row).mT
    return whole


op("svd(x) -> u, s, vh", family=Family(_infer_svd),
   numpy="np.linalg.svd({x}, full_matrices=False)",
   torch="torch.linalg.svd({x}, full_matrices=False)", vjp={"x": _svd_x},
   doc="Reduced. Gradients of the vectors need distinct, nonzero singular values.")


def _infer_svdvals(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    x, (*batch, m, n) = _matrix(inputs[0])
    return (x.with_shape((*batch, min(m, n))),)


def _svdvals_x(g: Expr, x: Expr) -> Expr:
    u, _, vh = F.svd.multiple(x)
    return (u * g.reshape((*g.shape[:-1], 1, g.shape[-1]))) @ vh


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
    return F.solve(r, (g_q + q @ mirrored).mT).mT


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
