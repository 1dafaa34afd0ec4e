"""Which objects can count by what is in them: Note [Renewed objects] in `runtime.state_renewed`."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from types import MemberDescriptorType
from typing import Any

from gradof.tracer.state.frames import is_frame
from gradof.tracer.state.heard import is_heard
from gradof.tracer.state.kinds import HEAP, module_of

# Members of an enumeration are told by who they are
_OTHERS = (type, dict, list, tuple, set, frozenset, Iterator, enum.Enum)


def is_renewable(obj: Any) -> bool:
    """Whether an object is of a class of the user's, and has all its state in attributes."""
    cls = type(obj)
    if not cls.__flags__ & HEAP or isinstance(obj, _OTHERS) or is_frame(cls):
        return False
    attributes = getattr(obj, "__dict__", None)
    if type(attributes) is not dict or "_modules" in attributes or not is_heard(module_of(cls)):
        return False
    members = (member for base in cls.__mro__[:-1] for member in vars(base).values())
    return not any(type(member) is MemberDescriptorType for member in members)
