"""`__array_function__`: numpy functions with axes, shapes and keywords.

Two kinds of adaptors. `@expression(np.sum)` emits IR and returns the Expr; the concrete result is computed by
numpy itself, and checked against it. `@composed(np.outer)` is written in other numpy functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradof.errors import InferenceError
from gradof.ops.expr import Expr, F
from gradof.tracer.numpy_array import TracedArray, View
from gradof.tracer.numpy_recorder import Recorder, ir_dtype, real

Adaptor = Callable[..., Any]
EXPRESSIONS: dict[Any, Adaptor] = {}
COMPOSED: dict[Any, Adaptor] = {}


def expression(*functions: Any) -> Callable[[Adaptor], Adaptor]:
    """Register an adaptor `(recorder, *args, **kwargs) -> Expr`."""

    def register(adaptor: Adaptor) -> Adaptor:
        EXPRESSIONS.update(dict.fromkeys(functions, adaptor))
        return adaptor

    return register


def composed(*functions: Any) -> Callable[[Adaptor], Adaptor]:
    """Register an adaptor `(*args, **kwargs) -> result` written in other numpy functions."""

    def register(adaptor: Adaptor) -> Adaptor:
        COMPOSED.update(dict.fromkeys(functions, adaptor))
        return adaptor

    return register


def record_function(
    recorder: Recorder, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Record one call; UnsupportedOpError for a function without adaptor."""
    recorder.enter()
    out = kwargs.pop("out", None) if "out" in kwargs else None
    if out is not None and not isinstance(out, TracedArray):
        raise recorder.unsupported(
            f"{func.__name__} into a plain array, where the gradient would be lost",
            "drop `out`, or give it a traced array",
        )
    if func in COMPOSED:
        result = COMPOSED[func](*args, **kwargs)
    elif func in EXPRESSIONS:
        result = _record_expression(recorder, func, args, kwargs)
    else:
        raise recorder.unsupported(f"numpy.{func.__name__}")
    if out is not None:
        recorder.handlers.set_item(out, ..., result)
        return out
    return result


