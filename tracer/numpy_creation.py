"""Arrays made inside a traced function: np.zeros, np.array and their like.

    B = np.zeros(3); B[0] = x          # B must be able to hold a traced value
    np.array([x[0] ** 2, x[1]])        # numpy would ask each element for its number

Neither reaches numpy's protocols, nor do lists of traced arrays (`np.sum([x[0], x[1]])`) or a plain
array indexed by a traced one (`np.take(table, i)`). These functions are wrapped while a trace runs.

Note [Wrapped only for the tracing thread]
The wrappers are attributes of the numpy module while at least one trace runs. They ask first
whether the calling thread is tracing, and if not, call numpy's own function: other threads see no
difference, nor does code that keeps a wrapper for later. `zeros` and its like answer with a traced
array only to the user's own frames, so that libraries get what they expect; and a traced array that
depends on no input still serves as a plain one wherever one is needed.
"""

from __future__ import annotations

import functools
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any

import numpy as np

from gradof.errors import TraceError
from gradof.tracer.numpy_array import TracedArray
from gradof.tracer.numpy_recorder import Recorder, contains_traced
from gradof.tracer.source import user_frame, user_loc

_LOCK = threading.Lock()
_ACTIVE = threading.local()
_depth = 0
_library_code: dict[CodeType, bool] = {}
_LIBRARY_FOLDERS = tuple(
    {sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
)


def _recorder() -> Recorder | None:
    return getattr(_ACTIVE, "recorder", None)


def _called_by_user() -> bool:
    """Whether the function that calls the wrapper is user code, not an installed library's."""
    frame = sys._getframe(2)
    if user_frame(frame) is not frame:
        return False
    known = _library_code.get(frame.f_code)
    if known is None:
        known = frame.f_code.co_filename.startswith(_LIBRARY_FOLDERS)
        _library_code[frame.f_code] = known
    return not known


def _holding(original: Callable[..., Any]) -> Callable[..., Any]:
    """np.array and its like: nests that hold traced arrays are stacked."""

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        recorder = _recorder()
        if recorder is None or not args or not contains_traced(args[0]):
            return original(*args, **kwargs)
        return _stacked(recorder, original.__name__, *args, **kwargs)

    return wrapper


def _stacked(
    recorder: Recorder, name: str, value: Any, dtype: Any = None, *args: Any, **kwargs: Any
) -> Any:
    copy = kwargs.pop("copy", name == "array")
    if args or {k: v for k, v in kwargs.items() if k not in ("order", "subok")}:
        recorder.enter()
        raise recorder.unsupported(f"numpy.{name} of traced arrays with {args} {kwargs}",
                                   "give dtype only")  # fmt: skip
    if not isinstance(value, TracedArray):
        value, copy = recorder.traced(value), False
    if dtype is not None and value.dtype != np.dtype(dtype):
        return value.astype(dtype)
    return np.copy(value) if copy else value


def _fresh(original: Callable[..., Any]) -> Callable[..., Any]:
    """np.zeros and its like: an array that can hold traced values."""

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        recorder = _recorder()
        if recorder is None or not _called_by_user():
            return original(*args, **kwargs)
        full = original.__name__ in ("full", "full_like")
        if full and contains_traced(_fill_value(args, kwargs)):
            return _filled(original, *args, **kwargs)
        made = original(*args, **kwargs)
        # integers are counters and indices: they stay plain
        if not isinstance(made, np.ndarray) or isinstance(made, TracedArray):
            return made
        if type(made) is not np.ndarray or made.dtype.kind != "f" or made.dtype.itemsize > 8:
            return made
        recorder.enter()
        if made.size and original.__name__ in ("empty", "empty_like"):
            made[...] = 0.0  # the same at every call
        same = made.size and bool((made == made.flat[0]).all())
        if same or not made.size:
            value = float(made.flat[0]) if made.size else 0.0
            return recorder.wrap(made, recorder.full(made.shape, made.dtype, value))
        return recorder.wrap(made, recorder.constant(made))

    return wrapper


def _fill_value(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return args[1] if len(args) > 1 else kwargs.get("fill_value")


def _filled(original: Callable[..., Any], first: Any, fill_value: Any, dtype: Any = None) -> Any:
    """np.full and np.full_like with a traced value."""
    value = fill_value if isinstance(fill_value, TracedArray) else np.stack(fill_value)
    like = original.__name__ == "full_like"
    shape = np.shape(first) if like else first
    if dtype is None and like:
        dtype = np.result_type(first)
    result = np.copy(np.broadcast_to(value, shape))
    return result if dtype is None else result.astype(dtype)


def _routed(original: Callable[..., Any]) -> Callable[..., Any]:
    """np.sum and its like, of lists of traced arrays; np.take of a plain array at traced places."""

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        recorder = _recorder()
        if recorder is None or not contains_traced(args):
            return original(*args, **kwargs)
        return recorder.handlers.function(recorder, original, args, kwargs)

    return wrapper


def _seeded(original: Callable[..., Any]) -> Callable[..., Any]:
    """np.random.default_rng: a generator without a seed draws what no other call draws."""

    @functools.wraps(original)
    def wrapper(seed: Any = None) -> Any:
        if seed is None and _recorder() is not None:
            raise TraceError(
                "random numbers of an unseeded generator would be baked into the trace",
                loc=user_loc(), hint="draw them outside and pass them as an argument",
            )
        return original(seed)

    return wrapper


_ROUTED = (
    "sum", "mean", "prod", "max", "min", "amax", "amin", "std", "var", "median", "average", "any",
    "all", "cumsum", "cumprod", "dot", "outer", "inner", "cov", "diff", "sort", "argmax", "argmin",
    "ravel", "reshape", "transpose", "take", "allclose",
)  # fmt: skip
_WRAPPED: tuple[tuple[Any, str, Callable[..., Any], Callable[..., Any]], ...] = (
    *((np, name, getattr(np, name), _holding(getattr(np, name)))
      for name in ("array", "asarray", "asanyarray", "ascontiguousarray")),
    *((np, name, getattr(np, name), _fresh(getattr(np, name)))
      for name in ("zeros", "ones", "empty", "full", "eye", "identity",
                   "zeros_like", "ones_like", "empty_like", "full_like")),
    *((np, name, getattr(np, name), _routed(getattr(np, name))) for name in _ROUTED),
    (np.linalg, "norm", np.linalg.norm, _routed(np.linalg.norm)),
    (np.random, "default_rng", np.random.default_rng, _seeded(np.random.default_rng)),
)  # fmt: skip


@contextmanager
def wrapped_creation(recorder: Recorder) -> Iterator[None]:
    """While active, this thread's creation functions make arrays for `recorder`."""
    global _depth
    outer = _recorder()
    with _LOCK:
        if _depth == 0:
            for module, name, _, wrapper in _WRAPPED:
                setattr(module, name, wrapper)
        _depth += 1
    _ACTIVE.recorder = recorder
    try:
        yield
    finally:
        _ACTIVE.recorder = outer
        with _LOCK:
            _depth -= 1
            if _depth == 0:
                for module, name, original, _ in _WRAPPED:
                    setattr(module, name, original)
