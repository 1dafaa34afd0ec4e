"""Time to the first gradient of long chains: is it linear in the number of ops?"""

from __future__ import annotations

import time

import numpy as np
from more_workloads import long_chain

from gradof import value_and_grad


def compile_times(quick: bool) -> list[tuple[int, float]]:
    """Seconds from a new function to its first gradient, by number of ops."""
    times = []
    for n in (200, 2000) if quick else (200, 2000, 20000):
        fn = long_chain(n)
        start = time.perf_counter()
        value_and_grad(lambda x, fn=fn: fn(np, x))(np.ones(8))
        times.append((n, time.perf_counter() - start))
    return times