def _record_expression(
    recorder: Recorder, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    with np.errstate(all="ignore"):
        value = func(*map(real, args), **real(kwargs))
    try:
        result = EXPRESSIONS[func](recorder, *args, **kwargs)
    except InferenceError as error:
        raise recorder.unsupported(f"numpy.{func.__name__}: {error.message}") from error
    except TypeError as error:
        if "argument" not in str(error):
            raise
        raise recorder.unsupported(f"numpy.{func.__name__} called so: {error}") from error
    view = result[1] if isinstance(result, tuple) else None
    expr = result[0] if isinstance(result, tuple) else result
    want = ir_dtype(np.asarray(value).dtype)
    if expr.dtype != want:
        expr = F.cast(expr, dtype=want)
    return recorder.wrap(value, expr, view)


# --- helpers --------------------------------------------------------------------------------------


def axes(axis: Any, rank: int) -> tuple[int, ...]:
    """An `axis` argument as sorted non-negative dims."""
    if axis is None:
        return tuple(range(rank))
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    return tuple(sorted(a + rank if a < 0 else a for a in given))


def axis_of(axis: int, rank: int) -> int:
    """One axis as a non-negative dim."""
    return axis + rank if axis < 0 else int(axis)


def _float(x: Expr) -> Expr:
    return x if x.dtype.is_float else x.cast(ir_dtype(np.float64))


# --- reductions -----------------------------------------------------------------------------------


@expression(np.sum)
def _sum(r: Recorder, a: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Expr:
    x = r.traced(a).expr
    if dtype is not None:
        x = x.cast(ir_dtype(dtype))
    elif not x.dtype.is_float:
        x = x.cast(ir_dtype(np.sum(np.zeros((), r.traced(a).dtype)).dtype))
    dims = axes(axis, x.rank)
    return x if not dims else x.sum(dims, bool(keepdims))


@expression(np.prod)
def _prod(r: Recorder, a: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Expr:
    x = r.traced(a).expr
    x = x.cast(ir_dtype(dtype if dtype is not None else np.prod(real(a)).dtype))
    return F.prod(x, dims=axes(axis, x.rank), keepdims=bool(keepdims))


@expression(np.mean)
def _mean(r: Recorder, a: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Expr:
    x = _float(r.traced(a).expr) if dtype is None else r.traced(a).expr.cast(ir_dtype(dtype))
    return F.mean(x, dims=axes(axis, x.rank), keepdims=bool(keepdims))


@composed(np.average)
def _average(a: Any, axis: Any = None, weights: Any = None, keepdims: bool = False) -> Any:
    if weights is None:
        return np.mean(a, axis=axis, keepdims=keepdims)
    w = weights
    if axis is not None and np.ndim(real(w)) == 1 and np.ndim(real(a)) > 1:
        rank = np.ndim(real(a))
        w = np.reshape(w, [-1 if d == axis_of(axis, rank) else 1 for d in range(rank)])
    total = np.sum(np.broadcast_to(w, np.shape(real(a))), axis=axis, keepdims=keepdims)
    return np.sum(a * w, axis=axis, keepdims=keepdims) / total


@composed(np.var)
def _var(
    a: Any, axis: Any = None, dtype: Any = None, ddof: float = 0, keepdims: bool = False
) -> Any:
    x = a if dtype is None else a.astype(dtype)
    dims = axes(axis, x.ndim)
    count = int(np.prod([x.shape[d] for d in dims], dtype=np.int64))
    centred = x - np.mean(x, axis=dims, keepdims=True)
    return np.sum(centred * centred, axis=dims, keepdims=keepdims) / float(count - ddof)


@composed(np.std)
def _std(
    a: Any, axis: Any = None, dtype: Any = None, ddof: float = 0, keepdims: bool = False
) -> Any:
    return np.sqrt(np.var(a, axis=axis, dtype=dtype, ddof=ddof, keepdims=keepdims))


@expression(np.max, np.amax)
def _max(r: Recorder, a: Any, axis: Any = None, keepdims: bool = False) -> Expr:
    x = r.traced(a).expr
    return F.amax(x, dims=axes(axis, x.rank), keepdims=bool(keepdims))


@expression(np.min, np.amin)
def _min(r: Recorder, a: Any, axis: Any = None, keepdims: bool = False) -> Expr:
    x = r.traced(a).expr
    return F.amin(x, dims=axes(axis, x.rank), keepdims=bool(keepdims))


@composed(np.ptp)
def _ptp(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return np.max(a, axis=axis, keepdims=keepdims) - np.min(a, axis=axis, keepdims=keepdims)


@expression(np.any)
def _any(r: Recorder, a: Any, axis: Any = None, keepdims: bool = False) -> Expr:
    x = r.traced(a).expr
    return F.any(x, dims=axes(axis, x.rank), keepdims=bool(keepdims))


@expression(np.all)
def _all(r: Recorder, a: Any, axis: Any = None, keepdims: bool = False) -> Expr:
    x = r.traced(a).expr
    return F.all(x, dims=axes(axis, x.rank), keepdims=bool(keepdims))


def _arg(kind: str) -> Adaptor:
    def adaptor(r: Recorder, a: Any, axis: Any = None, keepdims: bool = False) -> Expr:
        x = r.traced(a).expr
        if axis is None:
            if keepdims:
                raise r.unsupported(f"{kind} with keepdims over all axes")
            x = x.reshape((r.traced(a).size,))
        result: Expr = getattr(F, kind)(x, dim=axis_of(axis or 0, x.rank), keepdims=bool(keepdims))
        return result

    return adaptor


expression(np.argmax)(_arg("argmax"))
expression(np.argmin)(_arg("argmin"))


def _running(kind: str) -> Adaptor:
    def adaptor(r: Recorder, a: Any, axis: Any = None, dtype: Any = None) -> Expr:
        array = r.traced(a)
        x = array.expr.cast(ir_dtype(dtype or np.cumsum(np.zeros(1, array.dtype)).dtype))
        if axis is None:
            x, axis = x.reshape((array.size,)), 0
        result: Expr = getattr(F, kind)(x, dim=axis_of(axis, x.rank))
        return result

    return adaptor


expression(np.cumsum)(_running("cumsum"))
expression(np.cumprod)(_running("cumprod"))

# --- selection ------------------------------------------------------------------------------------


@expression(np.where)
def _where(r: Recorder, condition: Any, x: Any = None, y: Any = None) -> Expr:
    if x is None or y is None:
        raise r.unsupported("np.where with one argument: its shape depends on values",
                            "give both choices: np.where(c, x, y)")  # fmt: skip
    dtype = np.asarray(np.where(True, real(x), real(y))).dtype
    c = r.traced(condition).expr
    c = c if c.dtype.kind == "bool" else c != 0
    a, b = r.operand(x, dtype), r.operand(y, dtype)
    if not isinstance(a, Expr) and not isinstance(b, Expr):
        a = r.emitter.wrap(r.full((), dtype, a).value)
    return F.where(c, a, b)


@composed(np.clip)
def _clip(a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Any:
    low, high = (a_min if min is None else min), (a_max if max is None else max)
    x = a if low is None else np.maximum(a, low)
    return x if high is None else np.minimum(x, high)


@composed(np.nan_to_num)
def _nan_to_num(x: Any, copy: bool = True, nan: float = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    info = np.finfo(x.dtype)
    high = float(info.max) if posinf is None else posinf
    low = float(info.min) if neginf is None else neginf
    finite = np.where(np.isinf(x), np.where(x > 0, high, low), x)
    return np.where(np.isnan(x), nan, finite)


@composed(np.select)
def _select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    result = default
    for condition, choice in reversed(list(zip(condlist, choicelist, strict=True))):
        result = np.where(condition, choice, result)
    return result


@composed(np.take)
def _take(a: Any, indices: Any, axis: Any = None, mode: str = "raise") -> Any:
    if axis is None:
        return np.ravel(a)[indices]
    rank = a.ndim
    axis = axis_of(axis, rank)
    moved = np.moveaxis(a, axis, 0)[indices]
    return np.moveaxis(moved, tuple(range(np.ndim(real(indices)))),
                       tuple(range(axis, axis + np.ndim(real(indices)))))  # fmt: skip


@expression(np.take_along_axis)
def _take_along_axis(r: Recorder, arr: Any, indices: Any, axis: int = -1) -> Expr:
    x, index = r.traced(arr).expr, r.traced(indices).expr.cast(ir_dtype(np.int64))
    dim = axis_of(axis, x.rank)
    index = F.where(index < 0, index + x.shape[dim], index)
    return F.gather(x, index, dim=dim)


@expression(np.sort)
def _sort(r: Recorder, a: Any, axis: Any = -1, kind: Any = None, stable: Any = None) -> Expr:
    x = r.traced(a).expr
    if axis is None:
        x, axis = x.reshape((r.traced(a).size,)), 0
    dim = axis_of(axis, x.rank)
    return F.sort.multiple(x, dim=dim, descending=False, stable=True)[0]


@expression(np.argsort)
def _argsort(r: Recorder, a: Any, axis: Any = -1, kind: Any = None, stable: Any = None) -> Expr:
    x = r.traced(a).expr
    if axis is None:
        x, axis = x.reshape((r.traced(a).size,)), 0
    return F.sort.multiple(x, dim=axis_of(axis, x.rank), descending=False, stable=True)[1]


# --- creation -------------------------------------------------------------------------------------


def _filled(value: float) -> Adaptor:
    def adaptor(r: Recorder, a: Any, dtype: Any = None, order: Any = "K", subok: Any = True,
                shape: Any = None, device: Any = None) -> Expr:  # fmt: skip
        like = r.traced(a)
        size = like.shape if shape is None else (shape if isinstance(shape, tuple) else (shape,))
        return r.full(size, np.dtype(dtype or like.dtype), value)

    return adaptor


expression(np.zeros_like)(_filled(0.0))
expression(np.ones_like)(_filled(1.0))


@composed(np.empty_like)
def _empty_like(a: Any, dtype: Any = None, **kwargs: Any) -> Any:
    return np.zeros_like(a, dtype=dtype, **kwargs)


@composed(np.full_like)
def _full_like(a: Any, fill_value: Any, dtype: Any = None, **kwargs: Any) -> Any:
    result = np.zeros_like(a, dtype=dtype, **kwargs)
    result[...] = fill_value
    return result


@expression(np.copy)
def _copy(r: Recorder, a: Any, order: str = "K", subok: bool = False) -> Expr:
    return F.copy(r.traced(a).expr)


def view_of(array: TracedArray, read: Any, write: Any) -> tuple[Expr, View]:
    """The expression of a view together with its link to its parent."""
    return read(array.expr), View(array, read, write)
