"""numpy functions that choose elements, fill arrays, and change them in place."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from gradof.ops.expr import Expr, F
from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.functions import (
    Adaptor,
    as_array,
    axis_of,
    by_parts,
    composed,
    expression,
    inplace,
    traced_all,
    whole,
)
from gradof.tracer.numpy.recorder import Recorder, is_weak
from gradof.tracer.state.branch_code import after_call
from gradof.tracer.state.source import user_frame

# --- selection ------------------------------------------------------------------------------------


@composed(np.where)
def _where(condition: Any, x: Any = None, y: Any = None) -> Any:
    if x is None and y is None:
        return np.nonzero(condition)
    x, y = (v if is_weak(v) else as_array(v) for v in (x, y))
    c = as_array(condition)
    r = next(v.recorder for v in (c, x, y) if isinstance(v, TracedArray))
    want = r.numpy(np.where, c, x, y)
    mask = r.traced(c).expr
    mask = mask if mask.dtype.kind == "bool" else mask != 0
    a, b = r.operand(x, want.dtype), r.operand(y, want.dtype)
    if not isinstance(a, Expr) and not isinstance(b, Expr):
        a = r.full((), want.dtype, a)
    return r.wrap(want, F.where(mask, a, b))


@composed(np.clip)
def _clip(a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Any:
    low, high = (a_min if min is None else min), (a_max if max is None else max)
    x = a if low is None else np.maximum(a, low)
    return np.copy(x) if high is None else np.minimum(x, high)


@composed(np.nan_to_num)
def _nan_to_num(
    x: Any, copy: bool = True, nan: float = 0.0, posinf: Any = None, neginf: Any = None
) -> Any:
    if not copy:
        x[...] = np.nan_to_num(x, True, nan, posinf, neginf)
        return x
    if x.dtype.kind == "c":
        return by_parts(lambda part: np.nan_to_num(part, True, nan, posinf, neginf), x)
    if x.dtype.kind != "f":
        return np.copy(x)
    info = np.finfo(x.dtype)
    high = float(info.max) if posinf is None else posinf
    low = float(info.min) if neginf is None else neginf
    finite = np.where(np.isinf(x), np.where(x > 0, high, low), x)
    return np.where(np.isnan(x), nan, finite)


@composed(np.select)
def _select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    given = [*choicelist, default]
    dtype = np.result_type(*(c if is_weak(c) else as_array(c).dtype for c in given))
    *choices, result = (as_array(c).astype(dtype) for c in given)
    for condition, choice in reversed(list(zip(condlist, choices, strict=True))):
        result = np.where(condition, choice, result)
    return result


@composed(np.piecewise)
def _piecewise(x: Any, condlist: Any, funclist: Any, *args: Any, **kw: Any) -> Any:
    conditions = condlist if isinstance(condlist, (list, tuple)) else [condlist]
    pieces = list(funclist)
    result = pieces.pop() if len(pieces) == len(conditions) + 1 else 0
    result = result(x, *args, **kw) if callable(result) else result
    for condition, piece in zip(conditions, pieces, strict=True):
        value = piece(x, *args, **kw) if callable(piece) else piece
        result = np.where(condition, value, result)
    return traced_all(x, result)[1].astype(x.dtype)


@composed(np.choose)
def _choose(a: Any, choices: Any, mode: str = "raise") -> Any:
    options = [as_array(c) for c in choices]
    which = _in_bounds(_places(a), len(options), mode)
    shape = np.broadcast_shapes(np.shape(which), *(np.shape(c) for c in options))
    stacked = np.stack([np.broadcast_to(c, shape) for c in options])
    return np.take_along_axis(stacked, np.broadcast_to(which, shape)[None], axis=0)[0]


def _places(indices: Any) -> Any:
    """Truths are the numbers 0 and 1 to functions that take places, and no mask; [] is of these."""
    places = as_array(indices)
    none = not places.size and not isinstance(indices, np.ndarray)
    return places.astype(np.intp) if places.dtype == bool or none else places


def _in_bounds(indices: Any, size: int, mode: str) -> Any:
    """Indices under numpy's `mode`; with "clip", negative ones are 0 too."""
    if mode == "raise":
        return indices
    return np.mod(indices, size) if mode == "wrap" else np.clip(indices, 0, size - 1)


@composed(np.take)
def _take(a: Any, indices: Any, axis: Any = None, mode: str = "raise") -> Any:
    a = traced_all(a, indices)[0] if isinstance(indices, TracedArray) else as_array(a)
    indices = _places(indices)
    if mode != "raise":
        size = a.size if axis is None else a.shape[axis]
        indices = _in_bounds(indices, size, mode)
    if axis is None:
        return np.ravel(a)[indices]
    return a[(*(slice(None),) * axis_of(axis, a.ndim), indices)]


