"""Objects among the arguments of a call: they count by what is in them, and not by who they are.

    handed = Handed()
    handed.put("batch", batch)                    # at each call of loss(model, batch)
    read_place(handed.place("batch")) is batch    # until the next one, in this thread

See Note [Renewed objects] in `gradof.runtime.state_renewed`. They are not kept alive.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

from gradof.tracer.state.places import Place


class Handed(threading.local):
    """The objects of a function's call that was the last in a thread, by the argument's path."""

    def __init__(self) -> None:
        self._found: dict[str, weakref.ref[Any]] = {}

    def put(self, path: str, obj: Any) -> None:
        """This one is there now."""
        self._found[path] = weakref.ref(obj)

    def __getitem__(self, path: str) -> Any:
        """The object; LookupError where there is none."""
        found = self._found[path]()
        if found is None:
            raise LookupError(f"{path} is gone")
        return found

    def place(self, path: str) -> Place:
        """Where the object is found at each call."""
        return Place("item", self, path)
