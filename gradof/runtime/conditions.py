"""What a trace takes for granted of the tensors of a call, beside their types: who is who, memory.

    for holds in conditions(fn, traced, reads, inputs): holds(inputs of another call)

Note [Who may be whom]
Which arguments are one object is part of their signature. Whether one is also a tensor that the
state holds matters only where the code that ran could ask (`Reads.asks`); while tracing they are
two objects. So a call in which they are one is never traced, and no trace of others serves it.

Note [Memory that is written]
A graph has values, no memory: an input that is changed must not share its memory with another
input, nor with itself, as expanded tensors do. What did not when it was traced, may at other calls.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any

from gradof.errors import TraceError
from gradof.runtime.arrays import is_tensor
from gradof.runtime.state_check import GONE
from gradof.runtime.state_values import array_type, reference
from gradof.tracer.core.result import Traced
from gradof.tracer.state.edges import ATOMS
from gradof.tracer.state.places import Place, read_place
from gradof.tracer.state.reach import Reach
from gradof.tracer.state.reads import Reads
from gradof.tracer.state.source import function_loc

Condition = Callable[[Sequence[Any]], bool]


def conditions(fn: Any, traced: Traced, reads: Reads, inputs: Sequence[Any]) -> list[Condition]:
    """The conditions on the inputs of a torch call; TraceError where they cannot be told."""
    found: list[Condition] = [attributes.holds for attributes in traced.attributes]
    arguments = len(traced.arg_leaves)
    if reads.asks:
        identities = Identities(fn, reads, inputs[:arguments])
        if identities.ask_for_anything:
            found.append(identities.hold)
    changed = [back.input for back in traced.writebacks if back.generator is None]
    if changed:
        found.append(Memory(changed, arguments, len(inputs)).is_apart)
    return found


class Identities:
    """Which tensors of the state are one object, and that none is an argument."""

    def __init__(self, fn: Any, reads: Reads, arguments: Sequence[Any]) -> None:
        self._ids: dict[int, int] = {}
        self._read: list[Callable[[], Any]] = []
        self._arguments = len(arguments)
        found = _tensors(fn, reads)
        types = Counter(array_type(tensor) for tensor in (*arguments, *(t for _, t in found)))
        for place, tensor in found:
            if types[array_type(tensor)] > 1:  # others are no other's object; types are guarded
                self._read.append(_reader(place, tensor))
            if any(tensor is argument for argument in arguments):
                raise TraceError(
                    "objects are compared by identity, and an argument is kept in the state too",
                    loc=function_loc(fn), hint="pass a copy (x.clone()), or compare something else",
                )
        self._pattern = self._who_is_who()

    @property
    def ask_for_anything(self) -> bool:
        """Whether there is a tensor that an argument could be."""
        return bool(self._read)

    def hold(self, inputs: Sequence[Any]) -> bool:
        """Whether the same places hold the same tensors, and arguments are others."""
        try:
            pattern = self._who_is_who()
        except GONE:
            return False
        return pattern == self._pattern and not any(
            id(x) in self._ids for x in inputs[: self._arguments]
        )

    def _who_is_who(self) -> list[int]:
        ids: dict[int, int] = {}
        self._ids = ids
        return [ids.setdefault(id(read()), i) for i, read in enumerate(self._read)]


def _tensors(fn: Any, reads: Reads) -> list[tuple[Place, Any]]:
    """The places of tensors that code which ran could reach."""
    reach = Reach(reads)
    found: list[tuple[Place, Any]] = []
    seen: dict[int, Any] = {}
    queue = deque[tuple[Any, Any, Any]]([(fn, None, None)])
    queue.extend((value, None, None) for value in reads.variables.values())
    queue.extend((obj, None, place) for obj, place in reads.handed.values())
    while queue:
        obj, name, place = queue.popleft()
        if id(obj) in seen:
            continue
        seen[id(obj)] = obj
        for edge in reach.edges(obj, obj is fn, name, place):
            if is_tensor(edge.child):
                found.append((edge.place, edge.child))
            elif type(edge.child) not in ATOMS:
                queue.append((edge.child, edge.step.key, edge.place))
    return found


def _reader(place: Place, tensor: Any) -> Callable[[], Any]:
    """What gives the tensor in a place; one that is fixed is not kept alive."""
    if place.kind == "fixed":
        return reference(tensor)
    return lambda: read_place(place)


class Memory:
    """Inputs that are changed share their memory with no other; Note [Memory that is written]."""

    def __init__(self, changed: Sequence[int], arguments: int, inputs: int) -> None:
        self._changed = frozenset(changed)
        self._state = range(arguments, inputs)
        self._arguments = range(arguments)
        from gradof.tracer.torch.memory import memory_of
        from gradof.tracer.torch.outcome import overlaps_itself

        self._overlaps, self._memory_of = overlaps_itself, memory_of
        self._known: list[int] = []  # addresses of the state's tensors, which were looked at
        self._memories: list[range] = []  # theirs

    def is_apart(self, inputs: Sequence[Any]) -> bool:
        """Whether that is so at this call."""
        addresses = [x.data_ptr() for x in inputs[self._state.start :]]
        if addresses != self._known:
            memories = [self._memory_of(x) for x in inputs[self._state.start :]]
            if not self._are_alone(inputs, memories, self._state):
                return False
            self._known, self._memories = addresses, memories
        own = [self._memory_of(inputs[i]) for i in self._arguments]
        return self._are_alone(inputs, [*own, *self._memories], self._arguments)

    def _are_alone(self, inputs: Sequence[Any], memories: Sequence[range], these: range) -> bool:
        """Whether none of `these` inputs is changed and overlaps itself, or meets another, where
        one of both is changed; `memories` are those of the last inputs, `these` among them.
        """
        first = len(inputs) - len(memories)
        if any(self._overlaps(inputs[i]) for i in self._changed if i in these):
            return False
        for i in these:
            mine = memories[i - first]
            others = range(first, len(inputs)) if i in self._changed else self._changed
            for j in others:
                if i != j and j >= first and mine.start < mine.stop:
                    other = memories[j - first]
                    if mine.start < other.stop and other.start < mine.stop:
                        return False
        return True
