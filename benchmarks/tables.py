"""What the tables of both benchmarks share: numbers as text, Markdown, means, and fair turns."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterable, Iterator, Sequence


def turns(names: Iterable[str], repeats: int) -> Iterator[str]:
    """Each name `repeats` times, in rounds of random order: none always follows the same other."""
    order, rng = list(names), random.Random(0)
    for _ in range(repeats):
        rng.shuffle(order)
        yield from order


def geometric_mean(values: Iterable[float]) -> float:
    """NaN for no values."""
    logs = [math.log(v) for v in values]
    return math.exp(statistics.fmean(logs)) if logs else math.nan


def shown(seconds: float) -> str:
    """Milliseconds, or microseconds where they are few."""
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} µs"


def number(value: float) -> str:
    """Two digits, or a dash."""
    return "-" if math.isnan(value) else f"{value:.2f}"


def markdown(head: Sequence[str], cells: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table."""
    lines = [head, ["---"] * len(head), *cells]
    return [f"| {' | '.join(each)} |" for each in lines]
