"""What memory allows: the bandwidth of a copy, and the bytes a gradient cannot do without."""

from __future__ import annotations

import time
from typing import Any

import torch
from workloads import Workload


def bandwidth(megabytes: int = 256) -> float:
    """Bytes per second that a copy of a large tensor reads and writes, on torch's threads."""
    source = torch.ones(megabytes << 18)
    target = torch.empty_like(source)
    best = 1e9
    for _ in range(7):
        start = time.perf_counter()
        target.copy_(source)
        best = min(best, time.perf_counter() - start)
    return 2 * source.nbytes / best


def least_bytes(w: Workload, arrays: list[Any]) -> int:
    """Each argument read once, each gradient written once."""
    return sum(a.nbytes for a in arrays) + sum(arrays[i].nbytes for i in w.argnums)
