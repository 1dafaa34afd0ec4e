"""What another length costs: the programs of `loops.py` whose sequences are arguments.

    python benchmarks/loop_lengths.py

Value and gradient of a function that was called with two lengths, at lengths that it has not met:
the call that meets one, further calls of that length, and the same by a function that has not been
called before. The processor's time, one thread; the least of the lengths, from an empty cache.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["GRADOF_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["GRADOF_CACHE_DIR"] = tempfile.mkdtemp(prefix="gradof-bench-")
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from tables import shown

import gradof
from tests.loops import programs

LENGTHS = {"hmm": (77, 400, 2000), "kalman": (77, 200, 600), "garch": (77, 200, 999),
           "rnn": (77, 200, 600), "smoothing": (77, 200, 600)}  # fmt: skip
FIRST = (150, 120)  # of the two traces


def timed(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[float, Any]:
    """Seconds of a call, and its result."""
    start = time.process_time()
    result = function(*arguments)
    return time.process_time() - start, result


def row(name: str) -> str:
    """A row of the table."""
    program: Callable[[int], Any] = getattr(programs, name)
    made = {n: program(n) for n in (*FIRST, *LENGTHS[name])}
    whole = made[FIRST[0]].arguments

    def arguments(n: int) -> tuple[Any, ...]:
        """Those of a length, which comes last; the others are the same."""
        return (*whole[:-1], made[n].arguments[-1])

    function = gradof.value_and_grad(made[FIRST[0]].loss)
    for n in FIRST:
        function(*arguments(n))
    times: list[tuple[float, ...]] = []
    for n in LENGTHS[name]:
        met, found = timed(function, arguments(n))
        again = min(timed(function, arguments(n))[0] for _ in range(50))
        first, want = timed(gradof.value_and_grad(made[n].loss), arguments(n))
        np.testing.assert_allclose(found[1], want[1], rtol=1e-8)
        times.append((met, again, first))
    least = [shown(min(column)) for column in zip(*times, strict=True)]
    return f"| {name} | {' | '.join(least)} | {function.cache_info().misses} |"


def main() -> None:
    """The table."""
    print("| program | a new length | called again | by a new function | traces |")
    print("| --- | --- | --- | --- | --- |")
    for name in LENGTHS:
        print(row(name), flush=True)


if __name__ == "__main__":
    main()
