"""Programs with loops beside themselves: rolled and native as they are, unrolled and op by op.

Finite differences are a coarse judge. That a stretch which repeats is one Loop, and a graph of
small arrays one native function, may change no more than roundings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from gradof import tuning
from gradof.runtime.functional import hvp
from gradof.runtime.pullback import vjp
from gradof.testing.closeness import distance, largest
from gradof.tracer.core.pytree import flatten

NEAR = 1e-8  # of the largest number, in float64
NAMES = ("output", "gradient", "second")
Groups = list[list[Any]]


def unlike_unrolled(
    fn: Callable[..., Any], inputs: Callable[[], tuple[Any, ...]], order: int, seed: int
) -> list[str]:
    """What differs by more than roundings, of programs in float64; nothing for others."""
    if any(np.asarray(x).dtype != np.float64 for x in inputs()):
        return []
    rolled = _run(fn, inputs, order, seed)
    with _op_by_op():
        plain = _run(fn, inputs, order, seed)
    for name, ours, theirs in zip(NAMES, rolled, plain, strict=False):
        found = []
        for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            allowed = NEAR * largest(b) + NEAR
            off = distance(a, b)
            if not off <= allowed:
                found.append(f"{name} {i} is unlike unrolled: off by {off:.2e}, allowed "
                             f"{allowed:.2e}")  # fmt: skip
        if found:
            return found
    return []


def _run(
    fn: Callable[..., Any], inputs: Callable[[], tuple[Any, ...]], order: int, seed: int
) -> Groups:
    """Results, gradients and products with the Hessian, for the same random cotangents."""
    rng = np.random.default_rng(seed)
    value, pullback = vjp(lambda *args: fn(*args), *inputs())
    leaves, tree = flatten(value)
    weights = [np.asarray(rng.standard_normal(np.shape(x)), np.asarray(x).dtype)
               if np.asarray(x).dtype.kind == "f" else x for x in leaves]  # fmt: skip
    groups = [leaves, [g for g in flatten(pullback(tree.unflatten(weights)))[0] if g is not None]]

    def weighted(*args: Any) -> Any:
        found = flatten(fn(*args))[0]
        pairs = zip(weights, found, strict=True)
        return sum(np.sum(w * x) for w, x in pairs if np.asarray(w).dtype.kind == "f")

    if order > 1:
        lines = tuple(rng.standard_normal(np.shape(x)) for x in inputs())
        groups.append(flatten(hvp(weighted, inputs(), lines))[0])
    return groups


@contextmanager
def _op_by_op() -> Iterator[None]:
    """No stretch is rolled, no graph is one native function."""
    names = ("LOOP_STEPS", "WHOLE_CELLS", "WHOLE_LOOP_CELLS")
    before = {name: getattr(tuning, name) for name in names}
    try:
        for name, value in zip(names, (1 << 60, -1, -1), strict=True):
            setattr(tuning, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(tuning, name, value)
