"""What is noted of loops while a trace runs, for `steps` and `whiles`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

from gradof.ir.core import Value
from gradof.tracer.core.number import Decide, as_it_is
from gradof.tracer.state.reads import Reads

Evaluate = Callable[[Any, Sequence[Value]], Sequence[Any]]  # values so far, of a recorder
Place = tuple[CodeType, int]  # a branch, or the head of a `for`, in code


@dataclass
class Varying:
    """Variables that a loop changes, by its branch, and `for` loops that a value may end.

    Found in one run, for the next: there they vary from the first step on (`whiles`).
    """

    names: dict[Place, dict[str, Any]] = field(default_factory=dict)  # → dtype, if arrays
    counted: set[Place] = field(default_factory=set)
    refused: set[Place] = field(default_factory=set)
    fresh: bool = False  # whether this run has found any
    rolled: set[Place] = field(default_factory=set)  # in this run, loops that vary with these

    def begin(self) -> None:
        """A run begins."""
        self.fresh, self.rolled = False, set()

    def another(self) -> bool:
        """Whether another run is due: with what this one has found, or without what was no use."""
        if self.fresh:
            return True
        useless = (self.names.keys() | self.counted) - self.rolled
        return self._refuse(useless)

    def give_up(self) -> bool:
        """A run has failed; whether it may do better with none of this."""
        return self._refuse(self.names.keys() | self.counted)

    def _refuse(self, places: set[Place]) -> bool:
        self.refused |= places
        self.counted -= places
        for place in places & self.names.keys():
            del self.names[place]
        return bool(places)


class LoopNotes:
    """Of one trace; without `evaluate` every step of a loop runs."""

    def __init__(
        self, reads: Reads, evaluate: Evaluate | None = None, varying: Varying | None = None
    ) -> None:
        self.reads, self.evaluate = reads, evaluate
        self.unrolled = False  # whether what loops have left was used as they cannot be
        self.looked_at: list[bool] = []  # of each loop, whether few steps have stood for all
        self.varying = Varying() if varying is None else varying
        self.running: dict[tuple[FrameType, int], Any] = {}  # by frame and instruction, `Counted`
        # asked as a branch is decided: its value and outcome, which a loop may have changed
        self.decide: Decide = as_it_is

    def forget(self) -> None:
        """The run has ended: frames are let go of."""
        self.running.clear()
        self.decide = as_it_is
