"""Functions numpy does not hand over: np.zeros, np.array, and lists of traced arrays.

    B = np.zeros(3); B[0] = x          # B must be able to hold a traced value
    np.array([x[0] ** 2, x[1]])        # numpy would ask each element for its number
    np.sum([x[0], x[1]])               # so would np.sum
    np.take(table, i)                  # the table is a plain array, the index a traced one

Neither reaches numpy's protocols, so the names by which the traced code knows numpy stand for a
proxy of it while the trace runs.

Note [Only names in the traced code]
numpy itself is left alone: C and Cython code takes what np.empty returns for a plain array without
asking, so it must never see another. What is replaced are globals of the modules whose functions
the traced function can reach, and only where they are bound to numpy (`np`) or to one of these
functions (`from numpy import zeros`). The proxy's functions ask whether the calling thread is
tracing, and if not, call numpy's own: other threads see no difference.
"""

from __future__ import annotations

import functools
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from gradof.errors import TraceError
from gradof.ir import forks
from gradof.tracer.numpy.apply import Concatenator, Vectorize
from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.functions import conform
from gradof.tracer.numpy.numbers import in_function
from gradof.tracer.numpy.recorder import Recorder, contains_traced
from gradof.tracer.numpy.special import FUNCTIONS as SPECIAL
from gradof.tracer.state.origins import Origins
from gradof.tracer.state.source import user_loc

Function = Callable[..., Any]
Wrap = Callable[[Function], Any]
_LIBRARY_FOLDERS = tuple(
    {sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
)
_ACTIVE = threading.local()  # .recorder: of the trace this thread runs


def _recorder() -> Recorder | None:
    return getattr(_ACTIVE, "recorder", None)


def _wrapper(
    applies: Callable[[tuple[Any, ...], dict[str, Any]], bool]
) -> Callable[[Callable[..., Any]], Wrap]:
    """A wrapper that records calls in a tracing thread to which `applies`."""

    def of_record(record: Callable[..., Any]) -> Wrap:
        def wrap(original: Function) -> Function:
            @functools.wraps(original)
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                recorder = _recorder()
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


@_wrapper(_with_traced)
def _routed(recorder: Recorder, original: Function, *args: Any, **kwargs: Any) -> Any:
    """np.sum and its like: of lists, or with traced arrays where numpy does not look for them."""
    return recorder.handlers.function(recorder, original, args, kwargs)


@_wrapper(_with_traced)
def _holding(
    recorder: Recorder, original: Function, value: Any, dtype: Any = None, *args: Any, **kwargs: Any
) -> Any:
    """np.array and its like: nests that hold traced arrays are stacked."""
    copy = kwargs.pop("copy", original.__name__ == "array")
    if args or set(kwargs) - {"order", "subok"}:
        raise recorder.unsupported(
            f"numpy.{original.__name__} of traced arrays with {sorted(kwargs) or args}",
            "give dtype only",
        )
    if not isinstance(value, TracedArray):
        value, copy = recorder.traced(value), False
    if dtype is not None and value.dtype != np.dtype(dtype):
        return value.astype(dtype)
    return np.copy(value) if copy else value


@_wrapper(_always)
def _fresh(recorder: Recorder, original: Function, *args: Any, **kwargs: Any) -> Any:
    """np.zeros and its like: an array that can hold traced values.

    Integers stay plain: they are counters and indices.
    """
    if original.__name__ in ("full", "full_like") and _with_traced(args[1:], kwargs):
        return _filled(recorder, original.__name__ == "full_like", *args, **kwargs)
    made = original(*args, **kwargs)
    if type(made) is not np.ndarray or made.dtype.kind != "f" or made.dtype.itemsize > 8:
        return made
    if original.__name__.startswith("empty"):
        made[...] = 0.0  # the same at every call
    first = float(made.flat[0]) if made.size else 0.0
    if (made == first).all():
        return recorder.wrap(made, recorder.full(made.shape, made.dtype, first))
    return recorder.wrap(made, recorder.constant(made))


def _filled(
    recorder: Recorder, like: bool, first: Any, fill_value: Any, dtype: Any = None
) -> Any:
    """np.full and np.full_like with a traced value."""
    shape = np.shape(first) if like else first
    if dtype is None and like:
        dtype = np.result_type(first)
    result: Any = np.copy(np.broadcast_to(recorder.traced(fill_value), shape))
    return result if dtype is None else result.astype(dtype)


@_wrapper(lambda args, kwargs: not args and kwargs.get("seed") is None)
def _seeded(recorder: Recorder, original: Function, *args: Any, **kwargs: Any) -> Any:
    """np.random.default_rng: a generator without a seed draws what no other call draws."""
    raise TraceError(
        "random numbers of an unseeded generator would be baked into the trace", loc=user_loc(),
        hint="draw them outside and pass them as an argument",
    )


@_wrapper(_with_traced)
def _special(recorder: Recorder, original: Function, *args: Any, **kwargs: Any) -> Any:
    """Functions of scipy.special that are no ufuncs, in the dtype of scipy's own result."""
    name = f"scipy.special.{original.__name__}"
    want = recorder.numpy(original, *args, **kwargs)
    dtype = np.result_type(*(want if isinstance(want, tuple) else (want,)))
    used = [recorder.traced(a) if contains_traced(a) else a for a in args]
    wide = [
        recorder.cast(a, dtype) if type(a) is TracedArray and a.dtype.kind == "f" else a
        for a in used
    ]
    try:
        result = SPECIAL[original.__name__](*wide, **kwargs)
    except TypeError as error:
        raise recorder.unsupported(f"{name} called with these arguments: {error}") from error
    return conform(recorder, name, result, want)


# --- names in the traced code ---------------------------------------------------------------------

_WRAPS: dict[str, dict[str, Wrap]] = {
    "numpy": {
        **dict.fromkeys(
            ("array", "asarray", "asanyarray", "ascontiguousarray", "asfortranarray"), _holding),
        "vectorize": lambda original: Vectorize, **dict.fromkeys(("r_", "c_"), Concatenator),
        **dict.fromkeys(
            ("zeros", "ones", "empty", "full", "eye", "identity",
             "zeros_like", "ones_like", "empty_like", "full_like"), _fresh),
        **dict.fromkeys(
            ("sum", "mean", "prod", "max", "min", "amax", "amin", "std", "var", "median",
             "average", "any", "all", "cumsum", "cumprod", "dot", "outer", "inner", "cov", "diff",
             "sort", "argmax", "argmin", "ravel", "reshape", "transpose", "take", "allclose"),
            _routed),
    },
    "numpy.linalg": {"norm": _routed},
    "numpy.random": {"default_rng": _seeded},
    "scipy.special": dict.fromkeys(SPECIAL, _special),
    "scipy": {},
}  # fmt: skip


class _Proxy(ModuleType):
    """A module with some functions wrapped; all else is the module's own."""

    def __init__(self, module: ModuleType, replaced: dict[str, Any]) -> None:
        super().__init__(module.__name__, module.__doc__)
        vars(self).update(vars(module))
        vars(self).update(replaced)
        vars(self)["_proxied"] = module

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["_proxied"], name)

    # Equal to the module: code for several libraries compares it, or has it as a dict's key.
    def __eq__(self, other: object) -> bool:
        mine = vars(self)["_proxied"]
        return (vars(other)["_proxied"] if isinstance(other, _Proxy) else other) is mine

    def __hash__(self) -> int:
        return hash(vars(self)["_proxied"])


