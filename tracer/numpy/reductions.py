"""numpy functions that reduce, scan and order: sums, extremes, moments, sorting, quantiles."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradof.ops.expr import Expr, F
from gradof.tracer.numpy.functions import (
    Adaptor,
    as_array,
    axes,
    axis_of,
    composed,
    expression,
    query,
    reduced,
    squared_size,
    traced_all,
)
from gradof.tracer.numpy.recorder import Recorder

_F64 = np.dtype(np.float64)

# --- sums and products ----------------------------------------------------------------------------


def _total(function: Any, kind: str, start: float) -> None:
    def reduce(r: Recorder, a: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False,
               initial: Any = None, where: Any = True) -> Expr:  # fmt: skip
        array = r.traced(as_array(a))
        used = dtype or function(np.zeros((), array.dtype)).dtype
        x = array.expr.cast(r.ir_dtype(used))
        if where is not True:
            x = F.where(r.traced(where).expr, x, start if x.dtype.is_inexact else int(start))
        dims = reduced(axis, x.rank)
        y: Expr = x if not dims else getattr(F, kind)(x, dims=dims, keepdims=bool(keepdims))
        if initial is None:
            return y
        other = r.operand(initial, np.dtype(used))
        more: Expr = y + other if kind == "sum" else y * other
        return more

    expression(function)(reduce)


_total(np.sum, "sum", 0.0)
_total(np.prod, "prod", 1.0)


@expression(np.mean)
def _mean(r: Recorder, a: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False,
          *, where: Any = True) -> Expr:  # fmt: skip
    array = r.traced(as_array(a))
    if array.dtype == np.float16 and dtype is None:
        dtype = np.float32  # as numpy: half precision is averaged in single
    elif array.dtype.kind not in "fc" and dtype is None:
        dtype = _F64
    x = array.expr.cast(r.ir_dtype(dtype or array.dtype))
    dims = axes(axis, x.rank)
    if where is not True:
        mask = r.traced(where).expr
        count = mask.cast(x.dtype).expand(x.shape).sum(dims, bool(keepdims))
        return F.where(mask, x, 0.0).sum(dims, bool(keepdims)) / count
    return F.mean(x, dims=dims, keepdims=bool(keepdims))


@composed(np.average)
def _average(
    a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: bool = False
) -> Any:
    a = as_array(a)
    if weights is None:
        mean = np.mean(a, axis=axis, keepdims=keepdims)
        count = np.size(a) / max(np.size(mean), 1)
        return (mean, np.broadcast_to(count, np.shape(mean))) if returned else mean
    w = as_array(weights)
    rank = np.ndim(a)
    if axis is not None and np.ndim(w) == 1 and rank > 1:
        w = np.reshape(w, [-1 if d == axis_of(axis, rank) else 1 for d in range(rank)])
    total = np.sum(np.broadcast_to(w, np.shape(a)), axis=axis, keepdims=keepdims)
    mean = np.sum(a * w, axis=axis, keepdims=keepdims) / total
    return (mean, np.broadcast_to(total, np.shape(mean))) if returned else mean


def _cast(x: Any, dtype: Any) -> Any:
    """The elements whose variance is asked for, in the dtype in which it is computed."""
    if dtype is not None and x.dtype.kind == "c" and np.dtype(dtype).kind != "c":
        raise TypeError("argument dtype that drops imaginary parts")
    return x if dtype is None else x.astype(dtype)


@composed(np.var)
def _var(
    a: Any, axis: Any = None, dtype: Any = None, ddof: float = 0, keepdims: bool = False,
    *, where: Any = True, mean: Any = None, correction: Any = None,
) -> Any:  # fmt: skip
    x = as_array(a)
    x = _cast(x, dtype)
    dims = axes(axis, x.ndim)
    ddof = ddof if correction is None else correction
    centre = np.mean(x, axis=dims, keepdims=True, where=where) if mean is None else mean
    squares = squared_size(x - centre)
    if where is not True:
        count = np.sum(np.broadcast_to(where, x.shape), axis=dims, keepdims=keepdims)
        freedom = np.maximum(count - ddof, 0)
        return np.sum(squares, axis=dims, keepdims=keepdims, where=where) / freedom
    n = int(np.prod([x.shape[d] for d in dims], dtype=np.int64))
    return np.sum(squares, axis=dims, keepdims=keepdims) / float(max(n - ddof, 0))


@composed(np.std)
def _std(a: Any, *args: Any, **kwargs: Any) -> Any:
    return safe_root(np.var(a, *args, **kwargs))


def safe_root(square: Any) -> Any:
    """The square root, whose gradient at 0 is 0, as torch's std and norm have it."""
    array = traced_all(square)[0]
    return array.recorder.wrap(array.recorder.numpy(np.sqrt, array), F.safe_sqrt(array.expr))


