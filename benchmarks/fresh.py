"""One side in a process of its own: time to the first gradient, peak memory of a later one.

    python benchmarks/fresh.py "gradof tiles" "rmsnorm 4096x1024"      → seconds bytes

Imports are not counted, caches of compiled code are empty. Memory is what the process holds at most
beyond what it held before that gradient (VmHWM of Linux), results included.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

TIMEOUT = 120
CACHES = ("GRADOF_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
LEARNT = 3  # calls after which gradof runs value and gradients together


def fresh(side: str, workload: str) -> tuple[float, float] | None:
    """(seconds to the first gradient, peak bytes); None where that could not be measured."""
    found = alone(__file__, side, workload)
    if found is None:
        return None
    seconds, peak = found.split()[-2:]
    return float(seconds), float(peak)


def alone(script: str, side: str, workload: str, *further: str) -> str | None:
    """What a script prints in a process with empty caches; None where it fails, which is told."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                [sys.executable, script, side, workload, *further], capture_output=True, text=True,
                env={**os.environ, **{name: folder for name in CACHES}}, timeout=TIMEOUT,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            print(f"{workload}: the first gradient of {side} took more than {TIMEOUT} s")
            return None
    if done.returncode:
        why = (done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[-1]
        print(f"{workload}: {side} in a fresh process: {why}")
        return None
    return done.stdout


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise SystemExit(f"/proc/self/status has no {field}")


def main(side: str, name: str) -> None:
    """Run in the fresh process."""
    warnings.simplefilter("ignore")
    from sides import BACKENDS, sides
    from workloads import WORKLOADS

    from gradof import release_memory

    (w,) = (w for w in WORKLOADS if w.name == name)
    arrays = w.make(np.random.default_rng(0))
    os.environ["GRADOF_BACKEND"] = BACKENDS.get(side, "auto")
    for module in ("jax", "autograd", "torch._inductor.compile_fx"):
        if module.split(".")[0] in side:
            __import__(module)
    start = time.perf_counter()
    run = sides(w, arrays)[side]()
    run()
    seconds = time.perf_counter() - start
    for _ in range(LEARNT):
        run()
    release_memory()
    ctypes.CDLL(None).malloc_trim(0)  # what is free goes back, or the next run would not show
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts anew
    before = _status("VmRSS")
    kept = run()
    peak = _status("VmHWM") - before
    assert kept
    print(seconds, peak)


if __name__ == "__main__":
    main(*sys.argv[1:])
