"""Calls that make numbers or arrays of what is traced, in code that is not ours.

    float(x), int(x), complex(a, b)      Python's own types, by their names
    sqrt(x)                              `from math import sqrt`
    np.float64(x), self.dtype(x),        numpy's types, by whatever names and attributes
    x.dtype.type(y), map(np.float32, x)  lead to them
    np.asarray(x), np.r_[x, 0]           in packages, where numpy's names are left alone

All are in C and ask a traced value for its number. So the callee is lent to the code at that call
alone (Note [Adopted arrays]): under the name that its expression begins with stands something that
leads to what the trace makes of the call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any, NamedTuple, Protocol

import numpy as np

from gradof.tracer.numpy.active import active_recorder
from gradof.tracer.state.bytecode import Instruction, instructions
from gradof.tracer.state.generators import GLOBAL

_CALLS = frozenset({"CALL", "CALL_KW", "CALL_FUNCTION_EX", "BINARY_SUBSCR", "BINARY_OP"})
_NAMES = frozenset({
    "LOAD_GLOBAL", "LOAD_FAST", "LOAD_DEREF", "LOAD_NAME", "LOAD_FAST_CHECK",
    "LOAD_FAST_LOAD_FAST",
})  # fmt: skip
_ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_ABSENT = object()


class Callee(NamedTuple):
    """What is called somewhere: a name, the attributes after it, and where the name is read."""

    offset: int
    name: str
    attributes: tuple[str, ...]
    start: Any  # of the expression: its line and column


class Calls(Protocol):
    """What a trace makes of calls."""

    def get(self, function: Any, default: Any = None, /) -> Any:
        """What stands for a function or type."""


def is_type(value: Any) -> bool:
    """Whether a value is a type of numbers: Python's, or numpy's of a dtype."""
    if not isinstance(value, type):
        return False
    if value in (float, int, complex):
        return True
    return issubclass(value, (np.number, np.bool_)) and value.__module__ == "numpy"


def callees(frame: FrameType, calls: Calls, failed: bool) -> Iterator[Callee]:
    """The calls in a frame's code that a trace makes something of.

    Types are found wherever they are called, and what begins most functions, `np.asarray` and its
    like; other functions where the instruction that runs calls them.
    Where it has `failed`, properties may lead to what it calls: all that the run did is undone.
    """
    spaces = frame.f_locals, frame.f_globals, frame.f_builtins
    running: Any = list(frame.f_code.co_positions())[frame.f_lasti // 2][::2]
    for callee in _called(frame.f_code):
        first = next((space[callee.name] for space in spaces if callee.name in space), _ABSENT)
        value = _followed(first, callee.attributes)
        if value is _ABSENT and failed and callee.start == running:
            value = _read(first, callee.attributes)
        if calls.get(value) is not None and (
            is_type(value) or _is_of_math(value) or callee.start == running
            or any(value is holder for holder in _HOLDERS)
        ):  # fmt: skip
            yield callee


_HOLDERS: tuple[Any, ...] = (np.asarray, np.array, np.asanyarray, np.ascontiguousarray)
_MAKERS: tuple[Any, ...] = (
    np.empty, np.zeros, np.ones, np.full, np.empty_like, np.zeros_like, np.ones_like, np.full_like,
    np.array, np.copy,
)  # fmt: skip


def making(frame: FrameType, calls: Calls) -> Iterator[Callee]:
    """The calls in a frame's code that make an array, where numpy's names are left alone."""
    spaces = frame.f_locals, frame.f_globals
    for callee in _called(frame.f_code):
        first = next((space[callee.name] for space in spaces if callee.name in space), _ABSENT)
        value = _followed(first, callee.attributes)
        if any(value is maker for maker in _MAKERS) and calls.get(value) is not None:
            yield callee


def drawing(code: CodeType, space: dict[str, Any], calls: Calls) -> Iterator[Callee]:
    """The calls in a package's code that draw from the generators of numpy's and Python's own."""
    for callee in _called(code):
        value = _followed(space.get(callee.name, _ABSENT), callee.attributes)
        draws = any(getattr(value, "__self__", None) is g for g in GLOBAL)
        if (draws or value is np.random.seed) and calls.get(value) is not None:
            yield callee


def _is_of_math(value: Any) -> bool:
    return type(value) is BuiltinFunctionType and value.__module__ in ("math", "cmath")


def _followed(value: Any, attributes: tuple[str, ...]) -> Any:
    """What attributes lead to, where no code of the user's has to run for it."""
    for name in attributes:
        is_array = isinstance(value, (np.ndarray, np.generic))
        if isinstance(value, np.dtype) or (name == "dtype" and is_array):
            value = getattr(value, name, _ABSENT)
            continue
        if isinstance(value, ModuleType):
            value = vars(value).get(name, _ABSENT)
            continue
        value = inspect.getattr_static(value, name, _ABSENT)
        value = value.__func__ if isinstance(value, staticmethod) else value
        if hasattr(type(value), "__get__") and not isinstance(value, FunctionType):
            return _ABSENT  # a property, a slot, or the like
    return value


