"""How close is close enough: what float64 says.

Note [Closeness]
Two float32 programs differ by rounding, and how much depends on the program. So the bound comes
from it: with a reference computed in float64, our error may be at most 8 times eager's own error
plus 64 ulps of the largest number of the group (all outputs, or all gradients: cancellation makes
small ones from large ones), 4 of them in half precision, where 64 would be half of it. Where no
float64 run can be compared, because the function draws random numbers, 4096 ulps against eager are
allowed, and again 4 in half precision. Integers and booleans are equal or wrong.

A gradient that is zero because large terms cancel is noise, and so is every number it could be held
against. Where gradients are too far off, eager is therefore run again on inputs moved by one ulp:
8 times what its own gradients change by is allowed as well. A gradient that is small, but not
noise, does not change so.

Note [Finite differences]
They are those of the float64 function along a random direction, a step of 1e-6 to either side. Our
derivative may be off their mean by 1e-5 relative, by 64 ulps of the working precision, and by half
the distance of the two one-sided differences: at a kink, as relu has at 0, every slope in between
is right. numpy's, which have no other reference, are taken with a quarter of the step as well, and
may be off by eight times what that changes: near a pole or a jump. Nothing is judged where the
function is not finite, nor where torch's own float64 gradient is off as well: there the function
cuts a gradient on purpose (`detach`). Notes of the report say so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gradof.testing.report import Row
from gradof.tracer.core.pytree import flatten

FACTOR, ULPS, HALF_ULPS, RANDOM_ULPS, FINITE = 8.0, 64.0, 4.0, 4096.0, 1e-5


def rows(
    names: Sequence[str], ours: Sequence[Any], eager: Sequence[Any],
    exact: Sequence[Any] | None, dtypes: Sequence[Any], noises: Sequence[float] = (),
) -> list[Row]:  # fmt: skip
    """Compare groups of arrays; None in `ours` must meet None in `eager`.

    `noises` are, for each, what eager's changes by where its inputs are moved by one ulp.
    """
    reference = eager if exact is None else exact
    scale = max([largest(r) for r in reference if r is not None], default=0.0)
    result: list[Row] = []
    for i, (name, mine, theirs) in enumerate(zip(names, ours, eager, strict=True)):
        if mine is None or theirs is None:
            wrong = math.inf if (mine is None) != (theirs is None) else 0.0
            result.append(Row(name, "eager", wrong, None, 0.0, 0.0))
            continue
        ulp = _ulp(dtypes[i])
        if exact is None:
            allowed = _ulps(ulp, RANDOM_ULPS) * ulp * scale
            result.append(Row(name, "eager", distance(mine, theirs), None, allowed, scale))
            continue
        own = distance(theirs, exact[i])
        allowed = FACTOR * own + _ulps(ulp) * ulp * scale
        allowed += FACTOR * noises[i] if noises else 0.0
        result.append(Row(name, "float64", distance(mine, exact[i]), own, allowed, scale))
        result.append(Row(name, "eager", distance(mine, theirs), None, allowed + own, scale))
    return result


def noise(gradient: Any, again: Sequence[Any], size: float, dtype: Any) -> float:
    """How far a gradient is from itself in other runs; 0 where that is more than rounding.

    At a tie or a kink it is as large as a gradient, and no noise. `size` is that of the results.
    """
    if gradient is None:
        return 0.0
    found = max(distance(gradient, other) for other in again)
    return found if found <= RANDOM_ULPS * _ulp(dtype) * max(1.0, size) else 0.0


def _ulp(dtype: Any) -> float:
    return 2.0**-7 if str(dtype) == "bfloat16" else float(np.finfo(dtype).eps)


def equal(name: str, ours: Any, eager: Any) -> Row:
    """Integers and booleans, which have no rounding."""
    return Row(name, "eager", distance(ours, eager), None, 0.0, largest(eager))


def directional(
    name: str, ours: float, values: tuple[float, float, float], step: float, magnitude: float,
    ulp: float = 0.0, slack: float = 0.0,
) -> Row | None:  # fmt: skip
    """A directional derivative against differences; see Note [Finite differences].

    `values` are those of the function one step back, here, and one step on; `magnitude` is the sum
    of the absolute terms that make up `ours`, each known to `ulp`. None where no value is finite.
    """
    back, here, on = values
    if not all(map(math.isfinite, values)):
        return None
    difference = (on - back) / (2 * step)
    scale = max(abs(difference), abs(ours) if math.isfinite(ours) else 0.0, magnitude)
    rounding = 32 * float(np.finfo(np.float64).eps) * max(map(abs, values)) / step
    bend = abs(on - 2 * here + back) / (2 * step)
    allowed = (FINITE + _ulps(ulp) * ulp) * scale + rounding + bend + slack
    error = abs(ours - difference) if math.isfinite(ours) else math.inf
    return Row(name, "finite differences", error, None, allowed, scale)


def unsteady(values: tuple[float, float, float, float], step: float) -> float:
    """How far differences can be off, by what they are for a quarter of the step.

    `values` are at -1, -1/4, 1/4 and 1 steps. Near a pole or a jump the two differ.
    """
    back, near, far, on = values
    gap = abs((on - back) / (2 * step) - (far - near) / (0.5 * step))
    return FACTOR * gap if math.isfinite(gap) else 0.0


def _ulps(ulp: float, most: float = ULPS) -> float:
    """How many ulps of this size are allowed."""
    return HALF_ULPS if ulp > 1e-4 else most


def largest(array: Any) -> float:
    """max |a| over finite elements; 0 for an empty array."""
    finite = np.asarray(array, dtype=np.float64)
    finite = finite[np.isfinite(finite)]
    return float(np.max(np.abs(finite))) if finite.size else 0.0


def distance(a: Any, b: Any) -> float:
    """max |a - b|; equal infinities and nans are equal, different ones infinitely far."""
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if x.shape != y.shape:
        return math.inf
    special = ~(np.isfinite(x) & np.isfinite(y))
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    if np.any(special & ~same):
        return math.inf
    gap = np.abs(np.where(special, 0.0, x) - np.where(special, 0.0, y))
    return float(np.max(gap)) if gap.size else 0.0


def floats_of(value: Any) -> list[Any]:
    """The floating leaves of a result, plain or traced."""
    return [x for x in flatten(value)[0] if hasattr(x, "dtype") and x.dtype.kind == "f"]
