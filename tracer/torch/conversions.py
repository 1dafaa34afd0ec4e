"""`float(x)` and `int(x)` of traced tensors, as code that is traced calls them.

    losses.append(float(loss))       a number of the graph, as of `loss.item()`

Python makes a float of whatever `__float__` returns. So what calls it is noted, the function is
traced once more, and the name is lent at that call alone: Note [Adopted arrays].
"""

from __future__ import annotations

from typing import Any

import torch

from gradof.tracer.core.math_numbers import IMPORTED
from gradof.tracer.core.number import TracedNumber, converted
from gradof.tracer.numpy.adopt import Adoptions, Stops

_KNOWN: dict[Any, Stops] = {}  # by the traced function's code: later traces need no second run


def conversions_of(fn: Any) -> Adoptions:
    """The places of a function's runs where numbers are made of tensors."""
    return Adoptions(fn, _KNOWN)


class _Conversion:
    """`float` or `int` at one call."""

    def __init__(self, cls: type) -> None:
        self.cls = cls

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """A number of the trace for a tensor; else what the class makes."""
        if len(args) == 1 and not kwargs and type(args[0]) is TracedNumber:
            return converted(self.cls, args[0])
        if len(args) != 1 or kwargs or not isinstance(args[0], torch.Tensor):
            return self.cls(*args, **kwargs)
        if self.cls is int and args[0].dtype.is_floating_point:
            return int(args[0])
        number: Any = args[0].item()
        if type(number) is not TracedNumber:
            return self.cls(number)
        return number * 1.0 if self.cls is float and isinstance(number, int) else number

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cls, name)

    def __instancecheck__(self, value: Any) -> bool:
        return isinstance(value, self.cls)


class _Calls:
    """What traced code's calls stand for, by the ids of functions, which may have no hash."""

    def __init__(self, made: dict[Any, Any]) -> None:
        self._made = {id(function): (function, standing) for function, standing in made.items()}

    def get(self, function: Any, default: Any = None, /) -> Any:
        """What stands for it; the default for all that is called as it is."""
        original, standing = self._made.get(id(function), (None, None))
        return default if standing is None or original is not function else standing


CALLS = _Calls({float: _Conversion(float), int: _Conversion(int), **IMPORTED})
