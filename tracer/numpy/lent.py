"""The builtins that the traced code is lent, by name: those that would see what stands for a value.

    type(x) is np.ndarray           # of a traced array, which is a TracedArray
    type(t) is int, type(n)         # of the number of a step, or a size, or a number that varies
    range(n), zip(xs, us), len(x)   # in `ranges` and `sized`

`isinstance` needs none: what stands for a value has that value's `__class__`.
"""

from __future__ import annotations

import builtins
from typing import Any

from gradof.tracer.numpy.ranges import Enumerate, Range, Zip
from gradof.tracer.numpy.sized import length_of


class _MetaType(type):
    """`Type` in all places of `type`, which it is equal to."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls is not Type:
            return super().__call__(*args, **kwargs)
        if len(args) != 1 or kwargs:
            return builtins.type(*args, **kwargs)
        kind = builtins.type(args[0])
        if kind.__module__.startswith("gradof.tracer."):
            return args[0].__class__
        return Type if kind is builtins.type else kind

    def __instancecheck__(cls, obj: Any) -> bool:
        return isinstance(obj, builtins.type) if cls is Type else super().__instancecheck__(obj)

    def __subclasscheck__(cls, kind: Any) -> bool:
        return issubclass(kind, builtins.type) if cls is Type else super().__subclasscheck__(kind)

    def __eq__(cls, other: object) -> bool:
        return cls is other or (cls is Type and other is builtins.type)

    def __hash__(cls) -> int:
        return hash(builtins.type) if cls is Type else super().__hash__()


class Type(type, metaclass=_MetaType):
    """`type` as the traced code knows it; see the module docstring."""


LENT: dict[str, Any] = {
    "range": Range, "zip": Zip, "enumerate": Enumerate, "len": length_of, "type": Type,
}  # fmt: skip