@expression(np.take_along_axis)
def _take_along_axis(r: Recorder, arr: Any, indices: Any, axis: int = -1) -> Expr:
    array, places = r.traced(arr), r.traced(indices)
    x, index = array.expr, places.expr.cast(r.ir_dtype(np.int64))
    if axis is None:
        x, axis = x.reshape((array.size,)), 0
    dim = axis_of(axis, x.rank)
    lead = [max(m, n) for m, n in zip(x.shape, index.shape, strict=True)]
    index = index.expand((*lead[:dim], index.shape[dim], *lead[dim + 1 :]))
    x = x.expand((*lead[:dim], x.shape[dim], *lead[dim + 1 :]))
    index = F.in_range(index, size=x.shape[dim], wraps=True, error="index")
    return F.gather(x, index, dim=dim)


@composed(np.round, np.around)
def _round(a: Any, decimals: int = 0) -> Any:
    if a.dtype.kind == "c":
        return by_parts(lambda part: np.round(part, decimals), a)
    if a.dtype.kind != "f":
        if decimals >= 0:
            return np.copy(a)
        raise TypeError("argument decimals < 0 for integers")
    scale = 10.0 ** abs(decimals)
    if decimals == 0:
        return np.rint(a)
    return np.rint(a * scale) / scale if decimals > 0 else np.rint(a / scale) * scale


@composed(np.fix)
def _fix(x: Any) -> Any:
    return np.trunc(x)


@expression(np.sinc)
def _sinc(r: Recorder, x: Any) -> Expr:
    array = r.traced(as_array(x))
    dtype = array.dtype if array.dtype.kind in "fc" else np.dtype(np.float64)
    value = array.expr.cast(r.ir_dtype(dtype))
    if dtype in (np.float32, np.float64):
        return F.sinc(value)  # of half precision it does not round as numpy does
    at_zero = value == 0.0
    z = F.where(at_zero, 1.0, value * np.pi)
    return F.where(at_zero, 1.0, F.sin(z) / z)


