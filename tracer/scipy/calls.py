"""Calls of scipy's functions with traced arrays, however the function is reached.

    @scipy_function("scipy.linalg.solve_triangular")
    def _solve_triangular(a, b, trans=0, lower=False, ...):    # scipy's own signature
        ...                                                    # written in numpy, or one op

    from scipy.linalg import solve_triangular as tri           # any of these is caught
    table = {"tri": scipy.linalg.solve_triangular}
    functools.partial(getattr(scipy.linalg, name), lower=True)

scipy hands its arguments to C and Fortran, which take no traced arrays. Most of its functions are
Python functions, and are caught by their code (Note [Swapped code]), calls inside of scipy as well.
What scipy gives for the concrete arrays is computed, too: the record must have its shape, and is
cast to its dtype. `raw=True` leaves that to the adaptor.
"""

from __future__ import annotations

import copy
import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from gradof.errors import DataDependentError, GradofError, InferenceError, UnsupportedOpError
from gradof.ir import forks
from gradof.tracer.core.number import TracedNumber
from gradof.tracer.core.number_trees import has_number, plain
from gradof.tracer.core.numpy_errors import has_functions, raised
from gradof.tracer.core.swaps import Swaps, copy_of
from gradof.tracer.numpy.active import active_recorder
from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.black_box import call as call_black_box
from gradof.tracer.numpy.floats import as_numpys
from gradof.tracer.numpy.functions import conform
from gradof.tracer.numpy.numbers import as_scalar
from gradof.tracer.numpy.recorder import Recorder, contains_traced, real
from gradof.tracer.scipy.closures import attributes_of

Function = Callable[..., Any]


@dataclass(frozen=True)
class Adaptor:
    """What records the calls of one function of scipy's."""

    name: str  # as users write it
    path: str  # where its Python code is
    record: Function
    raw: bool


ADAPTORS: dict[str, Adaptor] = {}  # by name


def scipy_function(
    *names: str, at: str | None = None, raw: bool = False
) -> Callable[[Function], Function]:
    """Register an adaptor, which has the signature of the functions it serves.

    `at` is where the Python code is, of a function that is none or has several names. A `raw`
    adaptor gets the function first, and its result is what the call returns.
    """

    def register(record: Function) -> Function:
        for name in names:
            assert name not in ADAPTORS, name
            ADAPTORS[name] = Adaptor(name, at or name, record, raw)
        return record

    return register


