"""Digital filters along one dim: correlation with a short row of weights, and recursive filters.

>>> F.correlate1d(x, w, dim=0)       # y[i] = sum_k w[k] x[i + k], where all of it is there
>>> F.lfilter(b, a, x)               # a[0] y[n] + a[1] y[n-1] + ... = b[0] x[n] + b[1] x[n-1] + ...

The adjoint of a recursive filter is the filter that runs backwards in time, from rest at the end.
The lowerings need scipy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradof.errors import InferenceError
from gradof.ir.attrs import Attr, Dense
from gradof.ir.types import TensorType, Type
from gradof.ops.expr import Expr, F, Like
from gradof.ops.families import known_shape, tensor
from gradof.ops.registry import Family, op

Array = NDArray[Any]


def _real(types: Sequence[Type]) -> list[TensorType]:
    found = [tensor(t) for t in types]
    if any(t.dtype != found[0].dtype or t.dtype.kind != "float" or t.dtype.bits < 32
           for t in found):  # fmt: skip
        raise InferenceError("operands of one dtype, f32 or f64, are due")
    return found


# --- correlation --------------------------------------------------------------------------------


def _infer_correlate(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    x, w = _real(inputs)
    shape, dim = list(known_shape(x)), attrs["dim"]
    if not isinstance(dim, int) or not 0 <= dim < len(shape) or len(known_shape(w)) != 1:
        raise InferenceError(f"a row of weights along a dim of {x} is due")
    shape[dim] -= known_shape(w)[0] - 1
    if shape[dim] < 0 or not known_shape(w)[0]:
        raise InferenceError(f"{x} is shorter than the weights {w}")
    return (x.with_shape(tuple(shape)),)


def _np_correlate(x: Array, w: Array, *, dim: int) -> Array:
    from scipy import ndimage

    k, n = len(w), x.shape[dim]
    shape = (*x.shape[:dim], n - k + 1, *x.shape[dim + 1 :])
    if not np.prod(shape):
        return np.zeros(shape, x.dtype)
    whole = ndimage.correlate1d(x, w, axis=dim, mode="constant", output=x.dtype)
    start = k // 2  # where the first element is whose weights are all inside
    kept: Array = whole[(slice(None),) * dim + (slice(start, start + n - k + 1),)]
    return kept.copy()


def _along(x: Expr, dim: int, start: int, stop: int) -> Expr:
    return F.slice(x, dim=dim, start=start, stop=stop, step=1)


def _correlate_x(g: Expr, w: Expr, dim: int) -> Expr:
    k = w.shape[0] - 1
    pads = tuple((k, k) if d == dim else (0, 0) for d in range(g.rank))
    padded = F.pad(g, pads=pads, value=0.0) if k else g
    return F.correlate1d(padded, F.flip(w, dims=(0,)), dim=dim)


def _correlate_w(g: Expr, x: Expr, w_like: Like, dim: int) -> Expr:
    n, dims = g.shape[dim], tuple(range(g.rank))
    parts = [(g * _along(x, dim, k, k + n)).sum(dims).reshape((1,)) for k in range(w_like.shape[0])]
    return F.cat(*parts, dim=0)


op("correlate1d(x, w; dim) -> y", family=Family(_infer_correlate), numpy=_np_correlate,
   vjp={"x": _correlate_x, "w": _correlate_w}, traits={"linear"},
   doc="Sums of neighbours along a dim, weighted; only where all of them are there.")

# --- recursive filters --------------------------------------------------------------------------


def _infer_lfilter(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    b, a, x = _real(inputs)
    if len(known_shape(b)) != 1 or len(known_shape(a)) != 1 or not known_shape(x):
        raise InferenceError("a filter has two rows of coefficients and an operand with a dim")
    return (x,)


def _np_lfilter(b: Array, a: Array, x: Array) -> Array:
    from scipy import signal

    result: Array = np.asarray(signal.lfilter(b, a, x, axis=-1)) if x.size else x.copy()
    return result.astype(x.dtype, copy=False)


def _backward(b: Expr, a: Expr, g: Expr) -> Expr:
    last = (g.rank - 1,)
    return F.flip(F.lfilter(b, a, F.flip(g, dims=last)), dims=last)


def _by_coefficient(w: Expr, x: Expr, count: int) -> Expr:
    """sum_n w[n] x[n - k], for each k."""
    last, n = x.rank - 1, x.shape[-1]
    dims = tuple(range(x.rank))
    parts = []
    for k in range(count):
        if k >= n:
            parts.append((w * 0.0).sum(dims).reshape((1,)))
            continue
        product = _along(w, last, k, n) * _along(x, last, 0, n - k)
        parts.append(product.sum(dims).reshape((1,)))
    return F.cat(*parts, dim=0)


def _one(a: Expr) -> Expr:
    return F.cast(Expr(a.emitter.body.constant(Dense.of(np.ones(1))), a.emitter), dtype=a.dtype)


op("lfilter(b, a, x) -> y", family=Family(_infer_lfilter), numpy=_np_lfilter,
   vjp={"b": lambda g, b_like, a, x: _by_coefficient(_backward(_one(a), a, g), x, b_like.shape[0]),
        "a": lambda g, a, y: -_by_coefficient(_backward(_one(a), a, g), y, a.shape[0]),
        "x": lambda g, b, a: _backward(b, a, g)},
   doc="A rational filter along the last dim, from rest.")

# --- spline coefficients ------------------------------------------------------------------------


def _infer_spline(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    (x,) = _real(inputs)
    dim = attrs["dim"]
    if attrs["mode"] not in ("mirror", "reflect", "grid-wrap"):
        raise InferenceError(f"a spline does not go on by {attrs['mode']!r}")
    if not isinstance(dim, int) or not 0 <= dim < len(known_shape(x)):
        raise InferenceError(f"{x} has no dim {dim}")
    return (x,)


def _np_spline(x: Array, *, order: int, mode: str, dim: int) -> Array:
    from scipy import ndimage

    if not x.size:
        return x.copy()
    made: Array = ndimage.spline_filter1d(x, order, axis=dim, output=np.float64, mode=mode)
    return made.astype(x.dtype, copy=False)


_INEXACT = 32  # elements: of fewer, scipy's filter between reflections is not quite symmetric


def _spline_matrix(g: Expr, order: int, dim: int) -> Expr:
    """The cotangent times the filter as a matrix."""
    n = g.shape[dim]
    order_of = (*(d for d in range(g.rank) if d != dim), dim)
    back = tuple(sorted(range(g.rank), key=order_of.__getitem__))
    matrix = _np_spline(np.eye(n), order=order, mode="reflect", dim=0)
    rows = g.permute(order_of).reshape((g.type.size // n, n))
    constant = Expr(g.emitter.body.constant(Dense.of(matrix)), g.emitter)
    product = rows @ F.cast(constant, dtype=g.dtype)
    return product.reshape(tuple(g.shape[d] for d in order_of)).permute(back)


def _spline_x(g: Expr, order: int, mode: str, dim: int) -> Expr:
    def filtered(x: Expr) -> Expr:
        return F.spline_filter(x, order=order, mode=mode, dim=dim)

    if mode == "reflect" and g.shape[dim] <= _INEXACT:
        return _spline_matrix(g, order, dim)
    if mode != "mirror" or g.shape[dim] == 1:  # symmetric
        return filtered(g)
    # an end has one neighbour that counts twice: symmetric when the ends count half
    half = np.ones(g.shape[dim])
    half[[0, -1]] = 0.5
    shape = tuple(-1 if d == dim else 1 for d in range(g.rank))

    def times(x: Expr, by: Array) -> Expr:
        weight = Expr(x.emitter.body.constant(Dense.of(by.reshape(shape))), x.emitter)
        return x * F.cast(weight, dtype=x.dtype)

    return times(filtered(times(g, 1.0 / half)), half)


op("spline_filter(x; order, mode, dim) -> y", family=Family(_infer_spline), numpy=_np_spline,
   vjp={"x": _spline_x}, traits={"linear"},
   doc="Coefficients of the B-spline through the elements along a dim.")
