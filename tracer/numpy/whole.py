"""What stands for a whole number of Python's while a trace finds out what depends on it.

    t, n = Index(3, ...), Length(20, ...)      # `index`: the number of a step; `lengths`: a size
    isinstance(n, int), n // 2, f"{n}"         # True, and what the number gives
    n.number()                                 # 20, and noted: the code may do anything with it

Each kind overrides the arithmetic that it can follow.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np


class Whole:
    """See the module docstring."""

    __slots__ = ()
    __array_priority__ = 2000

    # isinstance(n, int) holds
    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return int

    def number(self) -> int:
        """The number, for anything that may depend on it."""
        raise NotImplementedError

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
        return hash(self.number())

    def __divmod__(self, other: Any) -> Any:
        return divmod(self.number(), number(other))

    def __rdivmod__(self, other: Any) -> Any:
        return divmod(other, self.number())

    def __format__(self, spec: str) -> str:
        return format(self.number(), spec)

    def __round__(self, *args: Any) -> Any:
        return round(self.number(), *args)


def _unary(function: Callable[[Any], Any]) -> Callable[[Whole], Any]:
    return lambda self: function(self.number())


def _comparison(function: Callable[[Any, Any], Any]) -> Callable[[Whole, Any], Any]:
    return lambda self, other: function(self.number(), number(other))


def _binary(function: Callable[[Any, Any], Any]) -> Callable[[Whole, Any], Any]:
    return lambda self, other: (
        NotImplemented  # it knows numbers of the graph
        if hasattr(other, "__array_ufunc__") and not isinstance(other, Whole)
        else function(self.number(), number(other))
    )  # fmt: skip


def _reflected(function: Callable[[Any, Any], Any]) -> Callable[[Whole, Any], Any]:
    return lambda self, other: function(number(other), self.number())


_UNARY: dict[str, Callable[[Any], Any]] = {
    "index": operator.index, "int": int, "float": float, "complex": complex, "bool": bool,
    "str": str, "repr": repr, "abs": abs, "invert": operator.invert,
    "trunc": int, "floor": int, "ceil": int,
}  # fmt: skip
for _name, _function in _UNARY.items():
    setattr(Whole, f"__{_name}__", _unary(_function))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Whole, f"__{_name}__", _comparison(getattr(operator, _name)))
for _name in ("truediv", "floordiv", "mod", "pow", "and_", "or_", "xor", "lshift", "rshift"):
    _both: Any = getattr(operator, _name)
    setattr(Whole, f"__{_name.strip('_')}__", _binary(_both))
    setattr(Whole, f"__r{_name.strip('_')}__", _reflected(_both))


def number(value: Any) -> Any:
    """The number behind what stands for one; any other value as it is."""
    return value.number() if issubclass(type(value), Whole) else value


def numbers(tree: Any) -> Any:
    """A nest of arguments, with numbers for what stands for them."""
    if type(tree) in (tuple, list):
        return type(tree)(map(numbers, tree))
    if type(tree) is dict:
        return {key: numbers(value) for key, value in tree.items()}
    return number(tree)