@composed(np.cov)
def _cov(m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: Any = None,
         fweights: Any = None, aweights: Any = None) -> Any:  # fmt: skip
    x = np.atleast_2d(m)
    x = x.T if not rowvar and x.shape[0] != 1 else x
    if y is not None:
        z = np.atleast_2d(y)
        x = np.concatenate([x, z.T if not rowvar and z.shape[0] != 1 else z])
    ddof = (0 if bias else 1) if ddof is None else ddof
    if fweights is None and aweights is None:
        centred = x - np.mean(x, axis=1, keepdims=True)
        freedom = float(max(x.shape[1] - ddof, 0))
        return np.squeeze((centred @ np.conj(centred.T)) / freedom)
    own = 1.0 if aweights is None else as_array(aweights)
    w = own if fweights is None else own * as_array(fweights)
    total = np.sum(w)
    centred = x - np.sum(x * w, axis=1, keepdims=True) / total
    freedom = total - (ddof if aweights is None else ddof * np.sum(w * own) / total)
    return np.squeeze((centred * w) @ np.conj(centred.T) / np.maximum(freedom, 0.0))


@composed(np.corrcoef)
def _corrcoef(x: Any, y: Any = None, rowvar: bool = True) -> Any:
    c = np.cov(x, y, rowvar)
    if np.ndim(c) == 0:
        return c / c
    d = np.sqrt(np.diag(c))
    return np.clip(c / d[:, None] / d[None, :], -1, 1)


# --- extremes -------------------------------------------------------------------------------------


def _extreme_complex(is_largest: bool, z: Any, axis: Any, keepdims: bool) -> Any:
    """By the real parts, where those are equal by the others."""
    extreme, fill = (np.max, -np.inf) if is_largest else (np.min, np.inf)
    real = extreme(z.real, axis=axis, keepdims=True)
    imag = extreme(np.where(z.real == real, z.imag, fill), axis=axis, keepdims=True)
    unknown = np.any(np.isnan(z.real) | np.isnan(z.imag), axis=axis, keepdims=True)
    best = np.where(unknown, np.nan, real) + 1j * np.where(unknown, np.nan, imag)
    return best if keepdims else np.squeeze(best, axis=axis)


def _extreme(kind: str) -> Adaptor:
    def adaptor(r: Recorder, a: Any, axis: Any = None, keepdims: bool = False,
                initial: Any = None, where: Any = True) -> Expr:  # fmt: skip
        array = r.traced(as_array(a))
        if array.dtype.kind == "c":
            if initial is not None or where is not True:
                raise r.unsupported(f"{kind} of complex numbers with initial or where")
            found: Expr = _extreme_complex(kind == "amax", array, axis, keepdims).expr
            return found
        x = array.expr
        if where is not True:
            if initial is None:
                raise r.unsupported(f"{kind} with where and no initial")
            x = F.where(r.traced(where).expr, x, r.operand(initial, array.dtype))
        dims = reduced(axis, x.rank)
        if initial is not None and any(x.shape[d] == 0 for d in dims):
            shape = np.sum(np.empty(x.shape), axis=dims, keepdims=bool(keepdims)).shape
            nothing, always = r.full(shape, array.dtype, 0), r.full(shape, np.dtype(bool), 1)
            return F.where(always, r.operand(initial, array.dtype), nothing)
        y = getattr(F, kind)(x, dims=dims, keepdims=bool(keepdims)) if dims else x
        if initial is None:
            return y
        larger = F.maximum if kind == "amax" else F.minimum
        return larger(y, r.operand(initial, array.dtype))

    return adaptor


expression(np.max, np.amax)(_extreme("amax"))
expression(np.min, np.amin)(_extreme("amin"))


