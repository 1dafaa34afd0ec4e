"""`__array_function__`: the tables of adaptors, and how a call goes through one.

    @expression(np.sum)       emits IR, returns an Expr (or an Expr and a View)
    @composed(np.outer)       written in other numpy functions
    @inplace(np.copyto)       changes its first argument; returns what numpy does
    @query(np.shape)          about types and shapes: numpy's own answer, a plain value
    @refused(np.unique)       a result whose shape depends on values

What numpy itself gives for the concrete arrays is there too, though large results are not computed
before they are read: the record must have its shape, is cast to its dtype, and is a scalar or a
view exactly where numpy's result is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from gradof.errors import DataDependentShapeError, InferenceError, TraceError
from gradof.ops.expr import Expr, F
from gradof.tracer.core.numpy_errors import has_functions, raised
from gradof.tracer.numpy import raising
from gradof.tracer.numpy.active import OVERRIDES
from gradof.tracer.numpy.array import Later, TracedArray
from gradof.tracer.numpy.calls import function_call
from gradof.tracer.numpy.floats import as_numpys, give_way
from gradof.tracer.numpy.numbers import MIXED, in_function
from gradof.tracer.numpy.outs import out_by_name
from gradof.tracer.numpy.recorder import Recorder, contains_traced
from gradof.tracer.numpy.view import View

Adaptor = Callable[..., Any]
EXPRESSIONS: dict[Any, Adaptor] = {}
COMPOSED: dict[Any, Adaptor] = {}
INPLACE: dict[Any, Adaptor] = {}
QUERIES: set[Any] = set()
REFUSED: dict[Any, str] = {}


def _registrar(table: dict[Any, Adaptor]) -> Callable[..., Callable[[Adaptor], Adaptor]]:
    def decorator(*functions: Any) -> Callable[[Adaptor], Adaptor]:
        def register(adaptor: Adaptor) -> Adaptor:
            table.update(dict.fromkeys(functions, adaptor))
            return adaptor

        return register

    return decorator


expression = _registrar(EXPRESSIONS)
composed = _registrar(COMPOSED)
inplace = _registrar(INPLACE)


def query(*functions: Any) -> None:
    """Register functions whose answer is a plain value that depends on types and shapes only."""
    QUERIES.update(functions)


def refused(hint: str, *functions: Any) -> None:
    """Register functions whose result has a shape that depends on values."""
    REFUSED.update(dict.fromkeys(functions, hint))


def record_function(
    recorder: Recorder, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Record one call.

    Raises UnsupportedOpError for a function without adaptor or a way to call it that has none, and
    DataDependentShapeError; numpy's own errors for wrong arguments come first.
    """
    if raised() and not has_functions((*args, *kwargs.values())):
        again = partial(record_function, recorder, func, args, kwargs)
        return raising.of_function(recorder, func, args, kwargs, again)
    if recorder.told.floats:
        if func is np.select and len(args) > 1:
            choices = give_way(recorder, (*args[1], *args[2:]))
            args = (args[0], list(choices[: len(args[1])]), *choices[len(args[1]) :])
        if func in MIXED:
            first = args[:1] if func is np.where else ()  # the condition has no say in the dtype
            args = (*first, *give_way(recorder, args[len(first) :]))
        args, kwargs = as_numpys(args), as_numpys(kwargs)
    if OVERRIDES and func in OVERRIDES:
        return OVERRIDES[func](*args, **kwargs)
    if len(args) > 1:
        args, kwargs = out_by_name(func, args, kwargs)
    return function_call(recorder, func, args, kwargs, _record)


