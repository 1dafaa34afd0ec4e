"""What a run has left of its own in a value: traced arrays and numbers, however deep.

>>> leads_to([{"loss": 3.0}], (float,), {}) == {float}
True
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from types import FunctionType, MethodType, ModuleType
from typing import Any

from gradof.tracer.state.items import SEQUENCES, items_of
from gradof.tracer.state.kinds import applied_by
from gradof.tracer.state.libraries import is_set
from gradof.tracer.state.origins import ATOMS, children_of

_MOST = 200_000  # objects that are looked at


def leads_to(value: Any, kinds: Collection[type], old: Mapping[int, bool]) -> set[type]:
    """The kinds of objects that a value leads to, by objects that are not `old` (by id)."""
    found: set[type] = set()
    todo: list[Any] = [value]
    seen: dict[int, Any] = {}
    while todo and len(seen) < _MOST:
        obj = todo.pop()
        kind = type(obj)
        if kind in kinds:  # what these lead to is the trace itself: all that it has recorded
            found.add(kind)
            continue
        if issubclass(kind, ATOMS) or id(obj) in seen or old.get(id(obj)):
            continue
        seen[id(obj)] = obj
        if isinstance(obj, dict):
            todo.extend((*dict.keys(obj), *dict.values(obj)))
        elif isinstance(obj, SEQUENCES):
            todo.extend(items_of(obj))
        elif isinstance(obj, FunctionType):
            todo.extend(c.cell_contents for c in obj.__closure__ or () if is_set(c))
            todo.extend((obj.__defaults__, obj.__kwdefaults__, obj.__dict__))
        elif isinstance(obj, MethodType):
            todo.append(obj.__self__)
        elif isinstance(obj, functools.partial):
            todo.extend((applied_by(obj), obj.args, obj.keywords))
        elif not isinstance(obj, (type, ModuleType)) and not getattr(kind, "_gradof_opaque", False):
            todo.extend(child for step, child in children_of(obj, False) if step.kind == "attr")
    return found