def _read(value: Any, attributes: tuple[str, ...]) -> Any:
    """The same, as the code reads it."""
    for name in attributes:
        value = getattr(value, name, _ABSENT)
    return value


def _called(code: CodeType) -> Iterator[Callee]:
    """Names with attributes that are called, or are the first argument of `map`."""
    positions: list[Any] = list(code.co_positions())
    found = instructions(code)
    calls = {positions[i.offset // 2][::2] for i in found if i.opname in _CALLS}
    maps = [
        positions[i.offset // 2] for i in found if i.opname == "LOAD_GLOBAL" and i.argval == "map"
    ]
    for at, load in enumerate(found):
        if load.opname not in _NAMES:
            continue
        last, attributes = at, list[str]()
        while last + 1 < len(found) and found[last + 1].opname in _ATTRIBUTES:
            last += 1
            attributes.append(found[last].argval)
        start = _start(positions, load, found[at + 1 : last + 2])
        mapped = any(m[1] == start[0] and m[3] + 1 == start[1] for m in maps if None not in m)
        if None not in start and (start in calls or mapped):
            name = load.argval[1] if isinstance(load.argval, tuple) else load.argval
            yield Callee(load.offset, name, tuple(attributes), start)


def _start(positions: list[Any], load: Instruction, after: list[Instruction]) -> Any:
    """Where the expression of a name begins: Python 3.13 gives a pair of names the first's place.

    What comes after the pair is about the second one.
    """
    if load.opname != "LOAD_FAST_LOAD_FAST":
        return positions[load.offset // 2][::2]
    if after and after[0].opname in _ATTRIBUTES | {"PUSH_NULL"}:
        return positions[after[0].offset // 2][::2]
    return None, None


class Lent:
    """A value whose attributes lead to what stands for a callee, while its expression is read."""

    def __init__(self, value: Any, calls: Calls) -> None:
        self.__value, self.__calls = value, calls  # mangled: the user's may be called so, too

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.__value, name)
        if active_recorder() is None:  # another thread, which reads the name meanwhile
            return value
        made = self.__calls.get(value)
        return Lent(value, self.__calls) if made is None else made

    def __getitem__(self, key: Any) -> Any:
        return self.__value[key]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As the value itself, where it is none of those."""
        return self.__value(*args, **kwargs)


class Giving:
    """A value whose parts and results are traced arrays where they are plain ones.

    Of `self.basis().dot(x)`, where the code that runs is to have `self`.
    """

    def __init__(self, value: Any, traced: Callable[[Any], Any]) -> None:
        self.__value, self.__traced = value, traced

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        part = getattr(self.__value, name)
        if active_recorder() is None:
            return part
        return self.__traced(part) if is_numeric(part) else Giving(part, self.__traced)

    def __getitem__(self, key: Any) -> Any:
        return self.__given(self.__value[key])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As the value itself, but for an array."""
        return self.__given(self.__value(*args, **kwargs))

    def __given(self, result: Any) -> Any:
        if active_recorder() is None:
            return result
        if is_numeric(result):
            return self.__traced(result)
        if type(result) is tuple and _holds_numeric(result):
            return tuple(self.__given(item) for item in result)
        return Giving(result, self.__traced) if _holds_numeric(result) else result


def _holds_numeric(value: Any, depth: int = 4) -> bool:
    """Whether a tuple, list or dict holds plain arrays: another one is given as it is."""
    if type(value) is dict:
        value = list(value.values())
    if type(value) not in (tuple, list) or depth == 0:
        return False
    return any(is_numeric(v) or _holds_numeric(v, depth - 1) for v in value)


def is_numeric(value: Any) -> bool:
    """Whether a value is a plain array of numbers."""
    return type(value) is np.ndarray and value.dtype.kind in "biufc"


def lend(
    frame: FrameType, local: Any, callee: Callee, calls: Calls
) -> Iterator[tuple[bool, str, Any]]:
    """Put what stands for it under a callee's name; yields whether it is local, and what was."""
    name = callee.name
    is_local = name in local
    space = local if is_local else frame.f_globals
    before: Any = space.get(name, _ABSENT)
    value = frame.f_builtins.get(name, _ABSENT) if before is _ABSENT else before
    made = calls.get(value) if not callee.attributes else Lent(value, calls)
    if value is _ABSENT or made is None:
        return  # another function than at the call that was noted
    yield is_local, name, before
    space[name] = made


def put_back(space: Any, name: str, before: Any) -> None:
    """Let a name be what it was."""
    if before is _ABSENT:
        del space[name]
    else:
        space[name] = before
