"""Seconds to the first gradient of one side, in a process of its own with empty caches.

    python benchmarks/gpu_first.py gradof "layer norm" bf16 cuda      → seconds

Imports, the device's context and the making of the arguments are not counted.
"""

from __future__ import annotations

import sys
import time
import warnings
from typing import Any

import torch
from fresh import alone
from gpu_check import make_case, results
from gpu_workloads import DTYPES, by_name

from gradof import differentiate


def compiled(side: str, fn: Any) -> Any:
    """The function as a side runs it."""
    if side == "gradof":
        return differentiate(fn)
    return torch.compile(fn) if side == "torch.compile" else fn


def first(side: str, workload: str, dtype: str, device: str) -> float | None:
    """Seconds; None where it failed, which is told."""
    found = alone(__file__, side, workload, dtype, device)
    return None if found is None else float(found.split()[-1])


def main(side: str, name: str, dtype: str, device: str) -> None:
    """Run in the fresh process."""
    warnings.simplefilter("ignore")
    w = by_name(name)
    # runs the function once, eagerly: torch's own kernels are loaded for every side
    case = make_case(w, w.sizes[0] if device == "cuda" else w.tiny[0], DTYPES[dtype], device)
    for module in ("triton", "torch._inductor.compile_fx"):  # no import is counted
        __import__(module)
    synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
    synchronize()
    start = time.perf_counter()
    results(case, compiled(side, w.fn))
    synchronize()
    print(time.perf_counter() - start)


if __name__ == "__main__":
    main(*sys.argv[1:])
