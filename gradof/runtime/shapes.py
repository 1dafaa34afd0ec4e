"""A call site whose shapes keep changing: new ones run eagerly until they come back.

    for sentence in corpus:           # every length is another signature, each a trace of a second
        loss(sentence).backward()     # the first `limits.shapes` are traced, others at second sight
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from gradof.errors import RetraceWarning, TraceError
from gradof.runtime.arrays import FIRST_LEAF, Call
from gradof.runtime.limits import limits
from gradof.tracer.state.source import warn_user

_REMEMBERED = 4096  # shapes seen once


class NotYet(TraceError):
    """A shape that is met for the first time: it runs eagerly, without a warning of its own."""


class Shapes:
    """The shapes one function was called with."""

    def __init__(self) -> None:
        self._traced: dict[Any, int] = {}  # structure → how many of its shapes were traced
        self._once: OrderedDict[Any, None] = OrderedDict()
        self._warned = False

    def is_new(self, call: Call, name: str) -> bool:
        """Whether a torch call is to run eagerly, as its shape may never come again."""
        if call.library != "torch":
            return False
        structure = _without_shapes(call)
        if self._traced.get(structure, 0) < limits.shapes:
            self._traced[structure] = self._traced.get(structure, 0) + 1
            return False
        if call.key in self._once:
            del self._once[call.key]
            return False
        self._once[call.key] = None
        if len(self._once) > _REMEMBERED:
            self._once.popitem(last=False)
        if not self._warned:
            self._warned = True
            warn_user(
                f"{name} was traced for {limits.shapes} shapes of its arguments; from now on a new "
                "shape runs under torch's own autograd, and is traced when it comes again; pad the "
                "arguments to few sizes, or raise gradof.limits.shapes",
                RetraceWarning,
            )  # fmt: skip
        return True


def _without_shapes(call: Call) -> tuple[Any, ...]:
    parts = call.key[FIRST_LEAF : FIRST_LEAF + len(call.leaves)]
    plain = tuple(
        (part[0], len(part[1]), *part[2:])
        if len(part) > 1 and isinstance(part[1], tuple) and hasattr(leaf, "shape")
        else part
        for part, leaf in zip(parts, call.leaves, strict=True)
    )
    return (call.key[1], plain, call.key[FIRST_LEAF + len(call.leaves) :])
