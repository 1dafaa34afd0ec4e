"""The number of a step while it is found out whether all steps of a loop are alike (`steps`).

    for t in range(1, n):         # t is an Index: 1, moving by 1
        x[t] = 0.5 * x[t - 1]     # places of traced arrays, which move by 1, too

Sums with whole numbers, and multiples, are indices again. Whatever else is done with one is done
with its value, and noted (`Origin.escaped`): what the step does may depend on it.
"""

from __future__ import annotations

from typing import Any

from gradof.tracer.numpy.lengths import Length, sized
from gradof.tracer.numpy.loop_notes import ArrayLoopNotes
from gradof.tracer.numpy.whole import Whole


class Origin:
    """What indices of one step tell: whether a number was needed, by how much places moved."""

    __slots__ = ("done", "escaped", "moves", "notes")

    def __init__(self, notes: ArrayLoopNotes) -> None:
        self.notes = notes
        self.escaped = False
        self.done = False  # whether nobody asks any more
        self.moves: set[int] = set()


class Index(Whole):
    """See the module docstring."""

    __slots__ = ("_by", "_value", "origin")

    def __init__(self, value: int, by: int, origin: Origin) -> None:
        self._value, self._by, self.origin = value, by, origin

    def number(self) -> int:
        """The number, for anything that may depend on it."""
        self.origin.escaped = True
        return self._told()

    def now(self) -> int:
        """The number of this step, for what is noted of it."""
        return self._value

    def place(self) -> int:
        """The number, as a place that moves from step to step."""
        self.origin.moves.add(self._by)
        return self._told()

    def _told(self) -> int:
        """After the loop it follows from how many steps there were: Note [Told sizes]."""
        return self.origin.notes.sizes.plain(self._value) if self.origin.done else self._value

    def finish(self, value: int) -> None:
        """The loop is over: this is what the number was last."""
        self._value = value

    def _moved(self, value: int, by: int) -> Any:
        if self.origin.done:
            self._told()
            return value
        return Index(value, by, self.origin)

    def __add__(self, other: Any) -> Any:
        other = sized(other)
        if type(other) is int:
            return self._moved(self._value + other, self._by)
        return self.number() + other

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        other = sized(other)
        if type(other) is int:
            return self._moved(self._value - other, self._by)
        return self.number() - other

    def __rsub__(self, other: Any) -> Any:
        other = sized(other)
        if type(other) is int:
            return self._moved(other - self._value, -self._by)
        return other - self.number()

    def __mul__(self, other: Any) -> Any:
        if type(other) is int:
            return self._moved(self._value * other, self._by * other)
        return self.number() * other

    __rmul__ = __mul__

    def __neg__(self) -> Any:
        return self._moved(-self._value, -self._by)

    def __hash__(self) -> int:
        self.origin.notes.hashed = True
        return hash(self.number())


def placed(index: Any) -> Any:
    """What an array is indexed with, with the places that indices stand for."""
    kind = type(index)
    if kind is Index:
        return index.place()
    if kind is Length:
        return index.size()
    if kind is tuple:
        return tuple(map(placed, index))
    if kind is slice:
        return slice(placed(index.start), placed(index.stop), placed(index.step))
    return index
