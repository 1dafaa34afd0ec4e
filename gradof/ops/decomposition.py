"""Linear systems and decompositions of (stacks of) square matrices.

>>> F.solve(a, b)                    # df: gb = solve(a^T, g), ga = -gb y^T

Adjoints after M. Giles, "An extended collection of matrix derivative results" (2008). cholesky and
eigh read one triangle; their gradients are symmetric, as torch's are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradof.errors import InferenceError
from gradof.ir.attrs import Attr, Dense
from gradof.ir.types import C64, C128, F32, F64, I32, TensorType, Type
from gradof.ops.complex_numbers import complex_dtype, real_dtype
from gradof.ops.expr import Expr, F, Like
from gradof.ops.families import broadcast_shapes, known_shape, tensor
from gradof.ops.registry import Family, op

Array = NDArray[Any]


def _square(type_: Type, *, complex_too: bool = False) -> TensorType:
    x = tensor(type_)
    shape = known_shape(x)
    kinds = ("float", "complex") if complex_too else ("float",)
    fits = len(shape) >= 2 and shape[-1] == shape[-2]
    if not fits or x.dtype not in _WIDE or x.dtype.kind not in kinds:
        also = ", c64 or c128" if complex_too else ""
        raise InferenceError(f"square matrices of f32 or f64{also} are due, not {x}")
    return x


_WIDE = frozenset({F32, F64, C64, C128})


def _infer_same(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    return (_square(inputs[0]),)


def _infer_inverse(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    return (_square(inputs[0], complex_too=True),)


def _infer_det(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    x = _square(inputs[0], complex_too=True)
    return (x.with_shape(known_shape(x)[:-2]),)


def _infer_tried(
    inputs: Sequence[Type], attrs: Mapping[str, Attr], complex_too: bool = False
) -> tuple[Type, ...]:
    """A matrix, and an int32 for each that says whether there was one."""
    x = _square(inputs[0], complex_too=complex_too)
    return (x, x.with_dtype(I32).with_shape(known_shape(x)[:-2]))


def _infer_number(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    x = _square(inputs[0])
    return (x.with_shape(known_shape(x)[:-2]),)


def _infer_two_numbers(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    return _infer_number(inputs, attrs) * 2


def infer_eigh(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    """Values and vectors of a symmetric, or Hermitian, matrix."""
    x = _square(inputs[0], complex_too=True)
    real = x.with_dtype(real_dtype(x.dtype)) if x.dtype.is_complex else x
    return (real.with_shape(known_shape(x)[:-1]), x)


def _infer_solve(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    a, b = _square(inputs[0], complex_too=True), tensor(inputs[1])
    s, t = known_shape(a), known_shape(b)
    if len(t) < 2 or t[-2] != s[-1] or a.dtype != b.dtype or a.device != b.device:
        raise InferenceError(f"solve cannot divide {b} by {a}")
    batch = broadcast_shapes(s[:-2], t[:-2])
    assert batch is not None
    return (b.with_shape((*batch, *t[-2:])),)


def _column(g: Expr) -> Expr:
    """A number per matrix as a 1x1 matrix."""
    return g.reshape((*g.shape, 1, 1))


def _np_inverse_or_nan(x: Array) -> Array:
    try:
        return np.asarray(np.linalg.inv(x))
    except np.linalg.LinAlgError:  # of one matrix at least: of the others there is an inverse
        if x.ndim == 2:
            return np.full_like(x, np.nan)
        return np.stack([_np_inverse_or_nan(one) for one in x])


def _tried(
    x: Array, check_errors: bool, make: Callable[[Array], tuple[Array, int]]
) -> tuple[Array, Array]:
    """Of each matrix what `make` has, and the number with which it says that it failed."""
    y, info = np.full_like(x, np.nan), np.zeros(x.shape[:-2], np.int32)
    for at in np.ndindex(x.shape[:-2]):
        y[at], info[at] = make(x[at])
    if check_errors and info.any():
        raise np.linalg.LinAlgError(f"no result for a matrix: info is {info.max()}")
    return y, info


def _np_cholesky_ex(x: Array, check_errors: bool) -> tuple[Array, Array]:
    from scipy.linalg.lapack import get_lapack_funcs

    def make(one: Array) -> tuple[Array, int]:
        if not one.size:
            return one, 0
        (potrf,) = get_lapack_funcs(("potrf",), (one,))
        y, info = potrf(one, lower=True, clean=True)
        return (y if info == 0 else np.full_like(one, np.nan)), info

    return _tried(x, check_errors, make)


def _np_inv_ex(x: Array, check_errors: bool) -> tuple[Array, Array]:
    def make(one: Array) -> tuple[Array, int]:
        try:
            return np.asarray(np.linalg.inv(one)), 0
        except np.linalg.LinAlgError:
            return np.full_like(one, np.nan), 1

    return _tried(x, check_errors, make)


def _np_adjugate(x: Array) -> Array:
    with np.errstate(all="ignore"):
        det = np.asarray(np.linalg.det(x))[..., None, None]
        product = det * _np_inverse_or_nan(x)
        singular = (det[..., 0, 0] == 0) & np.isfinite(x).all((-2, -1))
        if singular.any():
            product[singular] = _adjugate_of_factors(x[singular])
    return product


def _adjugate_of_factors(x: Array) -> Array:
    """adj(U S V) = adj(V) adj(S) adj(U), of which adj(S) has the products of all others."""
    u, s, vh = np.linalg.svd(x)
    n = s.shape[-1]
    others = np.where(np.eye(n, dtype=bool), 1.0, s[..., None, :]).prod(-1)
    turn = (np.linalg.det(u) * np.linalg.det(vh))[..., None, None]
    found = (turn * np.swapaxes(vh, -1, -2).conj() * others[..., None, :]) @ (
        np.swapaxes(u, -1, -2).conj()
    )
    return np.asarray(found.astype(x.dtype))


def _adjugate_x(g: Expr, x: Expr) -> Expr:
    inverse = F.inverse_or_nan(x)
    turned = inverse.mT @ g @ inverse.mT
    traces = F.sum(g * inverse, dims=(x.rank - 2, x.rank - 1), keepdims=True)
    return _column(F.det(x)) * (traces * inverse.mT - turned)


op("inv(x) -> y", family=Family(_infer_inverse), numpy="np.linalg.inv({x})",
   torch="torch.linalg.inv({x})", vjp={"x": lambda g, y: -(y.mT @ g @ y.mT)},
   names=["numpy.linalg.inv"])
op("solve(a, b) -> y", family=Family(_infer_solve), numpy="np.linalg.solve({a}, {b})",
   torch="torch.linalg.solve({a}, {b})", names=["numpy.linalg.solve"],
   vjp={"a": lambda g, a, y: -(F.solve(a.mT, g) @ y.mT), "b": lambda g, a: F.solve(a.mT, g)},
   doc="a^-1 b; the last dim of b counts right-hand sides, leading dims broadcast.")
op("inverse_or_nan(x) -> y", family=Family(_infer_inverse), numpy=_np_inverse_or_nan,
   torch="torch.linalg.inv_ex({x}).inverse", vjp={"x": lambda g, y: -(y.mT @ g @ y.mT)},
   doc="The inverse; where there is none, nan, or what torch has then.")
op("adjugate(x) -> y", family=Family(_infer_inverse), numpy=_np_adjugate,
   vjp={"x": _adjugate_x},
   doc="det(x) inv(x), also where x is singular. The gradient needs an inverse, or is nan.")
op("det(x) -> y", family=Family(_infer_det), numpy="np.linalg.det({x})",
   torch="torch.linalg.det({x})", names=["numpy.linalg.det"],
   vjp={"x": lambda g, x: _column(g) * F.adjugate(x).mT},
   doc="The gradient is that of the minors, also where they are all there is (Jacobi's formula).")
op("slogdet(x) -> sign, logabs", family=Family(_infer_two_numbers),
   numpy="np.linalg.slogdet({x})", torch="torch.linalg.slogdet({x})",
   names=["numpy.linalg.slogdet"],
   vjp={"x": lambda g_logabs, x: _column(g_logabs) * F.inverse_or_nan(x).mT},
   doc="The sign has no gradient; logabs of a singular matrix, -inf, has nan.")


def _half(x: Expr) -> Expr:
    """The lower triangle, its diagonal halved."""
    n = x.shape[-1]
    return F.tril(x, diagonal=0) * F.cast(
        Expr(x.emitter.body.constant(Dense.of(1.0 - 0.5 * np.eye(n))), x.emitter), dtype=x.dtype
    )


def _cholesky_vjp(g: Expr, y: Expr) -> Expr:
    inner = F.solve_triangular(y.mT, _half(y.mT @ g), lower=False)
    whole = F.solve_triangular(y.mT, inner.mT, lower=False).mT
    return (whole + whole.mT) * 0.5


op("cholesky(x) -> y", family=Family(_infer_same), numpy="np.linalg.cholesky({x})",
   torch="torch.linalg.cholesky({x})", vjp={"x": _cholesky_vjp}, names=["numpy.linalg.cholesky"])
op("cholesky_ex(x; check_errors) -> y, info", family=Family(_infer_tried), numpy=_np_cholesky_ex,
   torch="torch.linalg.cholesky_ex({x}, check_errors={check_errors})",
   vjp={"x": lambda g_y, y: _cholesky_vjp(g_y, y)},
   doc="info is 0, or the order of the first leading minor that is not positive: y is nan then, "
       "or what torch has. `check_errors` makes that an error.")
op("inv_ex(x; check_errors) -> y, info", numpy=_np_inv_ex,
   family=Family(functools.partial(_infer_tried, complex_too=True)),
   torch="torch.linalg.inv_ex({x}, check_errors={check_errors})",
   vjp={"x": lambda g_y, y: -(y.mT @ g_y @ y.mT)},
   doc="info is 0, or says that there is no inverse: y is nan then, or what torch has. "
       "`check_errors` makes that an error.")


def eigh_vjp(g_values: Expr, g_vectors: Expr, values: Expr, vectors: Expr) -> Expr:
    """The gradient of a symmetric matrix, symmetric."""
    n = values.shape[-1]
    on_diagonal = Dense.of(np.eye(n, dtype=bool))
    row = values.reshape((*values.shape[:-1], 1, n))
    gaps = row - values.reshape((*values.shape, 1))
    spread = g_values.reshape(row.shape).expand(gaps.shape)
    turned = vectors.mT @ g_vectors
    gaps = F.where(on_diagonal, 1.0, gaps)
    if not vectors.dtype.is_complex:
        off = F.where(on_diagonal, 0.0, turned / gaps)
        whole = vectors @ F.where(on_diagonal, spread, off) @ vectors.mT
        return (whole + whole.mT) * 0.5
    off = F.where(on_diagonal, F.cast(spread, dtype=vectors.dtype),
                  turned / F.cast(gaps, dtype=vectors.dtype))  # fmt: skip
    whole = F.conj(vectors) @ off @ vectors.mT  # the rule is given the conjugates of the vectors
    return (whole + F.conj(whole.mT)) * 0.5


op("eigh(x) -> values, vectors", family=Family(infer_eigh), numpy="np.linalg.eigh({x})",
   torch="torch.linalg.eigh({x})", vjp={"x": eigh_vjp}, names=["numpy.linalg.eigh"],
   doc="Reads the lower triangle. Gradients of the vectors need distinct values.")


def _infer_eig(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    x = _square(inputs[0], complex_too=True)
    dt = x.dtype if x.dtype.is_complex else complex_dtype(x.dtype)
    vectors = x.with_dtype(dt)
    return (vectors.with_shape(known_shape(x)[:-1]), vectors)


def _np_eig(x: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    dtype = np.result_type(x.dtype, np.complex64)
    values, vectors = np.linalg.eig(x)
    return values.astype(dtype), vectors.astype(dtype)


def _eig_vjp(g_values: Expr, g_vectors: Expr, x_like: Like, values: Expr, vectors: Expr) -> Expr:
    # C. Boeddeker et al., "On the computation of complex-valued gradients with application to
    # statistically optimum beamforming" (2017), for vectors of norm 1 and any fixed phase
    n = values.shape[-1]
    on_diagonal = Dense.of(np.eye(n, dtype=bool))
    adjoint = F.conj(vectors).mT
    row = F.conj(values).reshape((*values.shape[:-1], 1, n))
    gaps = F.where(on_diagonal, 1.0, row - F.conj(values).reshape((*values.shape, 1)))
    turned = adjoint @ g_vectors
    length = F.where(on_diagonal, F.real(turned), 0.0).sum((turned.rank - 2,), True)
    off = (turned - (adjoint @ vectors) * length.cast(values.dtype)) / gaps
    spread = g_values.reshape(row.shape).expand(gaps.shape)
    whole = F.solve(adjoint, F.where(on_diagonal, spread, off) @ adjoint)
    return whole if x_like.dtype.is_complex else F.real(whole)


op("eig(x) -> values, vectors", family=Family(_infer_eig), numpy=_np_eig,
   torch="torch.linalg.eig({x})", vjp={"x": _eig_vjp}, traits={"wirtinger"},
   doc="Needs distinct values; of functions that depend on the vectors' phase, which is LAPACK's,"
       " the gradient is that with the phase fixed.")  # fmt: skip
