"""Numbers of the graph that follow from sizes: steps, widths of cells, weights of means.

    h = 5.0 / n                 # n a `Length`: h is a TracedNumber, and a value of the graph
    x = x + h * slope(x)        # recorded, for any n
    if h < 0.1: ...             # needs the number: it is told, Note [Told sizes] in numpy's lengths

Their leaf is `OF_SIZES`. No guard can be theirs, as nothing of a call decides it beside the sizes,
of which each is known by its formula: so a quotient and a power are recorded where the divisor and
the base are positive for every size from one on.
"""

from __future__ import annotations

import math
from typing import Any

from gradof.ir.core import Value

OF_SIZES = object()  # the leaf
_LARGEST = 19.0  # the decimal logarithm of what no size is beyond
_RANGE = 290.0  # as far as float64 goes without coming near zero or infinity


def are_of_sizes(*numbers: Any) -> bool:
    """Whether those of the numbers that are traced follow from sizes alone."""
    traced = [x for x in numbers if hasattr(type(x), "leaves")]
    return all(x.leaves == {OF_SIZES} and not x.read for x in traced)


def as_traced(number: Any) -> Any:
    """A size as a number of the graph; any other value as it is."""
    made = getattr(type(number), "gradof_number", None)
    return number if made is None else made(number)


def is_positive(value: Value) -> bool:
    """Whether a number that is made of constants and sizes is above zero, for any sizes."""
    bounds = _bounds(value)
    return bounds is not None and -_RANGE < bounds[0] and bounds[1] < _RANGE


def _bounds(value: Value) -> tuple[float, float] | None:
    """Decimal logarithms that a positive number is between; None where it may not be one."""
    node = value.node
    if node is None:
        return None
    if node.kind == "Constant":
        number = node.attrs["value"]
        if not isinstance(number, int | float) or not 1e-99 < number < 1e99:
            return None
        return math.log10(number), math.log10(number)
    if node.kind == "full":  # a size, of which the condition that it is above zero was noted
        number = node.attrs["value"]
        is_size = isinstance(number, int | float) and 1 <= number <= 10**_LARGEST
        return (0.0, _LARGEST) if is_size else None
    if node.kind in ("cast", "copy"):
        return _bounds(node.inputs[0])
    if node.kind not in ("mul", "div", "add"):
        return None
    a, b = map(_bounds, node.inputs)
    if a is None or b is None:
        return None
    if node.kind == "mul":
        return a[0] + b[0], a[1] + b[1]
    if node.kind == "div":
        return a[0] - b[1], a[1] - b[0]
    return max(a[0], b[0]), max(a[1], b[1]) + 1
