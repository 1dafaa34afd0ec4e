"""A call site whose arguments keep changing: new signatures run eagerly until they come back.

    for sentence in corpus:           # every length is another signature, each a trace of a second
        loss(sentence).backward()     # the first `limits.shapes` are traced, others at second sight

Long traces are fewer: those of a stream of lengths shall not take more than eager would. After
`limits.shape_seconds` of them, new signatures wait, too.

A text, a number that cannot be an input, or a list of another length makes a signature as a shape
does.

    loss(model, batch).backward()     # objects are traced at once (`gradof.runtime.handed`); one
                                      # that counts as who it is runs eagerly until it comes again
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from gradof.errors import RetraceWarning, TraceError
from gradof.runtime.arrays import FIRST_LEAF, SAME, Call
from gradof.runtime.limits import limits
from gradof.tracer.core.exact import Same
from gradof.tracer.state.source import warn_user

_REMEMBERED = 4096  # signatures seen once, objects seen


class NotYet(TraceError):
    """A signature or object met for the first time: it runs eagerly, with no warning of its own."""


class Shapes:
    """The signatures one function was called with."""

    def __init__(self) -> None:
        self._traced: dict[Any, int] = {}  # kinds of arguments → how many signatures were traced
        self._seconds: dict[Any, float] = {}  # by kinds, what traces after the first have taken
        self._once: OrderedDict[Any, None] = OrderedDict()
        self._objects: OrderedDict[Any, None] = OrderedDict()
        self._passing = 0  # calls with an object that was met for the first time
        self._warned = False

    def is_new(self, call: Call, name: str) -> bool:
        """Whether a torch call is to run eagerly, as its signature may never come again."""
        if call.library != "torch":
            return False
        return self._has_new_object(call, name) or self._is_new(_kinds(call), call.key, name)

    def is_new_inside(self, call: Call, inside: Any, name: str) -> bool:
        """The same, of what tensors are `inside` the objects among its arguments."""
        return self._is_new(call.key, (call.key, inside), name)

    def _is_new(self, kinds: Any, key: Any, name: str) -> bool:
        traced = self._traced.get(kinds, 0)
        is_quick = self._seconds.get(kinds, 0.0) <= limits.shape_seconds
        if traced < limits.shapes and is_quick:
            self._traced[kinds] = traced + 1
            return False
        if key in self._once:
            del self._once[key]
            return False
        _remember(self._once, key)
        self._warn(
            f"{name} was traced for {traced} shapes of its arguments, or values of what is no "
            "tensor; from now on a new one runs under torch's own autograd, and is traced when it "
            "comes again; pad arguments to few sizes, pass tensors, or raise gradof.limits."
            + ("shapes" if is_quick else "shape_seconds")
        )
        return True

    def took(self, call: Call, seconds: float, inside: bool) -> None:
        """Note the processor time of a trace, of a call that is new by what is `inside` objects."""
        kinds = call.key if inside else _kinds(call)
        if self._traced.get(kinds, 0) > 1:
            self._seconds[kinds] = self._seconds.get(kinds, 0.0) + seconds

    def _has_new_object(self, call: Call, name: str) -> bool:
        new = [(path, part) for path, part in _passing(call) if part not in self._objects]
        for _, part in new:
            _remember(self._objects, part)
        if new:
            self._passing += 1
            if self._passing > limits.shapes:
                path, (cls, _) = new[0]
                self._warn(
                    f"{name} was given {self._passing} objects as {path}, of which each runs "
                    "under torch's own autograd until it comes again; pass the tensors of "
                    f"the {cls.__qualname__}, in a tuple, a dict or a dataclass"
                )
        return bool(new)

    def _warn(self, text: str) -> None:
        if not self._warned:
            self._warned = True
            warn_user(text, RetraceWarning)


def _remember(seen: OrderedDict[Any, None], key: Any) -> None:
    seen[key] = None
    if len(seen) > _REMEMBERED:
        seen.popitem(last=False)


def _passing(call: Call) -> Iterator[tuple[str, Any]]:
    """Paths and parts of objects that may be made for each call: no modules and functions."""
    parts = call.key[FIRST_LEAF : FIRST_LEAF + len(call.leaves)]
    for path, part, leaf in zip(call.paths, parts, call.leaves, strict=True):
        if type(part[-1]) is Same and not isinstance(leaf, enum.Enum) and not callable(leaf):
            yield path, part


def _kinds(call: Call) -> tuple[Any, ...]:
    """What the signatures of one call site have in common: types, flags and devices, and modes."""
    end = FIRST_LEAF + len(call.leaves)
    kinds = frozenset(
        (part[0], *part[2:SAME]) if hasattr(leaf, "shape") else part[0]
        for part, leaf in zip(call.key[FIRST_LEAF:end], call.leaves, strict=True)
    )
    return (kinds, call.key[end:])
