"""What functions of one code share: what is reached from globals, classes and modules.

    rate = 0.5                                      shared: the global, and what it leads to
    def made(data):
        return lambda p: loss(p, data) * rate       data is this function's own
"""

from __future__ import annotations

import functools
from collections import deque
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from gradof.runtime.arrays import Call
from gradof.runtime.own import OwnObjects
from gradof.runtime.state_values import is_plain
from gradof.tracer.state.items import items_of
from gradof.tracer.state.kinds import applied_by
from gradof.tracer.state.reach import Reach
from gradof.tracer.state.reads import Reads

_CROSSING = frozenset({"global", "import", "class", "type", "module", "closed", "method"})


def shared_with_others(fn: Any, reads: Reads, call: Call) -> set[int]:
    """The ids of what is reached from globals, classes and modules, and of their namespaces."""
    reach, found, seen = Reach(reads), set[int](), dict[int, Any]()
    roots = (fn, *call.objects.values())
    own, shared = deque[Any]([(root, None, None) for root in roots]), deque[Any]()
    while True:
        if not own and not shared:
            for edge in reach.unreached():
                if edge.step.kind == "global":
                    found.add(id(edge.place.container))
                shared.append((edge.child, edge.step.key, edge.place))
            if not shared:
                return found
        is_shared = not own
        obj, name, place = (own or shared).popleft()
        if id(obj) in (found if is_shared else seen):
            continue
        seen[id(obj)] = obj
        if is_shared:
            found |= {id(obj), id(getattr(obj, "__dict__", None))}
            if isinstance(obj, FunctionType):
                found.update(map(id, obj.__closure__ or ()))
        for edge in reach.edges(obj, obj is fn, name, place):
            crosses = edge.step.kind in _CROSSING or isinstance(edge.child, (ModuleType, type))
            if crosses and edge.step.kind in ("global", "import"):
                found.add(id(edge.place.container))
            target = shared if is_shared or crosses else own
            if not is_plain(edge.child):
                target.append((edge.child, edge.step.key, edge.place))


def is_free_of(used: Any, own: OwnObjects, shared: set[int]) -> bool:
    """Whether what a function refers to that is not traced leads to nothing of one function's."""
    stack, seen = [used], set[int]()
    while stack:
        obj = stack.pop()
        known = id(obj) in seen or id(obj) in shared or is_plain(obj) or hasattr(obj, "dtype")
        if known or isinstance(obj, (ModuleType, type, np.ufunc)):
            continue
        seen.add(id(obj))
        if id(obj) in own.numbers:
            return False
        if isinstance(obj, FunctionType):
            stack += [cell.cell_contents for cell in obj.__closure__ or ()]
            stack += obj.__defaults__ or ()
        elif isinstance(obj, MethodType):
            stack += (obj.__self__, obj.__func__)
        elif isinstance(obj, functools.partial):
            stack += (applied_by(obj), *obj.args, *obj.keywords.values())
        elif isinstance(obj, BuiltinFunctionType):
            stack.append(obj.__self__)
        elif hasattr(obj, "_implementation"):
            stack.append(obj._implementation)  # of a function of numpy's
        elif isinstance(obj, (list, tuple)):
            stack += items_of(obj)
        elif isinstance(obj, dict):
            stack += dict.values(obj)
        elif hasattr(type(obj), "_gradof_leads_to"):  # one of autograd's primitives
            stack += obj._gradof_leads_to()
        else:
            return False
    return True
