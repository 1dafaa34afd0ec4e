"""Where a sequence of colours repeats itself.

    stretches(colours of a x y z x y z x y z w, least=3)
    Stretch(start=1, period=3, steps=3, end=10)

A stretch says that colours are equal one period apart; whether the nodes are is for `match`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Colours = NDArray[np.int64]
_STAGES = 4  # alike parts of one step, of which the whole is the loop
_WINDOW = 4  # colours that have to be equal for a distance to be tried


class Stretch(NamedTuple):
    """`steps` times `period` places from `start` on, each equal to the one a period before.

    At `end` this ends, which may be within a further step.
    """

    start: int
    period: int
    steps: int
    end: int


def stretches(colours: Colours, least: int) -> Iterator[Stretch]:
    """Stretches of at least `least` steps, those of the shortest period first."""
    for period in _periods(colours, least):
        same = colours[period:] == colours[:-period]
        edges = np.flatnonzero(np.diff(np.concatenate(([0], same.view(np.int8), [0]))))
        for first, last in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            steps = (last - first) // period + 1
            if steps >= least:
                yield Stretch(first, period, steps, last + period)


def _periods(colours: Colours, least: int) -> list[int]:
    """Distances at which windows of equal colours often stand from one another."""
    count = len(colours)
    found: set[int] = set()
    for width in (1, _WINDOW):
        if count < width:
            continue
        keys = _windows(colours, width)
        order = np.argsort(keys, kind="stable")
        sorted_keys = keys[order]
        near = np.diff(order)[np.diff(sorted_keys) == 0]
        if near.size:
            distances, often = np.unique(near, return_counts=True)
            found.update(distances[often >= least - 1].tolist())
    multiples = {d * k for d in found for k in range(1, _STAGES + 1)}  # the stages of RK4 are alike
    return sorted(d for d in multiples if d * least <= count)


def _windows(colours: Colours, width: int) -> NDArray[Any]:
    """A number for each window of that many colours; equal windows have equal ones."""
    keys = colours
    for shift in range(1, width):
        pairs = keys[:-1] * np.int64(1 << 31) + colours[shift:]
        _, keys = np.unique(pairs, return_inverse=True)
    return keys
