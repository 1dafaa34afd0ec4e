"""Functions of scipy's that are in C, which have no code to swap (Note [Swapped code]).

    @scipy_in_c("scipy.optimize.linear_sum_assignment")
    def assigned(original, cost_matrix, maximize=False): ...    # where an argument is traced

While a trace runs, the module that users import it from has a wrapper in its place, and so has
traced code that knows the function itself. The wrapper asks whether its thread is tracing.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gradof.ir import forks
from gradof.tracer.numpy.active import active_recorder
from gradof.tracer.numpy.names import STAND_INS
from gradof.tracer.scipy.calls import holds_traced

Function = Callable[..., Any]
IN_C: dict[str, Function] = {}  # what records a call, by name
_ORIGINALS: dict[str, Any] = {}  # by name
_WRAPPERS: dict[int, tuple[Any, Function]] = {}  # by the ids of both
_LOCK = forks.lock()
_active = [0]


def scipy_in_c(name: str) -> Callable[[Function], Function]:
    """Register what records the calls of a function, as users name it, with traced arrays.

    It gets the function first.
    """

    def register(record: Function) -> Function:
        assert name not in IN_C, name
        IN_C[name] = record
        return record

    return register


def _wrapped(name: str) -> Function:
    """The function's wrapper, which does not hold it: what traced code reaches is replaced."""

    @functools.wraps(_ORIGINALS[name], updated=())
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        original = _ORIGINALS[name]
        recorder = active_recorder()
        given = (*args, *kwargs.values())
        if recorder is None or recorder.closed or not any(map(holds_traced, given)):
            return original(*args, **kwargs)
        recorder.enter()
        return IN_C[name](original, *args, **kwargs)

    del wrapper.__wrapped__
    return wrapper


def _found() -> Iterator[tuple[Any, str, Any, Function]]:
    """Module, name, function and wrapper, of all that are loaded."""
    for path in IN_C:
        module_path, _, name = path.rpartition(".")
        module = sys.modules.get(module_path)
        if module is None or name not in vars(module):
            continue
        value = vars(module)[name]
        if id(value) not in _WRAPPERS:
            _ORIGINALS[path] = value
            pair = (value, _wrapped(path))
            _WRAPPERS[id(value)] = _WRAPPERS[id(pair[1])] = pair
        yield module, name, *_WRAPPERS[id(value)]


def _stand_in(value: Any) -> tuple[Any, Any] | None:
    pair = _WRAPPERS.get(id(value))
    return pair if pair is not None and (value is pair[0] or value is pair[1]) else None


STAND_INS.append(_stand_in)


@contextmanager
def wrapped() -> Iterator[None]:
    """Within it, modules of scipy have the wrappers of functions in C."""
    with _LOCK:
        _active[0] += 1
        for module, name, _, wrapper in _found():
            setattr(module, name, wrapper)
    try:
        yield
    finally:
        with _LOCK:
            _active[0] -= 1
            if not _active[0]:
                for module, name, original, _ in _found():
                    setattr(module, name, original)
