"""Where a run stands as a branch in a loop is decided, and how it comes to stand elsewhere.

A state is the value that is tested, then those of the traced arrays and numbers in reach, in order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np

from gradof.ir.core import Node, Value
from gradof.ops.expr import Expr
from gradof.tracer.core.number import TracedNumber
from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.standing import Standing
from gradof.tracer.numpy.steps import Steps
from gradof.tracer.state.branch_code import Branch

if TYPE_CHECKING:
    from gradof.tracer.numpy.recorder import Recorder


class BranchStanding(Standing):
    """Where the run stands at a branch; numbers that vary are values, too, and so are `for`s."""

    @classmethod
    def at(
        cls, frame: FrameType, branch: Branch, recorder: Recorder, counters: Sequence[Steps]
    ) -> BranchStanding:
        """May raise Unknown."""
        made = cls(recorder)
        found = frame.f_locals
        made.variables = {name: found[name] for name in sorted(branch.live) if name in found}
        for name, value in made.variables.items():
            made._key.append(name)
            made._visit(value)
        for counter in counters:
            made.add(counter, counter.place.value)
        for change in recorder.loops.reads.held.changes():
            made._key.append((change.kind, id(change.container), repr(change.key)))
            made._alive.append(change.container)
            made._visit(change.after)
            made.held.add(id(change.after))
        return made

    variables: Mapping[str, Any]

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.held: set[int] = set()  # ids of what containers and objects hold

    @property
    def leaves(self) -> list[Any]:
        """The traced arrays, numbers and counted `for`s whose values these are."""
        found: list[Any] = self.arrays
        return found

    def add(self, leaf: Any, value: Value) -> None:
        """Something whose value is one of the graph."""
        self._key.append(self._values.setdefault(value, len(self._values)))
        self._constant.append(self._recorder.is_constant(value))
        self.leaves.append(leaf)
        self.values.append(value)

    def _inside(self, obj: Any, kind: Any) -> list[Any]:
        if kind is TracedNumber:
            self._key.append((kind, type(obj.value)))
            self.add(obj, obj.expr.value)
            return []
        found = super()._inside(obj, kind)
        self.held.update(map(id, found))
        return found


@dataclass
class Head:
    """A branch is about to be decided: what was recorded last, and where the run stands."""

    last: Node | None
    standing: BranchStanding
    state: list[Value]  # what is tested, and the values of the standing
    key: object
    marks: tuple[Any, ...]
    guards: int
    outcome: bool


class Become:
    """Variables, and what is changed in place, as they are after the loops.

    What steps bind anew is another object then, put into the variables, as others may have the one
    that is there; in a container, only what a step has made itself can be changed.
    """

    def __init__(self, recorder: Recorder, standing: BranchStanding, in_place: set[int]) -> None:
        self.recorder, self.standing, self.in_place = recorder, standing, in_place

    def may(self, changed: Sequence[int], before: BranchStanding) -> bool:
        """Whether all that changes can be changed."""
        standing, known = self.standing, set(map(id, before.leaves))
        for i in changed:
            if not i:
                continue
            leaf = standing.leaves[i - 1]
            if i in self.in_place or type(leaf) is Steps:
                continue
            if id(leaf) in standing.held and id(leaf) in known:
                return False
            memory = leaf.memory if type(leaf) is TracedArray else None
            if memory is not None and np.empty_like(memory).strides != memory.strides:
                return False
        return True

    def run(self, finals: Sequence[Value], values: Mapping[int, Any]) -> dict[str, Any]:
        """Change what is changed, and give the variables that are bound anew."""
        standing, fresh = self.standing, dict[int, Any]()
        for i, value in values.items():
            if i:
                leaf, final = standing.leaves[i - 1], self.recorder.emitter.wrap(finals[i])
                if type(leaf) is Steps:
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
            return
        self.recorder.deferred.before_write(leaf.memory)
        leaf.memory[...] = value
        leaf.assign(final)

    def _made(self, leaf: Any, final: Expr, value: Any) -> Any:
        if type(leaf) is TracedNumber:
            number = type(leaf.value)(value.item())
            return self.recorder.numbers.element(number, final.value)
        array = np.array(value, leaf.dtype)
        return self.recorder.wrap(array[()] if leaf.is_scalar else array, final)
