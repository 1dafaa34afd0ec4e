"""Methods of ufuncs: reduce, accumulate, outer, reduceat and at.

Sums, products and extremes are ops of their own. Any other ufunc of two operands is folded, element
by element; where the order does not matter, by halves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradof.ops.expr import F
from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.functions import as_array, axes, axis_of, whole
from gradof.tracer.numpy.indexing import add_at
from gradof.tracer.numpy.recorder import Recorder
from gradof.tracer.numpy.special import logsumexp

Function = Callable[..., Any]
_REDUCE: dict[str, Function] = {
    "add": np.sum, "multiply": np.prod, "maximum": np.max, "minimum": np.min,
    "logical_and": np.all, "logical_or": np.any,
}  # fmt: skip
_ACCUMULATE: dict[str, Function] = {"add": np.cumsum, "multiply": np.cumprod}
_ANY_ORDER = frozenset({"fmax", "fmin", "hypot", "logaddexp", "logaddexp2"})
_MOST = 512  # elements folded one by one
_LEFT_OUT = frozenset({"power", "float_power"})  # numpy's own folds of these are not left to right


def record_method(
    recorder: Recorder, ufunc: Any, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Record `ufunc.method(...)`; UnsupportedOpError for a way to call it that has no record."""
    name, array = ufunc.__name__, inputs[0]
    if name in _LEFT_OUT and method != "outer":
        raise recorder.unsupported(f"{name}.{method}", "write the powers out")
    if method == "outer" and not kwargs:
        a, b = (recorder.traced(x) for x in inputs)
        return ufunc(a.reshape(a.shape + (1,) * b.ndim), b)
    if method == "reduce":
        kwargs.setdefault("axis", inputs[1] if len(inputs) > 1 else 0)
        return _reduce(recorder, ufunc, recorder.traced(array), kwargs)
    if method == "accumulate":
        kwargs.setdefault("axis", inputs[1] if len(inputs) > 1 else 0)
        return _accumulate(recorder, ufunc, recorder.traced(array), **kwargs)
    if method == "reduceat":
        kwargs.setdefault("axis", inputs[2] if len(inputs) > 2 else 0)
        return _reduceat(recorder, ufunc, recorder.traced(array), inputs[1], **kwargs)
    raise recorder.unsupported(f"{name}.{method} called so")


def _along(dim: int, place: Any) -> tuple[Any, ...]:
    return (*(slice(None),) * dim, place)


# --- reduce ---------------------------------------------------------------------------------------


def _reduce(recorder: Recorder, ufunc: Any, a: TracedArray, kwargs: dict[str, Any]) -> Any:
    name = ufunc.__name__
    if name in _REDUCE:
        if name not in ("add", "multiply"):
            kwargs.pop("dtype", None)
        return _REDUCE[name](a, **kwargs)
    if ufunc.nin != 2 or set(kwargs) - {"axis", "keepdims", "initial"}:
        raise recorder.unsupported(f"{name}.reduce with {sorted(kwargs)}")
    if name == "logaddexp" and "initial" not in kwargs:
        return logsumexp(a, kwargs["axis"], kwargs.get("keepdims", False))
    dims = axes(kwargs["axis"], a.ndim)
    if len(dims) > 1 and name not in _ANY_ORDER:
        raise recorder.unsupported(f"{name}.reduce over several axes")
    rest = [d for d in range(a.ndim) if d not in dims]
    moved: Any = np.reshape(np.transpose(a, [*dims, *rest]), (-1, *(a.shape[d] for d in rest)))
    initial = kwargs.get("initial")
    if not moved.shape[0] and initial is None:
        raise recorder.unsupported(f"{name}.reduce of nothing")
    start = initial if initial is not None else moved[0]
    others = moved if initial is not None else moved[1:]
    result = _folded(recorder, ufunc, start, others)
    if kwargs.get("keepdims"):
        shape = tuple(1 if d in dims else n for d, n in enumerate(a.shape))
        return np.reshape(result, shape)
    return result


def _folded(recorder: Recorder, ufunc: Any, start: Any, others: Any) -> Any:
    """ufunc(ufunc(start, others[0]), others[1]), ..."""
    name = ufunc.__name__
    if not len(others):
        return start
    if name == "subtract":
        return start - np.sum(others, axis=0)
    if name in ("divide", "true_divide"):
        return start / np.prod(others, axis=0)
    if name in _ANY_ORDER:
        while len(others) > 1:
            half = len(others) // 2
            both = ufunc(others[:half], others[half : 2 * half])
            others = np.concatenate([both, others[2 * half :]]) if len(others) % 2 else both
        return ufunc(start, others[0])
    _limit(recorder, ufunc, len(others))
    for i in range(len(others)):
        start = ufunc(start, others[i])
    return start


