"""Less memory for more time: a 12-layer network under falling memory budgets.

    python examples/checkpointing.py

`memory_budget` is the share of the bytes saved for the gradient that may be saved; what is not
saved is computed again. Measured per budget, in numpy: the bytes saved, the peak of all memory that
numpy allocates during one value and gradient (tracemalloc sees every array), and the time.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gradof import differentiate, release_memory, value_and_grad

Array = NDArray[np.float64]
LAYERS, WIDTH, ROWS = 12, 64, 4096
BUDGETS = (1.0, 0.5, 0.25, 0.1, 0.0)
MB = 1e6


class Row(NamedTuple):
    """One line of the table."""

    budget: float
    saved: float
    peak: float
    milliseconds: float
    gradients: list[Array]


def loss(weights: list[Array], x: Array) -> Any:
    """The mean square of a deep network's output."""
    for w in weights:
        x = np.tanh(x @ w)
    return np.mean(x * x)


def measure(budget: float, weights: list[Array], x: Array) -> Row:
    """Saved MB, peak MB above what was there before, and time of one gradient."""
    compiled = differentiate(loss, memory_budget=budget)
    step = value_and_grad(compiled)
    step(weights, x)  # traces and compiles
    start = time.perf_counter()
    step(weights, x)
    seconds = time.perf_counter() - start
    release_memory()  # what is kept for the next arrays would not be counted
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        _, gradients = step(weights, x)
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    saved = compiled.explain(weights, x).saved_bytes
    return Row(budget, saved / MB, peak / MB, 1e3 * seconds, gradients)


def main(argv: Sequence[str] = ()) -> list[Row]:
    """Print the table; returns its rows."""
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=(WIDTH, WIDTH)) / np.sqrt(WIDTH) for _ in range(LAYERS)]
    x = rng.normal(size=(ROWS, WIDTH))
    print("budget  saved MB  peak MB   time ms")
    rows = []
    for budget in BUDGETS:
        row = measure(budget, weights, x)
        print(f"{row.budget:6.2f}  {row.saved:8.1f}  {row.peak:7.1f}  {row.milliseconds:8.1f}")
        rows.append(row)
    return rows


if __name__ == "__main__":
    main()
