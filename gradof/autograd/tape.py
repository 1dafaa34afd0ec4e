"""autograd's own tape: for vectors of the user's classes, and for tracers of the user's own.

    class PrintNode(Node): ...                       # told of every call
    value, node = trace(PrintNode.new_root(x), fun, x)

    class FunBox(Box, Fun): ...                      # what stands for a Fun that is differentiated
    FunBox.register(Fun)

All else is traced and compiled. On a tape the function runs as it is, on boxes, and each call of
numpy's or of a primitive makes a node.
"""

from __future__ import annotations

import warnings
from abc import ABCMeta
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from gradof.autograd.util import subvals
from gradof.tracer.numpy.array import TracedArray

Function = Callable[..., Any]
notrace_primitives: dict[type, set[Any]] = defaultdict(set)
_depth = -1  # of the innermost tape


class _Boxes(ABCMeta):
    """Traced arrays are boxes, too, to code that asks `isinstance(x, Box)`."""

    def __instancecheck__(cls, value: Any) -> bool:
        return type.__instancecheck__(cls, value) or (cls is Box and type(value) is TracedArray)


class Box(metaclass=_Boxes):
    """A value on a tape; subclasses are registered for the types of values."""

    type_mappings: ClassVar[dict[type, type]] = {}

    def __init__(self, value: Any, trace: int, node: Any) -> None:
        self._value, self._trace, self._node = value, trace, node

    def __bool__(self) -> bool:
        return bool(self._value)

    def __str__(self) -> str:
        return f"Autograd {type(self).__name__} with value {self._value}"

    @classmethod
    def register(cls, value_type: type) -> None:
        """Boxes of this class stand for values of that type."""
        Box.type_mappings[value_type] = cls


class ArrayBox(Box, NDArrayOperatorsMixin):
    """An array or number on a tape."""

    __array_priority__ = 100.0

    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        return apply(ufunc if method == "__call__" else getattr(ufunc, method), args, kwargs)

    def __array_function__(self, fun: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return apply(fun, args, kwargs)

    def __getitem__(self, key: Any) -> Any:
        return apply(_item, (self, key), {})

    def __len__(self) -> int:
        return len(self._value)

    def __float__(self) -> float:
        return float(self._value)

    @property
    def T(self) -> Any:
        """The transpose."""
        return apply(np.transpose, (self,), {})

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._value, name)
        if not callable(found):
            return found
        return lambda *args, **kwargs: apply(getattr(np, name), (self, *args), kwargs)


def _item(array: Any, key: Any) -> Any:
    return array[key]


_item.__name__ = "getitem"


class Node:
    """What is told of each call; subclasses say what they keep."""

    __slots__: tuple[str, ...] = ()

    def __init__(
        self, value: Any, fun: Any, args: Any, kwargs: Any, parent_argnums: Any, parents: Any
    ) -> None:
        raise NotImplementedError(type(self).__name__)

    def initialize_root(self, *args: Any, **kwargs: Any) -> None:
        """Make this the node of an input."""
        raise NotImplementedError(type(self).__name__)

    @classmethod
    def new_root(cls, *args: Any, **kwargs: Any) -> Any:
        """The node of an input."""
        root = cls.__new__(cls)
        root.initialize_root(*args, **kwargs)
        return root


def is_boxed(value: Any) -> bool:
    """Whether a value is on a tape."""
    return type.__instancecheck__(Box, value)


def of_a_tape(values: Iterable[Any]) -> bool:
    """Whether one of them is on a tape, or of a class that is registered for boxes."""
    mapped = Box.type_mappings
    return any(is_boxed(value) or (mapped and type(value) in mapped) for value in values)


def new_box(value: Any, depth: int, node: Any) -> Any:
    """The value on a tape; TypeError for a type that has no boxes."""
    made = Box.type_mappings.get(type(value))
    if made is None and (is_boxed(value) or isinstance(value, (float, int, complex, np.ndarray,
                                                               np.generic))):
        made = type(value) if is_boxed(value) else ArrayBox
    if made is None:
        raise TypeError(f"Can't differentiate w.r.t. type {type(value)}")
    return made(value, depth, node)


def trace(start_node: Any, fun: Function, x: Any) -> tuple[Any, Any]:
    """The value of a function, and its node; None where it does not depend on x."""
    global _depth
    _depth += 1
    try:
        start = new_box(x, _depth, start_node)
        end = fun(start)
    finally:
        _depth -= 1
    if is_boxed(end) and end._trace == start._trace:
        return end._value, end._node
    warnings.warn("Output seems independent of input.", stacklevel=2)
    return end, None


def apply(fun: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The call of a primitive, or of a function of numpy's, as a node of the innermost tape."""
    boxed = [(i, arg) for i, arg in enumerate(args) if is_boxed(arg)]
    if not boxed:
        return fun(*args, **kwargs)
    depth = max(box._trace for _, box in boxed)
    top = [(i, box) for i, box in boxed if box._trace == depth]
    values = subvals(args, [(i, box._value) for i, box in top])
    kind = type(top[0][1]._node)
    found = apply(fun, values, kwargs)
    if fun in notrace_primitives[kind]:
        return found
    argnums, parents = tuple(i for i, _ in top), tuple(box._node for _, box in top)
    return new_box(found, depth, kind(found, fun, values, kwargs, argnums, parents))