@composed(np.ptp)
def _ptp(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return np.max(a, axis=axis, keepdims=keepdims) - np.min(a, axis=axis, keepdims=keepdims)


def _logical(kind: str) -> Adaptor:
    def adaptor(r: Recorder, a: Any, axis: Any = None, keepdims: bool = False,
                *, where: Any = True) -> Expr:  # fmt: skip
        x = r.traced(as_array(a)).expr
        if where is not True:
            mask = r.traced(where).expr
            x = (x != 0) if x.dtype.kind != "bool" else x
            x = (x & mask) if kind == "any" else (x | ~mask)
        dims = reduced(axis, x.rank)
        result: Expr = getattr(F, kind)(x, dims=dims, keepdims=bool(keepdims))
        return result

    return adaptor


expression(np.any)(_logical("any"))
expression(np.all)(_logical("all"))


@composed(np.count_nonzero)
def _count_nonzero(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return np.sum(a != 0, axis=axis, keepdims=keepdims)


def _arg(kind: str) -> Adaptor:
    def adaptor(r: Recorder, a: Any, axis: Any = None, *, keepdims: bool = False) -> Expr:
        array = r.traced(as_array(a))
        x, rank = array.expr, array.ndim
        dim = 0 if axis is None else axis_of(axis, rank)
        if axis is None or (rank == 0 and axis in (0, -1)):
            x, dim = x.reshape((array.size,)), 0
        y: Expr = getattr(F, kind)(x, dim=dim, keepdims=bool(keepdims))
        return y.reshape((1,) * rank) if (axis is None or rank == 0) and keepdims else y

    return adaptor


expression(np.argmax)(_arg("argmax"))
expression(np.argmin)(_arg("argmin"))

# --- nan-skipping ---------------------------------------------------------------------------------


def _nan_skipping(function: Any, base: Any, fill: float) -> None:
    def adaptor(a: Any, axis: Any = None, *args: Any, **kwargs: Any) -> Any:
        return base(np.where(np.isnan(a), fill, a), axis, *args, **kwargs)

    composed(function)(adaptor)


_nan_skipping(np.nansum, np.sum, 0.0)
_nan_skipping(np.nanprod, np.prod, 1.0)
_nan_skipping(np.nancumsum, np.cumsum, 0.0)
_nan_skipping(np.nancumprod, np.cumprod, 1.0)
_nan_skipping(np.nanargmax, np.argmax, -np.inf)
_nan_skipping(np.nanargmin, np.argmin, np.inf)


def _nan_extreme(function: Any, base: Any, fill: float) -> None:
    def adaptor(a: Any, axis: Any = None, keepdims: Any = False, initial: Any = None,
                where: Any = True) -> Any:  # fmt: skip
        left_out = np.isnan(a) | np.logical_not(where)
        best = base(np.where(left_out, fill, a), axis=axis, keepdims=keepdims, initial=initial)
        none = np.all(left_out, axis=axis, keepdims=keepdims)
        return best if initial is not None else np.where(none, np.nan, best)

    composed(function)(adaptor)


_nan_extreme(np.nanmax, np.max, -np.inf)
_nan_extreme(np.nanmin, np.min, np.inf)


@composed(np.nanmean)
def _nanmean(a: Any, axis: Any = None, dtype: Any = None, keepdims: Any = False,
             *, where: Any = True) -> Any:  # fmt: skip
    kept = ~np.isnan(a) & where
    total = np.sum(np.where(kept, a, 0.0), axis=axis, dtype=dtype, keepdims=keepdims)
    return total / np.sum(kept, axis=axis, keepdims=keepdims)


@composed(np.nanvar)
def _nanvar(
    a: Any, axis: Any = None, dtype: Any = None, ddof: float = 0, keepdims: Any = False,
    *, where: Any = True, mean: Any = None, correction: Any = None,
) -> Any:  # fmt: skip
    x = _cast(a, dtype)
    ddof = ddof if correction is None else correction
    kept = ~np.isnan(x) & where
    centre = np.nanmean(x, axis=axis, keepdims=True, where=where) if mean is None else mean
    squares = squared_size(np.where(kept, x - centre, 0.0))
    freedom = np.sum(kept, axis=axis, keepdims=keepdims) - ddof
    variance = np.sum(squares, axis=axis, keepdims=keepdims) / freedom
    return np.where(freedom <= 0, np.nan, variance)


@composed(np.nanstd)
def _nanstd(a: Any, *args: Any, **kwargs: Any) -> Any:
    return safe_root(np.nanvar(a, *args, **kwargs))


# --- scans ----------------------------------------------------------------------------------------


def _running(kind: str, function: Any) -> Adaptor:
    def adaptor(r: Recorder, a: Any, axis: Any = None, dtype: Any = None) -> Expr:
        array = r.traced(as_array(a))
        x = array.expr.cast(r.ir_dtype(dtype or function(np.zeros(1, array.dtype)).dtype))
        if axis is None or (x.rank == 0 and axis in (0, -1)):
            x, axis = x.reshape((array.size,)), 0
        result: Expr = getattr(F, kind)(x, dim=axis_of(axis, x.rank))
        return result

    return adaptor


expression(np.cumsum)(_running("cumsum", np.cumsum))
expression(np.cumprod)(_running("cumprod", np.cumprod))


def _cumulative(function: Any, scan: Any, start: float) -> None:
    def adaptor(x: Any, /, *, axis: Any = None, dtype: Any = None,
                include_initial: bool = False) -> Any:  # fmt: skip
        dim = axis_of(0 if axis is None else axis, x.ndim)
        result = scan(x, axis=dim, dtype=dtype)
        if not include_initial:
            return result
        shape = [1 if d == dim else n for d, n in enumerate(x.shape)]
        return np.concatenate([np.full(shape, start, result.dtype), result], axis=dim)

    composed(function)(adaptor)


_cumulative(np.cumulative_sum, np.cumsum, 0)
_cumulative(np.cumulative_prod, np.cumprod, 1)


# --- order ----------------------------------------------------------------------------------------


def _sorted(place: int) -> Adaptor:
    def adaptor(r: Recorder, a: Any, axis: Any = -1, kind: Any = None, order: Any = None,
                *, stable: Any = None) -> Expr:  # fmt: skip
        if order is not None:
            raise TypeError("argument order")
        array = r.traced(as_array(a))
        if array.dtype.kind == "c":
            lines: Any = np.ravel(array) if axis is None else array
            made: Expr = _sorted_complex(lines, axis_of(axis or 0, lines.ndim))[place].expr
            return made
        x = array.expr
        if axis is None or (place == 1 and x.rank == 0 and axis in (0, -1)):
            x, axis = x.reshape((array.size,)), 0
        dim = axis_of(axis, x.rank)
        return F.sort.multiple(x, dim=dim, descending=False, stable=True)[place]

    return adaptor


def _sorted_complex(x: Any, dim: int) -> tuple[Any, Any]:
    """By the real parts, where those are equal by the others; and the order."""
    first = np.argsort(x.imag, axis=dim)
    then = np.argsort(np.take_along_axis(x.real, first, dim), axis=dim)
    order = np.take_along_axis(first, then, dim)
    return np.take_along_axis(x, order, dim), order


expression(np.sort)(_sorted(0))
expression(np.argsort)(_sorted(1))


@expression(np.searchsorted)
def _searchsorted(r: Recorder, a: Any, v: Any, side: str = "left", sorter: Any = None) -> Expr:
    a = a if sorter is None else np.take(a, sorter)
    edges, x = r.traced(a), r.traced(as_array(v))
    dtype = r.ir_dtype(np.result_type(edges.dtype, x.dtype))
    left = edges.expr.cast(dtype)
    right = x.expr.cast(dtype).reshape((*x.shape, 1))
    below = left < right if side == "left" else left <= right
    if np.result_type(edges.dtype, x.dtype).kind == "f":  # nans come after all numbers
        behind = right != right
        below = below | (behind if side == "right" else behind & (left == left))
    return below.cast(r.ir_dtype(np.int64)).sum((x.ndim,))


@composed(np.digitize)
def _digitize(x: Any, bins: Any, right: bool = False) -> Any:
    edges = as_array(bins)
    if len(edges) > 1 and edges[0] > edges[-1]:
        return len(edges) - np.searchsorted(edges[::-1], x, side="left" if right else "right")
    return np.searchsorted(bins, x, side="left" if right else "right")


query(np.shape, np.ndim, np.size, np.result_type, np.iscomplexobj, np.isrealobj, np.can_cast,
      np.min_scalar_type, np.common_type, np.diag_indices_from, np.tril_indices_from,
      np.triu_indices_from)  # fmt: skip
