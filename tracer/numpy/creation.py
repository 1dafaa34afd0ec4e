"""Functions numpy does not hand over: np.zeros, np.array, and lists of traced arrays.

    B = np.zeros(3); B[0] = x          # B is taken into the trace at once, rather than at the write
    np.array([x[0] ** 2, x[1]])        # numpy would ask each element for its number
    np.sum([x[0], x[1]])               # so would np.sum
    np.exp([x[0], 1.0])                # and a ufunc
    math.sin(x[0])                     # and Python's own

None of them reaches numpy's protocols. Python functions have other code while a trace runs (Note
[Swapped code]); functions in C are replaced by their wrappers where the traced code knows them
(Note [Only names in the traced code]).
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any, cast

import numpy as np

from gradof.tracer.core.math_numbers import IMPORTED as OF_NUMBERS
from gradof.tracer.core.number import TracedNumber
from gradof.tracer.core.swaps import Swaps
from gradof.tracer.numpy import draws
from gradof.tracer.numpy.active import active_recorder, naming
from gradof.tracer.numpy.apply import Concatenator, vectorized
from gradof.tracer.numpy.array import TracedArray, is_ours
from gradof.tracer.numpy.cmath_arrays import FUNCTIONS as CMATH
from gradof.tracer.numpy.functions import whole
from gradof.tracer.numpy.grids import arange, grid, is_of_floats
from gradof.tracer.numpy.layouts import in_order, order_of
from gradof.tracer.numpy.lengths import Length, has_length, sized, tell_plain
from gradof.tracer.numpy.lengths import in_function as of_sizes
from gradof.tracer.numpy.math_arrays import FUNCTIONS as MATH
from gradof.tracer.numpy.names import Names, stand_in
from gradof.tracer.numpy.numbers import in_function, scalars_of
from gradof.tracer.numpy.recorder import Recorder, contains_traced
from gradof.tracer.numpy.sight import Sight
from gradof.tracer.numpy.strides import as_strided, require
from gradof.tracer.state.libraries import is_library
from gradof.tracer.state.unheard import quietly

Function = Callable[..., Any]
Wrap = Callable[[Function], Any]


def _wrapper(
    applies: Callable[[tuple[Any, ...], dict[str, Any]], bool]
) -> Callable[[Callable[..., Any]], Wrap]:
    """A wrapper that records calls in a tracing thread to which `applies`."""

    def of_record(record: Callable[..., Any]) -> Wrap:
        def attempted(recorder: Recorder, original: Function, args: tuple[Any, ...]) -> Any:
            """The call where no code of the user's takes part; the recorder where it may."""
            if not is_ours(args) or not applies(args, {}):
                return recorder
            recorder.enter()
            return record(recorder, original, *args)

        def wrap(original: Function) -> Function:
            @functools.wraps(original)
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                recorder = active_recorder()
                if recorder is not None and not kwargs:
                    found = quietly(attempted, recorder, original, args)
                    if found is not recorder:
                        return found
                if recorder is not None:
                    args, kwargs = in_function(recorder, original, args, kwargs)
                if recorder is None or not applies(args, kwargs):
                    return original(*args, **kwargs)
                recorder.enter()
                return record(recorder, original, *args, **kwargs)

            return wrapper

        return wrap

    return of_record


