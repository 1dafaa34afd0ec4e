"""Whether a function, an iterator or a view that a call gives holds what is the trace's.

    def f(x):
        h = x.exp()
        hs = [h]
        return lambda y: hs[0] * y       # every call would give this lambda, with this h

A graph gives tensors; what closes over them is Python's. `objects` makes a function anew over those
of each call, where nobody could change what it closes over; what cannot be made so is found here.
"""

from __future__ import annotations

import functools
import gc
import inspect
from collections import deque
from collections.abc import Callable, ItemsView, Iterator, KeysView, ValuesView
from types import BuiltinMethodType, CellType, FunctionType, MethodType
from typing import Any

from gradof.tracer.state.code_facts import facts_of

_LIMIT = 1000  # objects behind one in which a tensor is looked for
_ENTERED = (
    MethodType, CellType, functools.partial, list, tuple, dict, set, frozenset, deque,
    Iterator, ItemsView, KeysView, ValuesView,
)  # fmt: skip
_VIEWS = (ItemsView, KeysView, ValuesView)


def is_enclosing(obj: Any) -> bool:
    """Whether an object is of the kinds that keep others where no attribute says so."""
    return isinstance(obj, (Iterator, *_VIEWS)) or inspect.isroutine(obj)


def is_filled(cell: CellType) -> bool:
    """Whether the name that a cell is of has a value."""
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def why_not_again(
    obj: Any, was_there: Callable[[Any], bool], is_traced: Callable[[Any], bool]
) -> str | None:
    """Why later calls cannot give such an object that the call has made; None if they can."""
    if isinstance(obj, Iterator):
        return "gives what it gives once"
    stack, seen = [obj], set[int]()
    while stack and len(seen) < _LIMIT:
        found = stack.pop()
        if is_traced(found):
            return "holds traced tensors"
        if id(found) in seen or was_there(found):
            continue
        seen.add(id(found))
        if isinstance(found, FunctionType):
            if facts_of(found.__code__).cells_stored:
                return "changes what it closes over"
            stack += [*(found.__closure__ or ()), found.__defaults__, found.__kwdefaults__]
            stack += vars(found).values()
        elif isinstance(found, BuiltinMethodType):
            stack.append(found.__self__)
        elif isinstance(found, _ENTERED):
            stack += gc.get_referents(found)
        elif not type(found).__module__.startswith(("gradof", "torch")):
            stack += getattr(found, "__dict__", {}).values() if not inspect.ismodule(found) else ()
    return None