@functools.lru_cache(maxsize=4)
def _replacements(loaded: tuple[str, ...]) -> dict[int, tuple[Any, Any]]:
    """By id: what is replaced, and by what, for the libraries that are loaded."""
    table: dict[int, tuple[Any, Any]] = {}
    proxies: dict[str, ModuleType] = {}
    for path in sorted(loaded, key=lambda p: -p.count(".")):  # submodules first
        module = sys.modules[path]
        replaced: dict[str, Any] = {
            sub.rpartition(".")[2]: proxy for sub, proxy in proxies.items()
            if sub.rpartition(".")[0] == path
        }  # fmt: skip
        for name, wrap in _WRAPS[path].items():
            original = getattr(module, name)
            replaced[name] = wrap(original)
            _enter(table, original, replaced[name])
        proxies[path] = _Proxy(module, replaced)
        _enter(table, module, proxies[path])
    return table


def replacements() -> dict[int, tuple[Any, Any]]:
    """By id: what traced code sees in another place (the second) than numpy's (the first)."""
    return _replacements(tuple(p for p in _WRAPS if p in sys.modules))


def _enter(table: dict[int, tuple[Any, Any]], original: Any, replacement: Any) -> None:
    # under the replacement too: a trace in another thread may have put it there already
    table[id(original)] = table[id(replacement)] = (original, replacement)


_LOCK = forks.lock()
_counts: dict[tuple[int, str], int] = {}
Place = tuple[dict[str, Any], str, Any, Any]  # globals, name, what stands there, its replacement


def _places(roots: Sequence[Any]) -> list[Place]:
    """The globals to replace: of every function that can be reached."""
    table = replacements()
    spaces: dict[int, dict[str, Any]] = {}

    def note(obj: Any) -> bool:
        if isinstance(obj, FunctionType):
            spaces[id(obj.__globals__)] = obj.__globals__
        return False

    for root in roots:
        note(root)
        Origins(root, note).all()
    return [
        (space, name, *table[id(value)])
        for space in spaces.values()
        if not _is_library(space)
        for name, value in list(space.items())
        if id(value) in table
    ]


def _is_library(space: dict[str, Any]) -> bool:
    """Whether a module is installed or gradof's own: it may hand its arrays to C."""
    top = str(space.get("__name__", "")).partition(".")[0]
    file = str(space.get("__file__") or "")
    return top in ("gradof", "numpy", "scipy") or file.startswith(_LIBRARY_FOLDERS)


@contextmanager
def creation_for(recorder: Recorder, roots: Sequence[Any]) -> Iterator[None]:
    """While active, the functions reached from `roots` make their arrays for `recorder`.

    See Note [Only names in the traced code].
    """
    outer = _recorder()
    with _LOCK:
        places = _places(roots)
        for space, name, _, replacement in places:
            space[name] = replacement
            _counts[id(space), name] = _counts.get((id(space), name), 0) + 1
    _ACTIVE.recorder = recorder
    try:
        yield
    finally:
        _ACTIVE.recorder = outer
        with _LOCK:
            _put_back(places)


def _put_back(places: Sequence[Place]) -> None:
    # the last trace to end puts back what was there
    for space, name, original, replacement in places:
        key = (id(space), name)
        _counts[key] -= 1
        if not _counts[key]:
            del _counts[key]
            if space.get(name) is replacement:
                space[name] = original