def _with_traced(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return contains_traced(args) or contains_traced(tuple(kwargs.values()))


def _always(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return True


STANDS_FOR = "__gradof_stands_for__"  # of functions in a namespace like numpy's: numpy's own


@_wrapper(_with_traced)
def _routed(recorder: Recorder, original: Function, *args: Any, **kwargs: Any) -> Any:
    """np.sum and its like: of lists, or with traced arrays where numpy does not look for them."""
    function = getattr(original, STANDS_FOR, original)
    args = of_sizes(recorder.loops.sizes, function, args, kwargs)
    return recorder.handlers.function(recorder, function, args, kwargs)


_ORDERS = {"ascontiguousarray": "C", "asfortranarray": "F"}


def _with_traced_or_own(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return _with_traced(args, kwargs) or (bool(args) and _has_own_array(args[0]))


def _has_own_array(value: Any) -> bool:
    """Whether a class of the user's says what array its objects are."""
    method = getattr(type(value), "__array__", None)
    return isinstance(method, FunctionType) and not is_library(type(value).__module__)


@_wrapper(_with_traced_or_own)
def _holding(
    recorder: Recorder, original: Function, value: Any, dtype: Any = None, *args: Any, **kwargs: Any
) -> Any:
    """np.array and its like: nests that hold traced arrays are stacked."""
    if not contains_traced(value):
        told = value.__array__()
        if not contains_traced(told):
            return original(value, dtype, *args, **kwargs)
        value = told
    copy, ndmin = kwargs.pop("copy", original.__name__ == "array"), kwargs.pop("ndmin", 0)
    if args or set(kwargs) - {"order", "subok"}:
        raise recorder.unsupported(
            f"numpy.{original.__name__} of traced arrays with {sorted(kwargs) or args}",
            "give dtype only",
        )
    if copy is np._CopyMode.IF_NEEDED:
        copy = None
    if not isinstance(value, TracedArray):
        value, copy = recorder.traced(value), False
    if value.is_scalar:
        # an array, which can be written into; the number stays what it is
        value, copy = recorder.wrap(np.array(value.concrete), value.expr), False
    if value.ndim < ndmin:
        value = np.reshape(value, (1,) * (ndmin - value.ndim) + value.shape)
    if dtype is not None and value.dtype != np.dtype(dtype):
        value, copy = value.astype(dtype), False
    if original.__name__ in _ORDERS and value.ndim == 0:
        value = np.reshape(value, 1)  # theirs have a dim at least
    order: Any = _ORDERS.get(original.__name__, order_of(kwargs.get("order"), "K"))
    if copy:
        return np.copy(value, order=order)
    if order == "K":
        return value
    return in_order(value, order)


@_wrapper(_always)
def _fresh(recorder: Recorder, original: Function, *args: Any, **kwargs: Any) -> Any:
    """np.zeros and its like: an array that can hold traced values.

    Integers stay plain: they are counters and indices.
    """
    if original.__name__ in ("full", "full_like") and _with_traced(args[1:], kwargs):
        return _filled(recorder, original.__name__ == "full_like", *args, **kwargs)
    if original.__name__ == "arange":
        if is_of_floats((*args, *kwargs.values())):
            return arange(*args, **kwargs)
        args = whole(args)
    made = original(*sized(args), **kwargs)
    if has_length(args) and (
        type(made) is not np.ndarray or made.dtype.kind != "f" or made.dtype.itemsize > 8
    ):
        tell_plain(recorder.loops.sizes, made)
    if type(made) is not np.ndarray or made.dtype.kind != "f" or made.dtype.itemsize > 8:
        return made
    if original.__name__.startswith("empty"):
        made[...] = 0.0  # the same at every call
    first = float(made.flat[0]) if made.size else 0.0
    if (made == first).all():
        return recorder.wrap(made, recorder.full(made.shape, made.dtype, first))
    return recorder.wrap(made, recorder.constant(made))


@_wrapper(_with_traced)
def _full(recorder: Recorder, original: Function, *args: Any, **kwargs: Any) -> Any:
    """np.full of a traced value, under a name that is not known."""
    return _filled(recorder, False, *args, **kwargs)


def _filled(
    recorder: Recorder, like: bool, first: Any, fill_value: Any, dtype: Any = None,
    order: Any = None, subok: bool = True, shape: Any = None, **kwargs: Any,
) -> Any:  # fmt: skip
    """np.full and np.full_like with a traced value."""
    if shape is None:
        shape = np.shape(first) if like else first
    if dtype is None and like:
        dtype = np.result_type(first)
    result: Any = np.copy(np.broadcast_to(recorder.traced(fill_value), shape))
    return result if dtype is None else result.astype(dtype)


@_wrapper(_always)
def _collected(
    recorder: Recorder, original: Function, values: Any, dtype: Any, count: int = -1,
    **kwargs: Any,
) -> Any:  # fmt: skip
    """np.fromiter of an iterable that may give traced numbers."""
    given = list(values)
    if not contains_traced(given):
        return original(given, dtype, count, **kwargs)
    return recorder.traced(given[: count if count >= 0 else None]).astype(dtype)


@_wrapper(_with_traced)
def _enumerated(recorder: Recorder, original: Function, array: Any) -> Any:
    """np.ndenumerate."""
    whole: Any = recorder.traced(array)
    return ((place, whole[place]) for place in np.ndindex(whole.shape))


def _of_math(original: Function) -> Function:
    """A function of `math`: of numbers that vary, and of traced arrays in numpy's functions."""
    of_arrays: Function = _of_arrays(original)
    of_numbers: Function | None = OF_NUMBERS.get(original)
    if of_numbers is None:
        return of_arrays

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        kinds = {type(x) for x in args}
        varies = not kinds.isdisjoint((TracedNumber, Length)) and TracedArray not in kinds
        return of_numbers(*args) if varies and not kwargs else of_arrays(*args, **kwargs)

    return wrapper


@_wrapper(_with_traced)
def _of_arrays(recorder: Recorder, original: Function, *args: Any, **kwargs: Any) -> Any:
    record = MATH.get(original.__name__)
    if record is None:
        raise recorder.unsupported(f"math.{original.__name__}", "write it with functions of numpy")
    return record(*args, **kwargs)


def _of_cmath(original: Function) -> Function:
    """The same of `cmath`, for which numbers that vary are arrays."""
    of_arrays: Function = _of_complex_numbers(original)

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        recorder = active_recorder()
        given = args if recorder is None else scalars_of(recorder, args)
        return of_arrays(*given, **kwargs)

    return wrapper


@_wrapper(_with_traced)
def _of_complex_numbers(_: Recorder, original: Function, *args: Any, **kwargs: Any) -> Any:
    return CMATH[original.__name__](*args, **kwargs)


class _Ufunc:
    """A ufunc that takes lists of traced arrays, too; all else is the ufunc's own."""

    def __init__(self, ufunc: Any) -> None:
        self.__dict__["_ufunc"] = ufunc
        functools.update_wrapper(self, ufunc)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return np.ufunc

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if any(type(x) is list or type(x) is tuple for x in args):
            args = tuple(map(_gathered, args))
        return self._ufunc(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._ufunc, name)
        if name not in ("reduce", "accumulate", "outer", "reduceat"):
            return found
        return lambda *args, **kwargs: found(*map(_gathered, args), **kwargs)

    def __eq__(self, other: object) -> bool:
        return (other._ufunc if isinstance(other, _Ufunc) else other) is self._ufunc

    def __hash__(self) -> int:
        return hash(self._ufunc)

    def __reduce__(self) -> Any:
        return self._ufunc.__reduce__()


def _gathered(value: Any) -> Any:
    """A nest that holds traced arrays as one of them."""
    if isinstance(value, (list, tuple)) and contains_traced(value):
        recorder = active_recorder()
        return value if recorder is None else recorder.traced(value)
    return value


# --- what is wrapped, and what is swapped ---------------------------------------------------------


def _dispatchers(module: Any) -> dict[str, Any]:
    """The functions of a module of numpy's that ask their arguments for a protocol."""
    kind = type(np.sum)
    return {n: f for n, f in vars(module).items() if type(f) is kind and not n.startswith("_")}


def _in_c(module: Any) -> dict[str, Wrap]:
    """Wrappers of those that are in C, and of ufuncs."""
    found: dict[str, Wrap] = {
        n: _routed for n, f in _dispatchers(module).items()
        if not isinstance(f._implementation, FunctionType)
    }
    found.update((n, _Ufunc) for n, f in vars(module).items() if isinstance(f, np.ufunc))
    return found


_NUMPY: dict[str, Wrap] = {
    **_in_c(np),
    **dict.fromkeys(
        ("array", "asarray", "asanyarray", "ascontiguousarray", "asfortranarray",
         "asarray_chkfinite"), _holding),
    **dict.fromkeys(("r_", "c_"), Concatenator), "fromiter": _collected,
    "ndenumerate": _enumerated,
    **dict.fromkeys(
        ("zeros", "ones", "empty", "full", "eye", "identity", "arange",
         "zeros_like", "ones_like", "empty_like", "full_like"), _fresh),
}  # fmt: skip
_RANDOM: dict[str, Wrap] = draws.wraps_of(np.random)
_NAMES = Names({
    "numpy": _NUMPY, "gradof.autograd.numpy": _NUMPY,
    "numpy.random": _RANDOM, "gradof.autograd.numpy.random": _RANDOM,
    "numpy.linalg": {}, "numpy.fft": {},
    "math": {n: _of_math for n, f in vars(math).items() if callable(f) and n[0] != "_"},
    "cmath": dict.fromkeys(CMATH.keys() - {"ln"}, _of_cmath),
    "random": draws.wraps_of(random), "time": draws.CLOCKS,
}, stand_in)  # fmt: skip
def replacements() -> dict[int, tuple[Any, Any]]:
    """By id: what traced code sees in another place (the second) than numpy's (the first)."""
    return _NAMES.table().by_id


_SWAPS = Swaps()


def _swap_once() -> None:
    """Swap numpy's Python functions, at the first trace."""
    if _swapped:
        return
    _swapped.append(True)
    for module in (np, np.linalg, np.fft):
        for function in _dispatchers(module).values():
            if isinstance(function._implementation, FunctionType):
                _SWAPS.add(function._implementation, functools.partial(_dispatched, function))
    _SWAPS.add(cast(FunctionType, np.full), _through(_full))
    _SWAPS.add(cast(FunctionType, type(np.mgrid).__getitem__), grid)
    _SWAPS.add(cast(FunctionType, np.lib.stride_tricks.as_strided), as_strided)
    _SWAPS.add(cast(FunctionType, np.require), require)
    _SWAPS.add(np.vectorize.__call__, vectorized)  # type: ignore[arg-type]


_swapped: list[bool] = []


def _dispatched(
    function: Any, original: Function, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Where numpy has not asked for the protocol: in lists."""
    recorder = active_recorder()
    if recorder is None or not _with_traced(args, kwargs):
        return original(*args, **kwargs)
    args = of_sizes(recorder.loops.sizes, function, args, kwargs)
    return recorder.handlers.function(recorder, function, args, kwargs)


def _through(wrap: Wrap) -> Callable[..., Any]:
    made: list[Function] = []

    def call(original: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if active_recorder() is None:
            return original(*args, **kwargs)
        if not made:
            made.append(quietly(wrap, original))  # it is not the function that wraps it
        return made[0](*args, **kwargs)

    return call


@contextmanager
def creation_for(sight: Sight) -> Iterator[None]:
    """While active, the functions that a run sees make their arrays for the active recorder."""
    _swap_once()
    numpy = _NAMES.table().proxies["numpy"]
    with _SWAPS.at_work(), sight.replacing(_NAMES), naming(numpy):
        yield
