"""Repeated stretches as loops.

    Given   %1 = mul(%x, %c); %2 = sin(%1); %3 = mul(%2, %c); %4 = sin(%3); ... of a Python `for`
    Result  %y = Loop[steps=50, constants=1, carried=1](%c, %x)
              block(%t, %c, %x): %1 = mul(%x, %c); %2 = sin(%1) -> (%2)

Stretches of equal nodes are found by their colours (`roll.find`), compared node by node
(`roll.match`), and replaced (`roll.build`): those of the shortest period first, so that inner loops
are nodes of outer ones. What does not repeat exactly stays as it is. Run on what was recorded,
before it is differentiated.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gradof import tuning
from gradof.ir.core import Graph, Node
from gradof.ir.loop import is_loop
from gradof.ops.registry import get_op
from gradof.passes.expand_composites import inline
from gradof.passes.roll.build import Unfit, build
from gradof.passes.roll.find import Stretch, stretches
from gradof.passes.roll.match import LAG, Colours, Matcher
from gradof.passes.roll.phase import best_phase
from gradof.passes.roll.tidy import tidy_loops


def roll_loops(graph: Graph, has_loops: bool = False) -> bool:
    """Roll what repeats often enough; returns whether anything did.

    With `has_loops`, Loops that are there are tidied as well.
    """
    _expand_selects(graph)
    changed = False
    while len(graph.block) >= tuning.LOOP_STEPS and _roll_once(graph):
        changed = True
    if changed or has_loops:
        tidy_loops(graph)
    return changed


def _expand_selects(graph: Graph) -> None:
    """Rows that are selected are slices, whose place may move."""
    selects = [node for node in graph.nodes() if node.kind == "select"]
    expansion = get_op("select").expand
    if len(selects) >= tuning.LOOP_STEPS and expansion is not None:
        for node in selects:
            inline(node, expansion)


def _roll_once(graph: Graph) -> bool:
    """Roll the stretches of the shortest period that has any."""
    nodes = [node for node in graph.nodes() if node.kind != "Constant"]
    matcher = Matcher(nodes)
    numbers = Colours()
    colours = np.array([numbers.of(node) for node in nodes], np.int64)
    done: list[tuple[int, int]] = []
    period = None
    for found in stretches(colours, tuning.LOOP_STEPS):
        if period is not None and found.period != period:
            break
        rest = best_phase(nodes, matcher.at, found)
        failed = 0
        while rest.steps >= tuning.LOOP_STEPS and failed <= LAG:
            if any(a < rest.end and rest.start < b for a, b in done):
                break
            rest, covered = _roll(graph, matcher, rest)
            failed += 1
            if covered is not None:
                done.append(covered)
                period, failed = found.period, 0
    return bool(done)


def _roll(
    graph: Graph, matcher: Matcher, given: Stretch
) -> tuple[Stretch, tuple[int, int] | None]:
    """Roll the first steps of a stretch that match; gives what is left, and what was rolled."""
    start, period, steps, end = given
    match = matcher.match(given, tuning.LOOP_STEPS)
    if match is None or not _is_worth(matcher.nodes[start : start + period], match.steps):
        return Stretch(start + period, period, steps - 1, end), None
    try:
        build(graph, matcher.nodes, match)
    except Unfit:
        return Stretch(start + period, period, steps - 1, end), None
    after = start + match.steps * period
    return Stretch(after, period, (end - after) // period, end), (start, after)


def _is_worth(nodes: Sequence[Node], steps: int) -> bool:
    """Whether a loop of these nodes pays: a chain of views is nothing to run."""
    work = [node for node in nodes if node.kind not in ("slice", "reshape", "permute", "cat")]
    return (len(nodes) * steps >= tuning.LOOP_NODES and bool(work)) or any(map(is_loop, nodes))
