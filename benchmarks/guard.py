"""What the check of a call costs: is it still the call that was traced?"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from gradof import differentiate

TENSORS = 10


def add_all(*arrays: Any) -> Any:
    """Ten arrays, little work."""
    total = arrays[0]
    for array in arrays[1:]:
        total = total + array
    return total


def check_seconds(repeats: int = 25, calls: int = 1000) -> float:
    """Seconds that the check of ten arrays adds to a call.

    The median of a call's time, less that of the prepared call, which runs the same kernels and
    leaves the check out.
    """
    arrays = [np.full(4, float(i)) for i in range(TENSORS)]
    checked = differentiate(add_all)
    prepared = checked.prepare(*arrays)
    if not np.array_equal(checked(*arrays), prepared(*arrays)):
        raise SystemExit("guard check: the prepared call has another value")
    differences = [
        _seconds(checked, arrays, calls) - _seconds(prepared, arrays, calls) for _ in range(repeats)
    ]
    return statistics.median(differences)


def _seconds(call: Callable[..., Any], arrays: list[Any], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        call(*arrays)
    return (time.perf_counter() - start) / calls