def _record(
    recorder: Recorder, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    recorder.enter()
    args, kwargs = in_function(recorder, func, args, kwargs)
    args, kwargs = _gathered(recorder, func, args, kwargs)
    name = name_of(func)
    out = kwargs.pop("out", None)
    if out is not None and not isinstance(out, TracedArray):
        raise recorder.into_plain(f"{name} into a plain array")
    if func in INPLACE:
        return INPLACE[func](recorder, *args, **kwargs)
    if func not in COMPOSED and func not in EXPRESSIONS and func not in QUERIES:
        return _without_adaptor(recorder, func, args, kwargs)
    want = recorder.numpy(func, *args, **kwargs)
    if func in QUERIES:
        return want
    result = _adapted(recorder, func, args, kwargs, want)
    if out is not None:
        if np.shape(want) != out.shape or np.result_type(want) != out.dtype:  # numpy's own error
            recorder.numpy(func, *args, **kwargs, out=np.empty_like(out.memory))
        recorder.handlers.set_item(out, ..., result)
        return out
    return result


# Functions that take sequences of arrays, which are no arrays.
_SEQUENCES = frozenset({
    np.stack, np.concatenate, np.vstack, np.hstack, np.dstack, np.column_stack, np.select,
    np.piecewise, np.choose, np.lexsort, np.linalg.multi_dot, np.broadcast_arrays, np.histogramdd,
})  # fmt: skip


def _gathered(
    recorder: Recorder, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with an array for each nest of traced arrays and numbers."""
    nested = [isinstance(a, (list, tuple)) for a in (*args, *kwargs.values())]
    if not any(nested) or func is np.block:
        return args, kwargs

    def gather(value: Any) -> Any:
        if not isinstance(value, (list, tuple)) or not contains_traced(value):
            return value
        if func in _SEQUENCES:
            return [recorder.traced(v) if isinstance(v, (list, tuple)) else v for v in value]
        return recorder.traced(value)

    return tuple(map(gather, args)), {k: gather(v) for k, v in kwargs.items()}


def name_of(func: Any) -> str:
    """The dotted name of a numpy function, as users write it."""
    module = str(getattr(func, "__module__", "")).removeprefix("numpy._core").removeprefix("numpy")
    head = "numpy.linalg" if module.startswith(".linalg") else "numpy"
    return f"{head}.{func.__name__}"


def _without_adaptor(
    recorder: Recorder, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    name = name_of(func)
    if _all_constant((args, kwargs)):  # a plain value after all, such as one made by np.zeros
        recorder.baked = True
        return func(*map(_plain, args), **{k: _plain(v) for k, v in kwargs.items()})
    if func in REFUSED:
        raise DataDependentShapeError(
            f"the shape of the result of {name} depends on values", loc=recorder.loc,
            hint=REFUSED[func],
        )
    raise recorder.unsupported(name, "rewrite it with functions that have an adaptor, or compute "
                                     "it outside and pass the result as an argument")  # fmt: skip


def _all_constant(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_all_constant, value))
    if isinstance(value, dict):
        return all(map(_all_constant, value.values()))
    return not isinstance(value, TracedArray) or value.is_constant


def _plain(value: Any) -> Any:
    if isinstance(value, TracedArray):
        return value.plain()
    if isinstance(value, (list, tuple)):
        return type(value)(map(_plain, value))
    return value


def _adapted(
    recorder: Recorder, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], want: Any
) -> Any:
    name = name_of(func)
    try:
        if func in COMPOSED:
            return conform(recorder, name, COMPOSED[func](*args, **kwargs), want)
        result = EXPRESSIONS[func](recorder, *args, **kwargs)
    except InferenceError as error:
        raise recorder.unsupported(f"{name}: {error.message}") from error
    except TypeError as error:
        # numpy took these arguments; so the adaptor lacks one of them
        if "argument" not in str(error):
            raise
        raise recorder.unsupported(f"{name} called with these arguments: {error}") from error
    link = result[1] if isinstance(result, tuple) else None
    expr: Expr = result[0] if isinstance(result, tuple) else result
    dtype = recorder.ir_dtype(want.dtype)
    if expr.dtype != dtype:
        expr = F.cast(expr, dtype=dtype)
    if link is not None and not _shares(want, link.parent.memory):
        link = None
    return recorder.wrap(want, expr, link)


def _shares(array: Any, parent: Any) -> bool:
    return isinstance(array, np.ndarray) and np.may_share_memory(array, parent)


def conform(recorder: Recorder, name: str, result: Any, want: Any) -> Any:
    """The record of a composition, made to agree with what numpy gives: dtype, scalar or array."""
    if isinstance(want, (tuple, list)):
        parts = [conform(recorder, name, r, w) for r, w in zip(result, want, strict=True)]
        return type(want)(*parts) if hasattr(want, "_fields") else type(want)(parts)
    if want is None:
        return None
    if isinstance(want, bool):
        return result
    if type(want) is type(result) and type(want) in (int, float, str):
        return result  # read, and guarded, by the adaptor, or one of the arguments
    array = recorder.traced(result)
    if array.shape != np.shape(want):
        raise TraceError(
            f"{name} recorded a result of shape {array.shape}, numpy gives {np.shape(want)}",
            loc=recorder.loc, hint="please report this line",
        )
    if type(want) is int:
        return array.item()
    if array.dtype == want.dtype and array.is_scalar == isinstance(want, (np.generic, Later)):
        return array
    expr = array.expr.cast(recorder.ir_dtype(want.dtype))
    return recorder.wrap(want, expr)


# --- helpers for adaptors -------------------------------------------------------------------------


def squared_size(x: Any) -> Any:
    """|x|^2, by element, for real and complex numbers."""
    return np.square(x.real) + np.square(x.imag) if np.iscomplexobj(x) else np.square(x)


def by_parts(function: Callable[[Any], Any], z: Any) -> Any:
    """A function of real numbers on both parts of complex ones."""
    result = np.copy(z)
    result.real[...] = function(z.real)
    result.imag[...] = function(z.imag)
    return result


def axes(axis: Any, rank: int) -> tuple[int, ...]:
    """An `axis` argument as sorted non-negative dims."""
    if axis is None:
        return tuple(range(rank))
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    return tuple(sorted(axis_of(a, rank) for a in given))


def reduced(axis: Any, rank: int) -> tuple[int, ...]:
    """`axes` of a reduction by a ufunc: numpy lets 0 and -1 pass for an array without dims."""
    return () if rank == 0 and type(axis) is int and axis in (0, -1) else axes(axis, rank)


def axis_of(axis: Any, rank: int) -> int:
    """One axis as a non-negative dim."""
    index = int(axis)
    return index + rank if index < 0 else index


def whole(value: Any) -> Any:
    """Numbers that decide a shape or places, alone or in a nest, without traced ones.

    The trace holds where those are the same; DataDependentError where they are not whole.
    """
    if isinstance(value, TracedArray):
        return value.whole()
    if isinstance(value, (list, tuple)):
        return type(value)(map(whole, value))
    return value


def view_of(array: TracedArray, read: Any, write: Any) -> tuple[Expr, View]:
    """The expression of a view together with its link to its parent."""
    return read(array.expr), View(array, read, write)


def traced_all(*values: Any) -> list[TracedArray]:
    """All values as traced arrays of the one trace that some of them are of."""
    recorder = next(v.recorder for v in values if isinstance(v, TracedArray))
    return [recorder.traced(as_array(v)) for v in values]


def as_array(a: Any) -> Any:
    """A Python number as a numpy one; nests that hold traced arrays as one traced array."""
    if isinstance(a, (list, tuple)) and contains_traced(a):
        return np.stack([as_array(x) for x in a])
    return a if isinstance(a, (np.ndarray, np.generic)) else np.asarray(a)