def _limit(recorder: Recorder, ufunc: Any, count: int) -> None:
    if count > _MOST:
        raise recorder.unsupported(
            f"{ufunc.__name__} folded over {count} elements",
            "it would be recorded one by one; write it with np.cumsum or np.cumprod",
        )


# --- accumulate -----------------------------------------------------------------------------------


def _accumulate(
    recorder: Recorder, ufunc: Any, a: TracedArray, axis: Any = 0, dtype: Any = None
) -> Any:
    name = ufunc.__name__
    dim = axis_of(axis, a.ndim)
    if name in _ACCUMULATE:
        return _ACCUMULATE[name](a, axis=dim, dtype=dtype)
    if dtype is not None or ufunc.nin != 2:
        raise recorder.unsupported(f"{name}.accumulate called so")
    if name in ("maximum", "minimum", "logaddexp") and a.dtype.kind == "f":
        concrete = ufunc.accumulate(a.concrete, dim)
        if name == "logaddexp":
            return recorder.wrap(concrete, F.logcumsumexp(a.expr, dim=dim))
        kind = F.cummax if name == "maximum" else F.cummin
        return recorder.wrap(concrete, kind.multiple(a.expr, dim=dim)[0])
    n = a.shape[dim]
    if name in ("subtract", "divide", "true_divide") and n > 1:
        scan = np.cumsum if name == "subtract" else np.cumprod
        first, others = a[_along(dim, slice(0, 1))], scan(a[_along(dim, slice(1, None))], axis=dim)
        return np.concatenate([first, ufunc(first, others)], axis=dim)
    _limit(recorder, ufunc, n)
    parts: list[Any] = []
    for i in range(n):
        part = a[_along(dim, i)]
        parts.append(ufunc(parts[-1], part) if parts else part)
    return np.stack(parts, axis=dim) if parts else np.copy(a)


# --- reduceat and at ------------------------------------------------------------------------------


def _reduceat(
    recorder: Recorder, ufunc: Any, a: TracedArray, indices: Any, axis: Any = 0, dtype: Any = None
) -> Any:
    places = np.asarray(whole(indices))
    if places.ndim != 1:
        raise ValueError("object too deep for desired array")
    if dtype is not None:
        raise recorder.unsupported(f"{ufunc.__name__}.reduceat with dtype")
    dim = axis_of(axis, a.ndim)
    if not places.size:
        return a[_along(dim, slice(0))]
    ends = [*places[1:].tolist(), a.shape[dim]]
    parts = []
    for i, (start, stop) in enumerate(zip(places.tolist(), ends, strict=True)):
        if start < stop or i + 1 == len(ends):
            part = ufunc.reduce(a[_along(dim, slice(start, stop))], axis=dim)
        else:
            part = a[_along(dim, start)]
        parts.append(part)
    return np.stack([as_array(p) for p in parts], axis=dim)


def record_at(recorder: Recorder, ufunc: Any, inputs: tuple[Any, ...]) -> None:
    """`ufunc.at(a, indices, b)`: elements named several times are changed several times."""
    target, name = inputs[0], ufunc.__name__
    if not isinstance(target, TracedArray):
        raise recorder.into_plain(f"{name}.at on a plain array")
    if name in ("add", "subtract"):
        add_at(target, inputs[1], inputs[2] if name == "add" else -inputs[2])
        return
    index = inputs[1] if isinstance(inputs[1], tuple) else (inputs[1],)
    fixed = tuple(i if isinstance(i, slice) else np.asarray(whole(i)) for i in index)
    places = np.arange(target.size).reshape(target.shape)[fixed]
    flat = places.ravel()
    others = [
        np.reshape(np.broadcast_to(as_array(x), places.shape), -1) for x in inputs[2:]
    ]  # fmt: skip
    elements: Any = np.reshape(target, -1)
    for chosen in _rounds(flat):
        at = flat[chosen].tolist()
        elements[at] = ufunc(elements[at], *(x[chosen.tolist()] for x in others))
    if elements.link is None:
        target[...] = np.reshape(elements, target.shape)


def _rounds(places: Any) -> list[Any]:
    """The positions in `places`, in as many groups as the most frequent place has members."""
    order = np.argsort(places, kind="stable")
    ranked = places[order]
    first = np.searchsorted(ranked, ranked)
    rank = np.empty(len(places), np.int64)
    rank[order] = np.arange(len(places)) - first
    return [np.flatnonzero(rank == r) for r in range(int(rank.max(initial=-1)) + 1)]
