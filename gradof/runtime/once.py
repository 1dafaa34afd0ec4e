"""What `grad(f)` and its like compile for a plain function, kept on it.

>>> def loss(x): return np.sum(x * x)
>>> compiled_once(loss) is compiled_once(loss)
True
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any
from weakref import WeakSet

from gradof.runtime import kin
from gradof.runtime.function import Differentiated

_COMPILED = "__gradof_compiled__"
_functions: WeakSet[FunctionType] = WeakSet()  # that have it


def as_differentiated(fn: Callable[..., Any]) -> Differentiated:
    """The function itself if it is compiled already, else a compiled one."""
    return fn if isinstance(fn, Differentiated) else Differentiated(fn)


def compiled_once(fn: Callable[..., Any]) -> Differentiated:
    """As `as_differentiated`, but the same one at every call.

    `grad(loss)(x)` may stand in a loop; without this each turn would trace anew. The compiled
    function is kept on the plain one, and so goes with it. Methods have one cache an instance,
    which goes with that; where nothing tells when it goes, they are compiled anew.
    """
    if isinstance(fn, MethodType) and isinstance(fn.__func__, FunctionType):
        if not type(fn.__self__).__weakrefoffset__:
            return as_differentiated(fn)
        return compiled_once(fn.__func__).of_instance(fn.__self__)
    if isinstance(fn, Differentiated) or not isinstance(fn, FunctionType):
        return as_differentiated(fn)
    kept, backend = fn.__dict__.get(_COMPILED), os.environ.get("GRADOF_BACKEND")
    # functools.wraps copies a function's attributes: what is found may be that of another
    if kept is None or kept[0] is not fn or kept[1] != backend:
        kept = fn.__dict__[_COMPILED] = fn, backend, Differentiated(fn)
        _functions.add(fn)
    compiled: Differentiated = kept[2]
    return compiled


def forget_compiled() -> None:
    """Let `grad(f)` and its like trace anew: what they keep on functions goes."""
    for fn in list(_functions):
        fn.__dict__.pop(_COMPILED, None)
    _functions.clear()
    kin.forget()
