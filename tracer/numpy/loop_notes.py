"""What is noted of loops while a trace runs, for `steps`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradof.ir.core import Value
from gradof.tracer.state.reads import Reads

Evaluate = Callable[[Any, Sequence[Value]], Sequence[Any]]  # values so far, of a recorder


class LoopNotes:
    """Of one trace; without `evaluate` every step of a loop runs."""

    def __init__(self, reads: Reads, evaluate: Evaluate | None = None) -> None:
        self.reads, self.evaluate = reads, evaluate
        self.looked_at: list[bool] = []  # of each loop, whether few steps have stood for all
        self.computed = 0  # loops whose results were needed as the trace went on
        self.hashed = False  # whether an index was looked up, and may be a key: it is no number
        self.places: set[Value] = set()  # constants where slices of Loops begin
