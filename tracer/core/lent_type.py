"""`type` as the traced code knows it: lent by that name, it sees through what stands for a value.

    type(x) is np.ndarray           # of a traced array, which is a TracedArray
    type(t) is float                # of a number that varies, of a step, or of a size

`isinstance` needs none: what stands for a value has that value's `__class__`.
"""

from __future__ import annotations

import builtins
from typing import Any


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
    """See the module docstring."""