@composed(np.isclose)
def _isclose(
    a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:
    b = as_array(b)
    b = b if b.dtype.kind in "fc" else b.astype(np.result_type(b.dtype, 1.0))
    near = (np.abs(a - b) <= atol + rtol * np.abs(b)) & np.isfinite(b)
    near = near | np.equal(a, b)
    return near | (np.isnan(a) & np.isnan(b)) if equal_nan else near


@composed(np.allclose)
def _allclose(a: Any, b: Any, *args: Any, **kwargs: Any) -> Any:
    return _is_true(np.all(np.isclose(a, b, *args, **kwargs)), "allclose")


@composed(np.array_equal)
def _array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    if np.shape(a1) != np.shape(a2):
        return False
    same = np.equal(a1, a2)
    same = same | (np.isnan(a1) & np.isnan(a2)) if equal_nan else same
    return _is_true(np.all(same), "array_equal")


@composed(np.array_equiv)
def _array_equiv(a1: Any, a2: Any) -> Any:
    try:
        np.broadcast_shapes(np.shape(a1), np.shape(a2))
    except ValueError:
        return False
    return _is_true(np.all(np.equal(a1, a2)), "array_equiv")


def _is_true(truth: Any, name: str) -> bool:
    """A bool, for the code that has called a function: it may branch on it right away."""
    frame = sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("gradof."):
        frame = frame.f_back
    if user_frame(frame) is not frame or type(truth) is not TracedArray or truth.is_constant:
        return bool(truth)
    return truth.decided(frame, after_call(frame.f_code, frame.f_lasti, name))


@composed(np.isposinf)
def _isposinf(x: Any) -> Any:
    return np.equal(x, np.inf)


@composed(np.isneginf)
def _isneginf(x: Any) -> Any:
    return np.equal(x, -np.inf)


# --- arrays like others ---------------------------------------------------------------------------


def _filled(value: float) -> Adaptor:
    def adaptor(r: Recorder, a: Any, dtype: Any = None, order: Any = "K", subok: Any = True,
                shape: Any = None, *, device: Any = None) -> Expr:  # fmt: skip
        like = r.traced(a)
        size = like.shape if shape is None else shape
        size = tuple(size) if isinstance(size, (tuple, list)) else (int(size),)
        kind = np.dtype(like.dtype if dtype is None else dtype)
        return r.full(size, kind, value if kind.kind == "f" else int(value))

    return adaptor


expression(np.zeros_like)(_filled(0.0))
expression(np.ones_like)(_filled(1.0))


@expression(np.empty_like)
def _empty_like(r: Recorder, *args: Any, **kwargs: Any) -> Expr:
    """Zeros: whatever is not assigned later should at least be the same at every call."""
    result: Expr = _filled(0.0)(r, *args, **kwargs)
    return result


@composed(np.full_like)
def _full_like(a: Any, fill_value: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
    result = np.zeros_like(a, dtype, *args, **kwargs)
    result[...] = fill_value
    return result


@expression(np.copy)
def _copy(r: Recorder, a: Any, order: str = "K", subok: bool = False) -> Expr:
    return F.copy(r.traced(a).expr)


@composed(np.linspace)
def _linspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, retstep: bool = False,
              dtype: Any = None, axis: int = 0) -> Any:  # fmt: skip
    num = whole(num)
    gaps = num - 1 if endpoint else num
    step = (stop - start) / float(max(gaps, 1))
    rank = np.ndim(step)
    at = np.reshape(np.arange(num, dtype=float), (num, *(1,) * rank))
    y = np.asarray(at.tolist()).reshape(at.shape) * step + start
    if endpoint and num > 1:  # the last element is `stop` exactly
        last = np.broadcast_to(stop, (1, *np.shape(y)[1:]))
        y = np.concatenate([y[:-1], last])
    y = y if axis == 0 else np.moveaxis(y, 0, axis)
    if dtype is not None:
        y = (np.floor(y) if np.issubdtype(dtype, np.integer) else y).astype(dtype)
    return (y, step if gaps > 0 else step * np.nan) if retstep else y


# --- in place -------------------------------------------------------------------------------------


def _target(r: Recorder, name: str, array: Any) -> TracedArray:
    if not isinstance(array, TracedArray):
        raise r.into_plain(f"numpy.{name} into a plain array")
    return array


@inplace(np.copyto)
def _copyto(r: Recorder, dst: Any, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    target = _target(r, "copyto", dst)
    if not np.can_cast(as_array(src).dtype, target.dtype, casting):  # type: ignore[arg-type]
        raise TypeError(f"cannot cast {as_array(src).dtype} to {target.dtype} ({casting})")
    target[...] = src if where is True else np.where(where, src, target)


@inplace(np.fill_diagonal)
def _fill_diagonal(r: Recorder, a: Any, val: Any, wrap: bool = False) -> None:
    target = _target(r, "fill_diagonal", a)
    probe = np.zeros(target.shape, bool)
    np.fill_diagonal(probe, True, wrap)
    places = np.nonzero(probe)
    count = len(places[0])
    values = val if np.ndim(val) == 0 else np.resize(as_array(val), count)
    target[tuple(p.tolist() for p in places)] = values


@inplace(np.put)
def _put(r: Recorder, a: Any, ind: Any, v: Any, mode: str = "raise") -> None:
    target = _target(r, "put", a)
    places = np.asarray(whole(ind)).reshape(-1)
    if not places.size:  # an empty list, of floats to numpy
        return
    if mode == "raise" and np.any(places >= target.size):
        raise IndexError(f"index {places.max()} is out of bounds for size {target.size}")
    places = places % target.size if mode == "raise" else _in_bounds(places, target.size, mode)
    where = np.unravel_index(places, target.shape)
    values = np.resize(as_array(v), len(places)) if np.ndim(v) else v
    target[tuple(w.tolist() for w in where)] = values


@inplace(np.putmask)
def _putmask(r: Recorder, a: Any, mask: Any, values: Any) -> None:
    """Element i takes values[i], not the next of them; fewer are repeated."""
    target = _target(r, "putmask", a)
    repeated = np.reshape(np.resize(as_array(values), target.size), target.shape)
    target[...] = np.where(mask, repeated, target)


@inplace(np.place)
def _place(r: Recorder, arr: Any, mask: Any, vals: Any) -> None:
    """The n-th true element takes vals[n]; fewer are repeated."""
    target = _target(r, "place", arr)
    values = np.ravel(as_array(vals))
    chosen = np.reshape(np.not_equal(mask, 0), -1)
    nth = np.cumsum(chosen) - 1
    picked = np.take(values, np.mod(nth, len(values)))
    target[...] = np.where(np.reshape(chosen, target.shape),
                           np.reshape(picked, target.shape), target)  # fmt: skip


@inplace(np.put_along_axis)
def _put_along_axis(r: Recorder, arr: Any, indices: Any, values: Any, axis: int) -> None:
    target = _target(r, "put_along_axis", arr)
    dim = axis_of(axis, target.ndim)
    grid = np.ogrid[tuple(slice(n) for n in np.shape(indices))]
    index = tuple(indices if d == dim else g.tolist() for d, g in enumerate(grid))
    target[index] = values
