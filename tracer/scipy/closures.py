"""Functions that know traced arrays, taken apart and filled with other arrays.

    nest = (lambda t: np.exp(-theta * t), {"args": (b,)})     # theta and b are traced
    arrays, fill = taken_apart(nest)                          # [theta, b]
    f, rest = fill([1.5, 2.0])                                # the same of numbers

Arrays are found in arguments, closures, defaults and partials, in attributes of objects, and in
the functions that compiled ones, and their gradients, are of.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from gradof.tracer.core.number import TracedNumber
from gradof.tracer.numpy.active import active_recorder
from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.numbers import as_scalar
from gradof.tracer.numpy.recorder import real

Replace = Callable[[Any], Any]
Fill = Callable[[Sequence[Any]], Any]
Kinds = tuple[type, ...]


# By class: what scipy's own code can work with, of an object whose attributes are ours.
PLAIN: dict[str, Replace] = {}


class _Hole:
    """The place of an array that was taken out."""

    def __init__(self, index: int) -> None:
        self.index = index


_TRACED = (TracedArray, TracedNumber)


def taken_apart(value: Any) -> tuple[list[TracedArray], Fill]:
    """The traced arrays that a nest of functions knows, and what makes it of others.

    Traced numbers are among them, as scalars. The second leads to none of the traced arrays.
    """
    found = known(value)
    holes = {id(v): _Hole(i) for i, v in enumerate(found)}
    nest = _rebuilt(value, _TRACED, lambda v: holes[id(v)], {})
    arrays = [_as_array(v) for v in found]

    def fill(given: Sequence[Any]) -> Any:
        own = [_writable(v) for v in given]
        return _rebuilt(nest, (_Hole,), lambda hole: own[hole.index], {})

    return arrays, fill


def _writable(value: Any) -> Any:
    """An array that scipy's C code takes, which wants to be able to write."""
    fixed = type(value) is np.ndarray and not value.flags.writeable
    return value.copy() if fixed else value


def _as_array(value: Any) -> TracedArray:
    if type(value) is not TracedNumber:
        array: TracedArray = value
        return array
    recorder = active_recorder()
    assert recorder is not None
    scalar: TracedArray = as_scalar(recorder, value, np.result_type(type(value.value)))
    return scalar


def rebuilt(value: Any, replace: Replace) -> Any:
    """A function, or a nest, with other values in the place of the traced ones that it knows."""
    return _rebuilt(value, _TRACED, replace, {})


def known(value: Any) -> list[Any]:
    """The traced arrays and numbers that a function, or a nest of functions, knows."""
    found: list[Any] = []

    def note(traced: Any) -> Any:
        if not any(traced is f for f in found):
            found.append(traced)
        return traced

    rebuilt(value, note)
    return found


def untraced(value: Any) -> Any:
    """A function, or a nest, with what its traced values are now."""
    return rebuilt(value, lambda v: v.value if type(v) is TracedNumber else real(v))


def _rebuilt(value: Any, kinds: Kinds, replace: Replace, done: dict[int, Any]) -> Any:
    if type(value) in kinds:
        return replace(value)
    if id(value) in done:
        return done[id(value)]
    again = functools.partial(_rebuilt, kinds=kinds, replace=replace, done=done)
    if type(value) in (list, tuple):
        return type(value)([again(v) for v in value])
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(again, value))
    if type(value) is dict:
        return {k: again(v) for k, v in value.items()}
    if isinstance(value, functools.partial):
        parts = again((value.args, value.keywords))
        return functools.partial(again(value.func), *parts[0], **parts[1])
    if isinstance(value, MethodType):
        return MethodType(again(value.__func__), again(value.__self__))
    if isinstance(value, FunctionType):
        return _function(value, again, done) if value.__closure__ or value.__defaults__ else value
    if hasattr(type(value), "of_function"):
        return _compiled(value, kinds, replace, done)
    return _object(value, kinds, again)


def _compiled(value: Any, kinds: Kinds, replace: Replace, done: dict[int, Any]) -> Any:
    """A compiled function, or its gradient, of another function where that is to be another."""
    replaced: list[Any] = [value] if id(value.fn) in done else []

    def noted(traced: Any) -> Any:
        replaced.append(traced)
        return replace(traced)

    fn = _rebuilt(value.fn, kinds, noted, {**done, id(value): value})
    done[id(value)] = value.of_function(fn) if replaced else value
    return done[id(value)]


def vars_of(value: Any) -> dict[str, Any]:
    """The attributes that are in no slot."""
    held = getattr(value, "__dict__", None)
    return held if type(held) is dict else {}


def attributes_of(value: Any) -> dict[str, Any]:
    """What an object holds, in slots too."""
    found = dict(vars_of(value))
    for base in type(value).__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name.startswith("__") and not name.endswith("__"):  # a private name of the class's
                name = f"_{base.__name__.lstrip('_')}{name}"
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                found[name] = getattr(value, name)
    return found


def _object(value: Any, kinds: Kinds, again: Replace) -> Any:
    """An object with other attributes, where any of them holds what is replaced."""
    if isinstance(value, (type, ModuleType)):
        return value
    held = attributes_of(value)
    changed = {k: again(v) for k, v in held.items() if _holds(v, kinds)}
    if not changed:
        return value
    cls: Any = type(value)
    try:
        made = object.__new__(cls)  # its own way to copy may want what is not there yet
    except TypeError:  # of a class in C
        made = copy.copy(value)
    own = vars_of(value)
    vars_of(made).update({name: changed.get(name, v) for name, v in own.items()})
    for name in held.keys() - own.keys():
        object.__setattr__(made, name, changed.get(name, held[name]))
    plain = PLAIN.get(f"{cls.__module__}.{cls.__qualname__}")
    return made if plain is None or _holds(held | changed, (*_TRACED, _Hole)) else plain(made)


def _holds(value: Any, kinds: Kinds) -> bool:
    if type(value) in (list, tuple):
        return any(_holds(v, kinds) for v in value)
    if type(value) is dict:
        return any(_holds(v, kinds) for v in value.values())
    if isinstance(value, functools.partial):
        return _holds([value.func, *value.args, *value.keywords.values()], kinds)
    if isinstance(value, FunctionType) and value.__closure__:
        cells = [c.cell_contents for c in value.__closure__ if c != CellType()]
        return any(type(c) in kinds for c in cells)
    return type(value) in kinds


def _function(value: FunctionType, again: Replace, done: dict[int, Any]) -> FunctionType:
    cells = tuple(CellType() for _ in value.__closure__ or ())
    made = FunctionType(value.__code__, value.__globals__, value.__name__, None, cells)
    done[id(value)] = made  # before its cells: it may know itself
    made.__defaults__ = again(value.__defaults__)
    made.__kwdefaults__ = again(value.__kwdefaults__)
    made.__dict__.update(again(value.__dict__))  # as an event's `terminal`
    for cell, old in zip(cells, value.__closure__ or (), strict=True):
        try:
            cell.cell_contents = again(old.cell_contents)
        except ValueError:  # not set yet
            continue
    return made
