"""At which node a step of a stretch begins: where the fewest values pass from one to the next.

A stretch may be cut into steps at any of its nodes. Cut as the user's loop is, what passes is what
the loop carries; cut elsewhere, so are values on their way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gradof.ir.core import Node
from gradof.passes.roll.find import Stretch


def best_phase(nodes: Sequence[Node], at: Mapping[Node, int], given: Stretch) -> Stretch:
    """The stretch cut where the fewest values pass."""
    first, period, steps, end = given
    middle = first + (steps // 2) * period
    passing = [0] * (4 * period + 2)
    low = middle - period
    for place in range(low, min(low + 3 * period, len(nodes))):
        if place < 0:
            continue
        for out in nodes[place].outputs:
            used = [at.get(use.node, -1) for use in out.uses]
            last = max((u for u in used if u <= place + 2 * period), default=-1)
            if last > place:
                passing[place + 1 - low] += 1
                passing[min(last + 1 - low, len(passing) - 1)] -= 1
    total, sums = 0, []
    for change in passing:
        total += change
        sums.append(total)
    # sums[b - low] is how many values pass from before place b to b or later
    best = min(range(period), key=lambda o: (sums[middle + o - low], o))
    offset = (middle + best - first) % period
    start = first + offset
    return Stretch(start, period, (end - start) // period, end)
