"""Where a run stands as a branch in a loop is decided, and how it comes to stand elsewhere.

A state is the value that is tested, then those of the traced arrays and numbers in reach, in order.
`Arrays` is what each library says of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gradof.ir.core import Graph, Loc, Node, Value
from gradof.ops.expr import Expr
from gradof.passes.roll.ways import LARGEST_COUNT
from gradof.tracer.core import counted
from gradof.tracer.core.counted import Counted
from gradof.tracer.core.number import TracedNumber
from gradof.tracer.core.standing import Standing


class Recorder(counted.Recorder, Protocol):
    """What loops ask of the recorders of both libraries."""

    graph: Graph
    guards: int

    @property
    def loc(self) -> Loc | None:
        """The user's line now running."""
        ...


@dataclass
class Head:
    """A branch is about to be decided: what was recorded last, and where the run stands."""

    last: Node | None
    standing: Standing
    state: list[Value]  # what is tested, and the values of the standing
    key: object
    marks: tuple[Any, ...]
    guards: int
    outcome: bool


class Arrays:
    """The arrays of one trace; a library says what they are."""

    recorder: Recorder

    def records(self) -> bool:
        """Whether a loop can be recorded now."""
        raise NotImplementedError

    def standing(self) -> Standing:
        """For where the run stands; nothing is in it yet."""
        raise NotImplementedError

    def marks(self) -> tuple[Any, ...]:
        """What a step may do beside recording nodes."""
        raise NotImplementedError

    def are_known(self, called: Iterable[Any]) -> bool:
        """Whether what a step has called that is not heard has no state of its own."""
        raise NotImplementedError

    def evaluate(self, first: Head, wanted: Sequence[Value]) -> Sequence[Any]:
        """What values are in this run, as arrays; they were recorded after a head."""
        raise NotImplementedError

    def varied(self, value: Any, dtype: Any) -> Any:
        """A number or array that varies, in place of one that does not; None where it does."""
        raise NotImplementedError

    def varies(self, before: Head, now: Head, name: str) -> tuple[Any] | None:
        """As what a variable is to vary: a number, or an array of a dtype; None where it is not."""
        raise NotImplementedError

    def may_make(self, array: Any) -> bool:
        """Whether another array can stand where this one does."""
        raise NotImplementedError

    def may_change(self, array: Any, fresh: bool) -> bool:
        """Whether an array can be changed, which a step changes in place, or has made itself."""
        raise NotImplementedError

    def made(self, array: Any, final: Expr, value: Any) -> Any:
        """Another array of this value."""
        raise NotImplementedError

    def change(self, array: Any, final: Expr, value: Any) -> None:
        """Let an array have this value."""
        raise NotImplementedError

    def added(
        self, first: Head, last: Head, counts: Sequence[Value], finals: Mapping[int, Value]
    ) -> None:
        """Loops have been recorded, from one head on, in place of steps up to another.

        `finals` are what they carry out, by place in the state.
        """


def is_number(value: Any) -> bool:
    """Whether a loop may carry it as one of Python's whole or real numbers."""
    return type(value) in (int, float, TracedNumber)


def number_of(value: Any) -> Any:
    """The number itself, traced or not."""
    return value.value if type(value) is TracedNumber else value


def number_varies(was: Any, now: Any) -> tuple[Any] | None:
    """`Arrays.varies` of a variable that was a number at both heads."""
    then, this = number_of(was), number_of(now)
    fits = type(then) is type(this) and (type(then) is not int or abs(then) <= LARGEST_COUNT)
    return (None,) if fits and repr(then) != repr(this) else None


class Become:
    """Variables, and what is changed in place, as they are after the loops.

    What steps bind anew is another object then, put into the variables, as others may have the one
    that is there; in a container, only what a step has made itself can be changed.
    """

    def __init__(self, arrays: Arrays, standing: Standing, in_place: set[int]) -> None:
        self.arrays, self.standing, self.in_place = arrays, standing, in_place

    def may(self, changed: Sequence[int], before: Standing) -> bool:
        """Whether all that changes can be changed."""
        standing, known = self.standing, set(map(id, before.arrays))
        for i in changed:
            if not i:
                continue
            leaf = standing.arrays[i - 1]
            held = id(leaf) in standing.held
            if isinstance(leaf, Counted):
                continue
            if held and id(leaf) in known and i not in self.in_place:
                return False
            if type(leaf) is TracedNumber:
                continue
            if i in self.in_place or held:
                if not self.arrays.may_change(leaf, i not in self.in_place):
                    return False
            elif not self.arrays.may_make(leaf):
                return False
        return True

    def run(self, finals: Sequence[Value], values: Mapping[int, Any]) -> dict[str, Any]:
        """Change what is changed, and give the variables that are bound anew."""
        standing, fresh = self.standing, dict[int, Any]()
        for i, value in values.items():
            if i:
                leaf, final = standing.arrays[i - 1], self.arrays.recorder.emitter.wrap(finals[i])
                if isinstance(leaf, Counted):
                    leaf.go_to(final, int(value))
                elif i in self.in_place or id(leaf) in standing.held:
                    self._change(leaf, final, value)
                else:
                    fresh[id(leaf)] = self._made(leaf, final, value)
        return {
            name: fresh[id(value)] for name, value in standing.variables.items()
            if id(value) in fresh
        }

    def _change(self, leaf: Any, final: Expr, value: Any) -> None:
        if type(leaf) is TracedNumber:
            leaf.expr, leaf.value = final, type(leaf.value)(value.item())
        else:
            self.arrays.change(leaf, final, value)

    def _made(self, leaf: Any, final: Expr, value: Any) -> Any:
        if type(leaf) is TracedNumber:
            number = type(leaf.value)(value.item())
            return self.arrays.recorder.numbers.element(number, final.value)
        return self.arrays.made(leaf, final, value)
