"""The number of a step while it is found out whether all steps of a loop are alike (`steps`).

    for t in range(1, n):         # t is an Index: 1, moving by 1
        x[t] = 0.5 * x[t - 1]     # places of traced arrays, which move by 1, too

Sums with whole numbers, and multiples, are indices again. Whatever else is done with one is done
with its value, and noted (`Origin.escaped`): what the step does may depend on it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from gradof.tracer.numpy.lengths import Length, sized
from gradof.tracer.numpy.loop_notes import LoopNotes


class Origin:
    """What indices of one step tell: whether a number was needed, by how much places moved."""

    __slots__ = ("done", "escaped", "moves", "notes")

    def __init__(self, notes: LoopNotes) -> None:
        self.notes = notes
        self.escaped = False
        self.done = False  # whether nobody asks any more
        self.moves: set[int] = set()


class Index:
    """See the module docstring."""

    __slots__ = ("_by", "_value", "origin")
    __array_priority__ = 2000

    def __init__(self, value: int, by: int, origin: Origin) -> None:
        self._value, self._by, self.origin = value, by, origin

    # isinstance(t, int) holds
    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return int

    def number(self) -> int:
        """The number, for anything that may depend on it."""
        self.origin.escaped = True
        return self._told()

    def now(self) -> int:
        """The number of this step, for what is noted of it."""
        return self._value

    def place(self) -> int:
        """The number, as a place that moves from step to step."""
        self.origin.moves.add(self._by)
        return self._told()

    def _told(self) -> int:
        """After the loop it follows from how many steps there were: Note [Told sizes]."""
        return self.origin.notes.sizes.plain(self._value) if self.origin.done else self._value

    def finish(self, value: int) -> None:
        """The loop is over: this is what the number was last."""
        self._value = value

    def _moved(self, value: int, by: int) -> Any:
        if self.origin.done:
            self._told()
            return value
        return Index(value, by, self.origin)

    def __add__(self, other: Any) -> Any:
        other = sized(other)
        if type(other) is int:
            return self._moved(self._value + other, self._by)
        return self.number() + other

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        other = sized(other)
        if type(other) is int:
            return self._moved(self._value - other, self._by)
        return self.number() - other

    def __rsub__(self, other: Any) -> Any:
        other = sized(other)
        if type(other) is int:
            return self._moved(other - self._value, -self._by)
        return other - self.number()

    def __mul__(self, other: Any) -> Any:
        if type(other) is int:
            return self._moved(self._value * other, self._by * other)
        return self.number() * other

    __rmul__ = __mul__

    def __neg__(self) -> Any:
        return self._moved(-self._value, -self._by)

    def __pos__(self) -> Any:
        return self

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return getattr(ufunc, method)(*numbers(inputs), **numbers(kwargs))

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.asarray(self.number(), dtype)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.number(), name)

    def __reduce__(self) -> Any:
        return int, (self.number(),)

    def __hash__(self) -> int:
        self.origin.notes.hashed = True
        return hash(self.number())

    def __divmod__(self, other: Any) -> Any:
        return divmod(self.number(), number(other))

    def __rdivmod__(self, other: Any) -> Any:
        return divmod(other, self.number())

    def __format__(self, spec: str) -> str:
        return format(self.number(), spec)

    def __round__(self, *args: Any) -> Any:
        return round(self.number(), *args)


def _unary(function: Callable[[Any], Any]) -> Callable[[Index], Any]:
    return lambda self: function(self.number())


def _binary(function: Callable[[Any, Any], Any]) -> Callable[[Index, Any], Any]:
    return lambda self, other: function(self.number(), number(other))


def _reflected(function: Callable[[Any, Any], Any]) -> Callable[[Index, Any], Any]:
    return lambda self, other: function(other, self.number())


_UNARY: dict[str, Callable[[Any], Any]] = {
    "index": operator.index, "int": int, "float": float, "complex": complex, "bool": bool,
    "str": str, "repr": repr, "abs": abs, "invert": operator.invert,
    "trunc": int, "floor": int, "ceil": int,
}  # fmt: skip
for _name, _function in _UNARY.items():
    setattr(Index, f"__{_name}__", _unary(_function))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Index, f"__{_name}__", _binary(getattr(operator, _name)))
for _name in ("truediv", "floordiv", "mod", "pow", "and_", "or_", "xor", "lshift", "rshift"):
    _both: Any = getattr(operator, _name)
    setattr(Index, f"__{_name.strip('_')}__", _binary(_both))
    setattr(Index, f"__r{_name.strip('_')}__", _reflected(_both))


def number(value: Any) -> Any:
    """The number behind an index, or a length; any other value as it is."""
    return value.number() if type(value) is Index or type(value) is Length else value


def numbers(tree: Any) -> Any:
    """A nest of arguments, with numbers for indices."""
    if type(tree) in (tuple, list):
        return type(tree)(map(numbers, tree))
    if type(tree) is dict:
        return {key: numbers(value) for key, value in tree.items()}
    return number(tree)


def placed(index: Any) -> Any:
    """What an array is indexed with, with the places that indices stand for."""
    kind = type(index)
    if kind is Index:
        return index.place()
    if kind is Length:
        return index.size()
    if kind is tuple:
        return tuple(map(placed, index))
    if kind is slice:
        return slice(placed(index.start), placed(index.stop), placed(index.step))
    return index
