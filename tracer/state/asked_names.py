"""Attributes that were asked for, of objects whose class looks all of them up in Python.

    class Config:
        attribute_map = {"width": "n_embd"}

        def __getattribute__(self, name):
            if name in super().__getattribute__("attribute_map"):
                name = super().__getattribute__("attribute_map")[name]
            return super().__getattribute__(name)

Each lookup is a call of that function, so it is known which attributes of which object were read:
others of them are no part of a trace, though code reads their names off something else. The
function may do no more than that (`lookup_code`): ask for the name itself, for names that it
knows, or for what stands under the name in a table that it got so.
"""

from __future__ import annotations

from collections.abc import Set
from types import FrameType
from typing import Any

from gradof.tracer.state import lookups
from gradof.tracer.state.computed_names import Everything, note
from gradof.tracer.state.lookup_code import known_to


class AskedNames:
    """The names that one run has asked for, by object."""

    def __init__(self, everything: Everything) -> None:
        self.everything = everything
        self._names: dict[int, tuple[Any, set[str]]] = {}  # the objects are kept alive
        self.count = 0  # of the names

    def note(self, frame: FrameType, known: frozenset[str]) -> None:
        """A lookup runs; that of `__dict__` is one of all."""
        obj, name = (frame.f_locals[each] for each in frame.f_code.co_varnames[:2])
        names = self._names.setdefault(id(obj), (obj, set()))[1]
        if _is_ours(frame):
            return
        before = len(names)
        names.add(name)
        names |= known
        for table in known:
            held = _plainly(obj, table)
            if isinstance(held, dict) and isinstance(held.get(name), str):
                names.add(held[name])
        self.count += len(names) - before
        if name == "__dict__" and not _is_lookup(frame.f_back):
            note(self.everything, obj, by_name=False)

    def of(self, obj: Any, names: Set[str], stored: Set[str]) -> Set[str]:
        """What code may have read off an object: of the names that it reads, and that it stores."""
        asked = self._names.get(id(obj))
        return names if asked is None else asked[1] | (names & stored)


def _is_lookup(frame: FrameType | None) -> bool:
    return frame is not None and known_to(frame.f_code) is not None


def _is_ours(frame: FrameType) -> bool:
    """Whether it is our bookkeeping that asks, and not code that asks by our `getattr`."""
    asking = frame.f_back
    while _is_lookup(asking):
        assert asking is not None
        asking = asking.f_back
    module = "" if asking is None else str(asking.f_globals.get("__name__"))
    return module.startswith("gradof.") and module != lookups.__name__


def _plainly(obj: Any, name: str) -> Any:
    """An attribute, without a call of the user's code."""
    attributes = object.__getattribute__(obj, "__dict__") if hasattr(type(obj), "__dict__") else {}
    if name in attributes:
        return attributes[name]
    return next((vars(base)[name] for base in type(obj).__mro__ if name in vars(base)), None)
