"""What `loops.py` measures: the programs of `tests/loops/programs.py`, with numbers of steps."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from tests.loops import programs
from tests.loops.programs import Program


@dataclass(frozen=True)
class Row:
    """A row of the table: a program, by its name and its number of steps."""

    name: str
    steps: int
    title: str

    def program(self) -> Program:
        """The function with its arguments, the same ones each time."""
        return _made(self.name, self.steps)


@functools.cache
def _made(name: str, steps: int) -> Program:
    made: Program = getattr(programs, name)(steps)
    return made


ROWS = (
    Row("chain", 10_000, "four ops, 10000 steps"),
    Row("rk4", 50, "RK4, 50 steps"), Row("rk4", 500, "RK4, 500 steps"),
    Row("hmm", 200, "HMM, 200 steps"), Row("hmm", 2000, "HMM, 2000 steps"),
    Row("kalman", 60, "Kalman, 60 steps"), Row("kalman", 600, "Kalman, 600 steps"),
    Row("leapfrog", 100, "leapfrog, 100 steps"), Row("smoothing", 500, "exponential smoothing"),
    Row("garch", 500, "GARCH, 500 steps"), Row("soft_dtw", 20, "soft-DTW, 20 by 20"),
    Row("heat_1d", 200, "heat 1-d, 200 steps"), Row("heat_2d", 50, "heat 2-d, 50 steps"),
    Row("rnn", 100, "RNN, 100 steps"), Row("gru", 200, "GRU cell in torch, 200 steps"),
    Row("descent", 50, "descent, 50 steps"), Row("power", 100, "power iteration"),
    Row("newton", 1, "Newton, while"),
)  # fmt: skip