def method_of(
    path: str, at: str, is_traced: Callable[[Any], bool]
) -> Callable[[Function], Function]:
    """Register what a method does where its object or an argument is traced."""

    def register(record: Function) -> Function:
        @scipy_function(path, at=at, raw=True)
        def method(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
            known = is_traced(self) or holds_traced((args, kwargs))
            return (record if known else original)(self, *args, **kwargs)

        return record

    return register


def original_of(name: str) -> FunctionType:
    """The function of a registered name as scipy has it, under another object."""
    path = ADAPTORS[name].path
    if path not in _ORIGINALS:  # of a part of scipy that the user's code does not name
        importlib.import_module(path.rpartition(".")[0])
        _load()
    return _ORIGINALS[path]


# --- one call -------------------------------------------------------------------------------------


def _called(
    adaptor: Adaptor, original: Function, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """What stands in the place of the original's code."""
    recorder = active_recorder()
    if recorder is None or recorder.closed:
        return original(*args, **kwargs)
    if raised() and not has_functions((*args, *kwargs.values())):
        with np.errstate(all="ignore"):  # what numpy would raise is of its own code, not of ours
            return _called(adaptor, original, args, kwargs)
    if recorder.numbers.active and (has_number(args) or has_number(kwargs)):
        args = tuple(_number(recorder, a) for a in args)
        kwargs = {k: _number(recorder, v) for k, v in kwargs.items()}
    if recorder.told.floats:
        args, kwargs = as_numpys(args), as_numpys(kwargs)
    if adaptor.raw:
        recorder.enter()
        try:
            return adaptor.record(original, *args, **kwargs)
        except TypeError as error:
            if not _is_of_adaptor(error, original, args, kwargs):
                raise
            text = str(error)
            if _OF_TRACED not in text:
                text = f"{_display(adaptor, args)} called with these arguments: {text}"
            raise recorder.unsupported(text, _HINT) from error
    given = (*args, *kwargs.values())
    if not any(map(holds_traced, given)):
        return original(*args, **kwargs)
    recorder.enter()
    if all(map(_holds_constants, given)):
        recorder.baked = True
        return original(*map(_plain, args), **{k: _plain(v) for k, v in kwargs.items()})
    return _recorded(recorder, adaptor, original, args, kwargs)


_OF_TRACED = "of traced values"  # how adaptors say what they do not take


def _is_of_adaptor(
    error: TypeError, original: Function, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bool:
    """Whether an adaptor has raised it, or lacks an argument that scipy's function has."""
    if isinstance(error, GradofError):
        return False
    traceback: Any = error.__traceback__
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    frame = traceback.tb_frame
    if frame.f_code is not _called.__code__:
        return str(frame.f_globals.get("__name__", "")).startswith("gradof.tracer.scipy.")
    try:
        inspect.signature(original).bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def _recorded(
    recorder: Recorder, adaptor: Adaptor, original: Function, args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:  # fmt: skip
    drawn = np.random.get_state()  # scipy estimates norms with numbers drawn there
    want = recorder.numpy(original, *map(_concrete, args), **_concrete(kwargs))
    np.random.set_state(drawn)
    name = _display(adaptor, args)
    if _are_whole(want):  # they have no gradient, and scipy rounds or truncates on the way to them
        return call_black_box(recorder, name, _plainly(original), (args, kwargs), None, None)
    try:
        result = adaptor.record(*args, **kwargs)
    except InferenceError as error:
        raise recorder.unsupported(f"{name}: {error.message}") from error
    except (UnsupportedOpError, DataDependentError) as error:
        if "scipy." in error.message:
            raise
        raise type(error)(f"{name}: {error.message}", loc=recorder.loc, hint=_HINT) from error
    except TypeError as error:
        # scipy took these arguments; so the adaptor lacks one of them
        if "argument" not in str(error):
            raise
        raise recorder.unsupported(f"{name} called with these arguments: {error}", _HINT) from error
    return _conformed(recorder, adaptor, result, want, _float_of((*args, *kwargs.values())))


def _are_whole(result: Any) -> bool:
    """Whether it is arrays of whole numbers or truths, and nothing else."""
    if type(result) is tuple:
        return bool(result) and all(map(_are_whole, result))
    return isinstance(result, (np.ndarray, np.generic)) and result.dtype.kind in "biu"


def _plainly(original: Function) -> Function:
    return lambda args, kwargs: original(*map(_concrete, args), **_concrete(kwargs))


_HINT = (
    "docs/coverage.md lists the functions of scipy that have derivatives; others can be written in "
    "those, or computed outside and passed as an argument"
)


def _display(adaptor: Adaptor, args: tuple[Any, ...]) -> str:
    """The function as users know it, methods of distributions by their distribution."""
    if ".rv_" not in adaptor.path:
        return adaptor.name
    return f"scipy.stats.{args[0].name}.{adaptor.name.rpartition('.')[2]}"


def _conformed(
    recorder: Recorder, adaptor: Adaptor, result: Any, want: Any, dtype: np.dtype[Any]
) -> Any:
    """The record in the types that scipy gives, named results included."""
    kind = getattr(getattr(want, "dtype", None), "kind", "")
    if isinstance(want, (str, bytes, type(None))) or kind == "O":
        return want
    if not isinstance(want, tuple) or type(want) is tuple:
        return conform(recorder, adaptor.name, result, _numbers(want, dtype))
    parts = [_conformed(recorder, adaptor, r, w, dtype) for r, w in zip(result, want, strict=True)]
    made = tuple.__new__(type(want), parts)
    for name, other in getattr(result, "__dict__", {}).items():  # what is no part of the tuple
        traced = type(other) is TracedArray
        kept = _conformed(recorder, adaptor, other, vars(want)[name], dtype) if traced else other
        vars(made)[name] = kept
    return made


def _number(recorder: Recorder, value: Any) -> Any:
    """A number that is an input as a traced scalar; whole ones are read."""
    if type(value) is TracedNumber and isinstance(value.value, float):
        return as_scalar(recorder, value, np.float64)
    return plain(value)


def _float_of(given: tuple[Any, ...]) -> np.dtype[Any]:
    """The widest floating dtype among the traced arrays of a call."""
    found = [a.dtype for a in given if type(a) is TracedArray and a.dtype.kind == "f"]
    return np.result_type(*found) if found else np.dtype(np.float64)


def _numbers(want: Any, dtype: np.dtype[Any]) -> Any:
    """scipy's result with Python's floats as numpy's; these give way to any other."""
    if isinstance(want, (list, tuple)):
        return type(want)([_numbers(w, dtype) for w in want])
    return dtype.type(want) if type(want) is float else want


def _own(value: Any) -> dict[str, Any] | None:
    """The attributes of an object of one of scipy's classes."""
    cls = type(value)
    if not cls.__module__.startswith("scipy.") or isinstance(value, (type, FunctionType)):
        return None
    return attributes_of(value)


def holds_traced(value: Any) -> bool:
    """Whether a traced array is in a nest, or an attribute of an object of scipy's."""
    if isinstance(value, dict):
        return any(map(holds_traced, value.values()))
    own = _own(value)
    return any(map(contains_traced, own.values())) if own else contains_traced(value)


def _holds_constants(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_holds_constants, value))
    if isinstance(value, dict):
        return all(map(_holds_constants, value.values()))
    own = _own(value)
    if own:
        return all(map(_holds_constants, own.values()))
    return type(value) is not TracedArray or value.is_constant


def _plain(value: Any) -> Any:
    return _mapped(lambda array: array.plain(), value)


def _concrete(value: Any) -> Any:
    """The numbers as they are now: a copy, which `overwrite_a=True` lets scipy write to."""
    return _mapped(_copied, value)


def _copied(array: TracedArray) -> Any:
    value = real(array)
    return np.copy(value, order="K") if isinstance(value, np.ndarray) else value


def _mapped(function: Callable[[TracedArray], Any], value: Any) -> Any:
    if type(value) is TracedArray:
        return function(value)
    if isinstance(value, (list, tuple)):
        parts = [_mapped(function, v) for v in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, dict):
        return {k: _mapped(function, v) for k, v in value.items()}
    own = _own(value)
    if own and holds_traced(value):
        if hasattr(type(value), "with_arrays"):
            return value.with_arrays(function)
        value = copy.copy(value)
        for name, held in own.items():
            if contains_traced(held):
                made = _mapped(function, held)  # C code wants it in one piece
                whole = np.ascontiguousarray(made) if np.ndim(made) else made
                object.__setattr__(value, name, whole)
    return value


# --- putting it there -----------------------------------------------------------------------------

_SWAPS = Swaps()
_ORIGINALS: dict[str, FunctionType] = {}  # by path
_LOCK = forks.lock()
_PACKAGES = ("scipy.", "numpy.polynomial.")
_tried: set[str] = set()  # modules whose functions are among the swaps


def function_at(path: str) -> FunctionType | None:
    """The Python function a dotted path names; None where it is not loaded."""
    module = path
    rest: list[str] = []
    while module not in sys.modules:
        module, _, name = module.rpartition(".")
        rest.insert(0, name)
        if not module:
            return None
    found: Any = sys.modules[module]
    for name in rest:  # not by getattr: to name a part of scipy is to load it
        found = vars(found).get(name) if isinstance(found, (type, ModuleType)) else None
        found = found.__func__ if isinstance(found, staticmethod) else found
    return found if isinstance(found, FunctionType) else None


def _load() -> None:
    """Add the functions of modules that have been loaded since."""
    with _LOCK:
        loaded = {name for name in sys.modules if name.startswith(_PACKAGES)} - _tried
        if not loaded:
            return
        for adaptor in ADAPTORS.values():
            function = None if adaptor.path in _ORIGINALS else function_at(adaptor.path)
            if function is not None and function not in _SWAPS:
                _ORIGINALS[adaptor.path] = copy_of(function)
                _SWAPS.add(function, functools.partial(_called, adaptor))
        _tried.update(loaded)


@contextmanager
def caught() -> Iterator[None]:
    """Within it, the functions that are loaded and have an adaptor record.

    See Note [Swapped code].
    """
    _load()
    with _SWAPS.at_work():
        yield
