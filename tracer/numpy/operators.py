"""The operators and methods of a TracedArray that are numpy's functions of the same name.

    x * 2.0       np.multiply(x, 2.0), recorded without numpy's dispatch in between
    x.sum(axis=0) np.sum(x, axis=0)

They are set here, when the tracer is imported.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.floats import before_operator, of_operator
from gradof.tracer.state.kinds import is_ours
from gradof.tracer.state.origins import ATOMS
from gradof.tracer.state.unheard import quietly

_POWERS: dict[float, Callable[[Any], Any]] = {
    -1.0: np.reciprocal, 0.5: np.sqrt, 1.0: np.positive, 2.0: np.square,
}  # fmt: skip


def _pow(self: TracedArray, other: Any) -> Any:
    """As `np.power`, with ndarray's own shortcuts: they differ in the last bit and at -inf."""
    if type(other) in (int, float) and other in _POWERS and self.dtype.kind == "f":
        if not self.is_python:
            return _POWERS[other](self)
    kind: Any = type(other)
    if kind is int and other == 2 and self.dtype == bool:
        return np.square(self)  # in 8 bits, where np.power of truths has as many as other's
    if kind not in _DIRECT and self.ndim == 0 and _answers(kind, "__rpow__"):
        return NotImplemented
    made = np.power(self, other)
    return of_operator(np.power, made, (self, other)) if self.is_python else made


def _rpow(self: TracedArray, other: Any) -> Any:
    made = NDArrayOperatorsMixin.__rpow__(self, other)
    return of_operator(np.power, made, (other, self)) if self.is_python else made


def _method(name: str) -> Callable[..., Any]:
    function = getattr(np, name)

    def method(self: TracedArray, *args: Any, **kwargs: Any) -> Any:
        return function(self, *args, **kwargs)

    method.__name__ = name
    method.__doc__ = f"As `np.{name}`."
    return method


for _name in (
    "sum", "prod", "mean", "std", "var", "max", "min", "any", "all", "argmax", "argmin", "cumsum",
    "cumprod", "dot", "ravel", "squeeze", "swapaxes", "take", "repeat", "trace", "diagonal",
    "round", "argsort", "argpartition", "searchsorted", "nonzero", "put", "choose",
):  # fmt: skip
    setattr(TracedArray, _name, _method(_name))


def _clip(self: TracedArray, min: Any = None, max: Any = None, *args: Any, **kwargs: Any) -> Any:
    """As `np.clip`, of which the method needs one bound alone: `x.clip(0)`."""
    return np.clip(self, min, max, *args, **kwargs)


TracedArray.clip = _clip  # type: ignore[attr-defined]


@functools.lru_cache(maxsize=256)
def _answers(cls: type, name: str) -> bool:
    """Whether an object that is no array has an operator of its own for a number before it.

    numpy asks each element of an array; of a number there is one.
    """
    if any(hasattr(cls, asks) for asks in ("__array_ufunc__", "__array_priority__", "__array__")):
        return False
    if is_ours(cls) or issubclass(cls, (*ATOMS, list, tuple)):
        return False
    return any(name in vars(base) for base in cls.__mro__ if base is not object)


def _operator(name: str, ufunc: np.ufunc, reflected: bool = False) -> Callable[..., Any]:
    """An operator, straight to the recorder for what numpy would hand over anyway."""
    general = getattr(NDArrayOperatorsMixin, name)
    other_name = "" if reflected else _OTHER.get(name, f"__r{name[2:]}")

    def of_one(self: TracedArray) -> Any:
        self = before_operator(ufunc, self) if self.is_python else self
        made = quietly(self.recorder.handlers.ufunc, self.recorder, ufunc, "__call__", (self,), {})
        return of_operator(ufunc, made, (self,)) if self.is_python else made

    def of_two(self: TracedArray, other: Any) -> Any:
        self = before_operator(ufunc, self) if self.is_python else self
        if type(other) not in _DIRECT:
            if "scipy.sparse" in type(other).__module__:  # which have their own
                return NotImplemented
            kind: Any = type(other)
            if self.ndim == 0 and other_name and _answers(kind, other_name):
                return NotImplemented
            made = general(self, other)
            if not self.is_python or made is NotImplemented:
                return made
            return of_operator(ufunc, made, (other, self) if reflected else (self, other))
        inputs = (other, self) if reflected else (self, other)
        made = quietly(self.recorder.handlers.ufunc, self.recorder, ufunc, "__call__", inputs, {})
        return of_operator(ufunc, made, inputs) if self.is_python else made

    operator = of_one if ufunc.nin == 1 else of_two
    operator.__name__ = name
    operator.__doc__ = f"As `np.{ufunc.__name__}`."
    return operator


_OTHER = {"__lt__": "__gt__", "__le__": "__ge__", "__gt__": "__lt__", "__ge__": "__le__",
          "__eq__": "", "__ne__": ""}  # fmt: skip
_DIRECT = frozenset({TracedArray, float, int, np.ndarray})
for _name, _ufunc in {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.divide,
    "floordiv": np.floor_divide, "mod": np.remainder, "matmul": np.matmul, "divmod": np.divmod,
}.items():  # fmt: skip
    setattr(TracedArray, f"__{_name}__", _operator(f"__{_name}__", _ufunc))
    setattr(TracedArray, f"__r{_name}__", _operator(f"__r{_name}__", _ufunc, reflected=True))
for _name, _ufunc in {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "eq": np.equal, "ne": np.not_equal, "neg": np.negative, "abs": np.absolute,
    "pos": np.positive, "invert": np.invert,
}.items():  # fmt: skip
    setattr(TracedArray, f"__{_name}__", _operator(f"__{_name}__", _ufunc))


def _in_place(name: str) -> Callable[..., Any]:
    """`x += y`: of a number of Python's, which has none of its own, another number."""
    general, apart = getattr(NDArrayOperatorsMixin, f"__i{name}__"), f"__{name}__"

    def operator(self: TracedArray, other: Any) -> Any:
        return getattr(self, apart)(other) if self.is_python else general(self, other)

    return operator


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"):
    setattr(TracedArray, f"__i{_name}__", _in_place(_name))
setattr(TracedArray, "__pow__", _pow)  # noqa: B010
setattr(TracedArray, "__rpow__", _rpow)  # noqa: B010
