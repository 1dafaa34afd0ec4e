"""Matrix equations and functions of square matrices: triangular and banded systems, Sylvester's
equation, square root and logarithm. The lowerings need scipy.

>>> F.solve_triangular(a, b, lower=True)     # df: gb = solve_triangular(a^T, g), ga = -tril(gb y^T)

Adjoints: M. Giles, "An extended collection of matrix derivative results" (2008); N. Higham,
"Functions of Matrices" (2008), (3.16) for those that a block matrix of twice the size gives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradof.errors import InferenceError
from gradof.ir.attrs import Attr
from gradof.ir.types import TensorType, Type
from gradof.ops.decomposition import eigh_vjp, infer_eigh
from gradof.ops.expr import Expr, F
from gradof.ops.factor import eye_like
from gradof.ops.families import broadcast_shapes, known_shape, tensor
from gradof.ops.registry import Family, op

Array = NDArray[Any]


def _linalg() -> Any:
    import scipy.linalg

    return scipy.linalg


def _float_matrix(type_: Type) -> tuple[TensorType, tuple[int, ...]]:
    x = tensor(type_)
    shape = known_shape(x)
    if len(shape) < 2 or x.dtype.kind != "float" or x.dtype.bits < 32:
        raise InferenceError(f"matrices of f32 or f64 are due, not {x}")
    return x, shape


def _infer_square(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    x, shape = _float_matrix(inputs[0])
    if shape[-1] != shape[-2]:
        raise InferenceError(f"square matrices are due, not {x}")
    return (x,)


def _each(function: Callable[..., Array], ranks: Sequence[int], *operands: Array) -> Array:
    """A function of single matrices over leading dims, which broadcast."""
    lead = [x.shape[: x.ndim - k] for x, k in zip(operands, ranks, strict=True)]
    shape = np.broadcast_shapes(*lead)
    if not shape:
        return np.asarray(function(*operands))
    wide = [
        np.broadcast_to(x, (*shape, *x.shape[x.ndim - k :]))
        for x, k in zip(operands, ranks, strict=True)
    ]
    made = [function(*(x[at] for x in wide)) for at in np.ndindex(*shape)]
    return np.stack(made).reshape((*shape, *made[0].shape))


# --- triangular systems -------------------------------------------------------------------------


def _infer_system(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    (a, s), (b, t) = map(_float_matrix, inputs)
    if s[-1] != s[-2] or t[-2] != s[-1] or a.dtype != b.dtype:
        raise InferenceError(f"a system of {a} cannot have the right-hand sides {b}")
    batch = broadcast_shapes(s[:-2], t[:-2])
    assert batch is not None
    return (b.with_shape((*batch, *t[-2:])),)


def _np_triangular(a: Array, b: Array, *, lower: bool) -> Array:
    if not b.size:
        return np.zeros(np.broadcast_shapes(a.shape[:-2], b.shape[:-2]) + b.shape[-2:], b.dtype)
    solve = _linalg().solve_triangular
    return _each(lambda m, r: solve(m, r, lower=lower, check_finite=False), (2, 2), a, b)


def _triangle(x: Expr, lower: bool) -> Expr:
    return F.tril(x, diagonal=0) if lower else F.triu(x, diagonal=0)


op("solve_triangular(a, b; lower) -> y", family=Family(_infer_system), numpy=_np_triangular,
   torch="torch.linalg.solve_triangular({a}, {b}, upper=not {lower})",
   vjp={"a": lambda g, a, y, lower: _triangle(
            -(F.solve_triangular(a.mT, g, lower=not lower) @ y.mT), lower),
        "b": lambda g, a, lower: F.solve_triangular(a.mT, g, lower=not lower)},
   doc="a^-1 b, of which one triangle of a is read.")


# --- banded systems -----------------------------------------------------------------------------


def _infer_banded(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    (ab, s), (b, t) = map(_float_matrix, inputs)
    low, high = attrs["low"], attrs["high"]
    if not isinstance(low, int) or not isinstance(high, int):
        raise InferenceError("low and high count diagonals")
    if len(s) != 2 or len(t) != 2 or s != (low + high + 1, t[0]) or ab.dtype != b.dtype:
        raise InferenceError(f"{ab} are not {low} + 1 + {high} diagonals of a system of {b}")
    return (b,)


def _np_banded(ab: Array, b: Array, *, low: int, high: int) -> Array:
    result: Array = _linalg().solve_banded((low, high), ab, b, check_finite=False)
    return result


def _row(x: Expr, start: int, stop: int) -> Expr:
    return F.slice(x, dim=0, start=start, stop=stop, step=1)


def shifted(x: Expr, by: int) -> Expr:
    """Rows moved down by `by` (up where negative), zeros in their place."""
    n = x.shape[0]
    if by == 0:
        return x
    zeros = x * 0.0 if abs(by) >= n else _row(x, 0, abs(by)) * 0.0
    if abs(by) >= n:
        return zeros
    kept = _row(x, 0, n - by) if by > 0 else _row(x, -by, n)
    return F.cat(zeros, kept, dim=0) if by > 0 else F.cat(kept, zeros, dim=0)


def _transposed(ab: Expr, low: int, high: int) -> Expr:
    """The diagonals of the transpose: those of the matrix in reverse order, each moved."""
    n = ab.shape[1]
    rows = []
    for r in range(low + high, -1, -1):  # the diagonal j - i = high - r
        moved = shifted(_row(ab, r, r + 1).reshape((n, 1)), -(high - r))
        rows.append(moved.reshape((1, n)))
    return F.cat(*rows, dim=0)


def _banded_b(g: Expr, ab: Expr, low: int, high: int) -> Expr:
    return F.solve_banded(_transposed(ab, low, high), g, low=high, high=low)


def _banded_ab(g: Expr, ab: Expr, y: Expr, low: int, high: int) -> Expr:
    w = _banded_b(g, ab, low, high)
    n = ab.shape[1]
    rows = []
    for r in range(low + high + 1):  # ab[r, j] is the element i = j + r - high, j
        moved = shifted(w, high - r)
        rows.append((moved * y).sum((1,)).reshape((1, n)))
    return -F.cat(*rows, dim=0)


op("solve_banded(ab, b; low, high) -> y", family=Family(_infer_banded), numpy=_np_banded,
   vjp={"ab": _banded_ab, "b": _banded_b},
   doc="a^-1 b of a matrix in diagonals: ab[high + i - j, j] = a[i, j].")


# --- Sylvester's equation -----------------------------------------------------------------------


def _infer_sylvester(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    (_, s), (_, t), (q, u) = map(_float_matrix, inputs)
    if s[-1] != s[-2] or t[-1] != t[-2] or u[-2:] != (s[-1], t[-1]):
        raise InferenceError("a x + x b = q needs square a and b, and q of their sizes")
    batch = broadcast_shapes(broadcast_shapes(s[:-2], t[:-2]), u[:-2])
    assert batch is not None
    return (q.with_shape((*batch, *u[-2:])),)


def _np_sylvester(a: Array, b: Array, q: Array) -> Array:
    solve = _linalg().solve_sylvester
    return _each(solve, (2, 2, 2), a, b, q).astype(q.dtype, copy=False)


def _sylvester_q(g: Expr, a: Expr, b: Expr) -> Expr:
    return F.sylvester(a.mT, b.mT, g)


op("sylvester(a, b, q) -> x", family=Family(_infer_sylvester), numpy=_np_sylvester,
   vjp={"a": lambda g, a, b, x: -(_sylvester_q(g, a, b) @ x.mT),
        "b": lambda g, a, b, x: -(x.mT @ _sylvester_q(g, a, b)),
        "q": _sylvester_q},
   doc="a x + x b = q.")


# --- Riccati equations --------------------------------------------------------------------------


def _infer_riccati(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    x, shape = _float_matrix(inputs[0])
    if shape[-1] != shape[-2] or any(_float_matrix(t)[1] != shape for t in inputs):
        raise InferenceError("a, s and q of a Riccati equation are square, of one size")
    return (x,)


def _np_riccati(name: str) -> Callable[[Array, Array, Array], Array]:
    def one(a: Array, s: Array, q: Array) -> Array:
        eye = np.eye(len(a), dtype=a.dtype)
        w, v = np.linalg.eigh(s)  # s = b r^-1 b^T, whatever b was
        root = v * np.sqrt(np.maximum(w, 0.0))
        result: Array = getattr(_linalg(), name)(a, root, q, eye)
        return result.astype(a.dtype, copy=False)

    return lambda a, s, q: _each(one, (2, 2, 2), a, s, q)


def _care_q(g: Expr, a: Expr, s: Expr, x: Expr) -> Expr:
    closed = a - s @ x  # the change of x solves closed^T dx + dx closed = -(dq + ...)
    return -F.sylvester(closed, closed.mT, (g + g.mT) * 0.5)


def _care_a(g: Expr, a: Expr, s: Expr, x: Expr) -> Expr:
    return x @ _care_q(g, a, s, x) * 2.0


def _care_s(g: Expr, a: Expr, s: Expr, x: Expr) -> Expr:
    return -(x @ _care_q(g, a, s, x) @ x)


op("care(a, s, q) -> x", family=Family(_infer_riccati), numpy=_np_riccati("solve_continuous_are"),
   vjp={"a": _care_a, "s": _care_s, "q": lambda g, a, s, x: _care_q(g, a, s, x)},
   doc="a^T x + x a - x s x + q = 0, with symmetric s and q.")


def _stein(a: Expr, q: Expr) -> Expr:
    """x = a x a^T + q."""
    n = a.shape[-1]
    left = eye_like(n * n, a) - _kron(a, a)
    return F.solve(left, q.reshape((n * n, 1))).reshape((n, n))


def _kron(a: Expr, b: Expr) -> Expr:
    n = a.shape[-1]
    return (a.reshape((n, 1, n, 1)) * b.reshape((1, n, 1, n))).reshape((n * n, n * n))


def _gain(a: Expr, s: Expr, x: Expr) -> Expr:
    """(1 + s x)^-1 a, the closed loop."""
    return F.solve(eye_like(a.shape[-1], a) + s @ x, a)


def _dare_q(g: Expr, a: Expr, s: Expr, x: Expr) -> Expr:
    return _stein(_gain(a, s, x), (g + g.mT) * 0.5)


def _dare_a(g: Expr, a: Expr, s: Expr, x: Expr) -> Expr:
    return x @ _gain(a, s, x) @ _dare_q(g, a, s, x) * 2.0


def _dare_s(g: Expr, a: Expr, s: Expr, x: Expr) -> Expr:
    half = x @ _gain(a, s, x)
    return -(half @ _dare_q(g, a, s, x) @ half.mT)


op("dare(a, s, q) -> x", family=Family(_infer_riccati), numpy=_np_riccati("solve_discrete_are"),
   vjp={"a": _dare_a, "s": _dare_s, "q": lambda g, a, s, x: _dare_q(g, a, s, x)},
   doc="a^T x (1 + s x)^-1 a - x + q = 0, with symmetric s and q.")

# --- functions of a matrix ----------------------------------------------------------------------


def _real_function(name: str) -> Callable[[Array], Array]:
    def call(x: Array) -> Array:
        # an estimate of a norm within draws from numpy's global state, which stays as it was
        before = np.random.get_state()
        try:
            return _each(one, (2,), x)
        finally:
            np.random.set_state(before)

    def one(m: Array) -> Array:
        y: Array = np.asarray(getattr(_linalg(), name)(m.astype(np.float64)))
        if y.dtype.kind == "c":  # of a matrix with eigenvalues that are negative
            small = abs(y.imag) <= 1e-9 * max(1.0, abs(y).max(initial=0.0))
            y = np.where(small, y.real, np.nan)
        return y.astype(m.dtype, copy=False)

    return call


def _np_eigh(x: Array, *, driver: str) -> tuple[Array, Array]:
    def one(m: Array) -> Any:
        if driver == "tridiagonal":
            return _linalg().eigh_tridiagonal(np.diagonal(m), np.diagonal(m, -1))
        return _linalg().eigh(m, lower=driver == "lower", check_finite=False)

    made = [one(x[at]) for at in np.ndindex(*x.shape[:-2])] if x.size else []
    values = np.array([w for w, _ in made], x.dtype).reshape(x.shape[:-1])
    return values, np.array([v for _, v in made], x.dtype).reshape(x.shape)


def by_block(kind: str, x: Expr, g: Expr) -> Expr:
    """The derivative of a function of x in the direction g: the corner of f([[x, g], [0, x]])."""
    n = x.shape[-1]
    top = F.cat(x, g, dim=x.rank - 1)
    bottom = F.cat(x * 0.0, x, dim=x.rank - 1)
    whole = getattr(F, kind)(F.cat(top, bottom, dim=x.rank - 2))
    rows = F.slice(whole, dim=x.rank - 2, start=0, stop=n, step=1)
    return F.slice(rows, dim=x.rank - 1, start=n, stop=2 * n, step=1)


op("eigh_by(x; driver) -> values, vectors", family=Family(infer_eigh), vjp={"x": eigh_vjp},
   numpy=_np_eigh,
   doc="`eigh` with the signs that scipy's drivers give: lower, upper or tridiagonal.")
op("matrix_sqrt(x) -> y", family=Family(_infer_square), numpy=_real_function("sqrtm"),
   vjp={"x": lambda g, y: F.sylvester(y.mT, y.mT, g)},
   doc="The principal root; of a matrix without a real one, nan.")
op("matrix_log(x) -> y", family=Family(_infer_square), numpy=_real_function("logm"),
   vjp={"x": lambda g, x: by_block("matrix_log", x.mT, g)},
   doc="The principal logarithm; of a matrix without a real one, nan.")
