"""A call site whose arguments keep changing: new signatures run eagerly until they come back.

    for sentence in corpus:           # every length is another signature, each a trace of a second
        loss(sentence).backward()     # the first `limits.shapes` are traced, others at second sight

A text, a number that cannot be an input, or a list of another length makes a signature as a shape
does.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from gradof.errors import RetraceWarning, TraceError
from gradof.runtime.arrays import FIRST_LEAF, SAME, Call
from gradof.runtime.limits import limits
from gradof.tracer.state.source import warn_user

_REMEMBERED = 4096  # signatures seen once


class NotYet(TraceError):
    """A signature met for the first time: it runs eagerly, without a warning of its own."""


class Shapes:
    """The signatures one function was called with."""

    def __init__(self) -> None:
        self._traced: dict[Any, int] = {}  # kinds of arguments → how many signatures were traced
        self._once: OrderedDict[Any, None] = OrderedDict()
        self._warned = False

    def is_new(self, call: Call, name: str) -> bool:
        """Whether a torch call is to run eagerly, as its signature may never come again."""
        if call.library != "torch":
            return False
        kinds = _kinds(call)
        if self._traced.get(kinds, 0) < limits.shapes:
            self._traced[kinds] = self._traced.get(kinds, 0) + 1
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
                f"{name} was traced for {limits.shapes} shapes of its arguments, or values of what "
                "is no tensor; from now on a new one runs under torch's own autograd, and is "
                "traced when it comes again; pad arguments to few sizes, pass tensors, or raise "
                "gradof.limits.shapes",
                RetraceWarning,
            )  # fmt: skip
        return True


def _kinds(call: Call) -> tuple[Any, ...]:
    """What the signatures of one call site have in common: types, flags and devices, and modes."""
    end = FIRST_LEAF + len(call.leaves)
    kinds = frozenset(
        (part[0], *part[2:SAME]) if hasattr(leaf, "shape") else part[0]
        for part, leaf in zip(call.key[FIRST_LEAF:end], call.leaves, strict=True)
    )
    return (kinds, call.key[end:])
