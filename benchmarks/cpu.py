"""Value and gradients on a CPU: gradof beside torch eager, torch.compile, JAX and HIPS autograd.

    python benchmarks/cpu.py [--quick] [--only NAME] [--write]

All sides run in this process, on the same arrays and threads, in turns; medians are printed, and
peer / gradof: above 1 gradof is faster. Every gradient is compared with that of torch eager, or
numpy's own, before anything is timed. The first gradient (after import, nothing cached) and the
peak memory of a later one are measured in a process of its own for each side (`fresh.py`). A side
that is not installed, or cannot compile, says so and is left out. `--write` puts the tables into
docs/performance.md, and a chart beside it.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from c_loops import c_run
from compile_time import compile_times
from fresh import LEARNT, fresh
from guard import check_seconds
from report import Report, Row
from rich.console import Console
from roofline import bandwidth, least_bytes
from sides import (
    BACKENDS,
    NUMPY_CALLER,
    BackwardRun,
    Run,
    backend,
    backwards,
    forwards,
    sides,
)
from tables import turns
from workloads import WORKLOADS, Workload

from gradof.codegen.machine.engine import status
from gradof.codegen.machine.threads import n_threads

OPENBLAS = (NUMPY_CALLER, "autograd")  # whose products are numpy's
ALONE = ("gradof", "gradof tiles", "eager", "torch.compile", "jax")  # in fresh processes too
DOCS = Path(__file__).parents[1] / "docs"


def checked(w: Workload, arrays: list[Any], quick: bool) -> dict[str, Run]:
    """The sides that run here, each with the gradient of the first."""
    runs: dict[str, Run] = {}
    reference: list[Any] | None = None
    for side, make in sides(w, arrays).items():
        if quick and side == "torch.compile":
            continue
        try:
            with backend(BACKENDS.get(side, "auto")), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                run = make()
                torch.manual_seed(0)
                grads = run()
                for _ in range(LEARNT):  # code made later would be the default backend's
                    run()
        except Exception as error:  # a peer that does not work here is told, not hidden
            print(f"{w.name}: {side} does not run: {type(error).__name__}: {str(error)[:80]}")
            continue
        runs[side] = run
        if w.kind == "random" and side == "torch.compile":
            continue  # it draws other numbers than eager
        found = [np.asarray(g) for g in grads]
        if reference is not None:
            for mine, other in zip(found, reference, strict=True):
                scale = np.abs(other).max()
                if not np.allclose(mine, other, rtol=2e-3, atol=2e-4 * scale):
                    raise SystemExit(f"{w.name}: {side} has another gradient")
        reference = reference or found
    by_hand = c_run(w, arrays)
    if by_hand is not None and reference is not None:
        for mine, other in zip(by_hand(), reference, strict=True):
            if not np.allclose(mine, other, rtol=2e-3, atol=2e-4 * np.abs(other).max()):
                raise SystemExit(f"{w.name}: the loop in C has another gradient")
        runs["C loop"] = by_hand
    return runs


def medians(runs: dict[str, Run], repeats: int, products: bool = False) -> dict[str, float]:
    """Median seconds of each side, in turns of random order; short runs several times in a sample.

    Before its samples a side runs untimed for a while: the threads of the side before spin for
    some milliseconds after their last loop, on cores that this one needs; those of numpy's
    OpenBLAS, where there are `products`, for a tenth of a second.
    """
    samples: dict[str, list[float]] = {side: [] for side in runs}
    times = {side: _times(run) for side, run in runs.items()}
    before = ""
    for side in turns(runs, repeats):
        run, count = runs[side], times[side]
        _settle(run, 0.15 if products and before in OPENBLAS else 0.02)
        before = side
        start = time.perf_counter()
        for _ in range(count):
            run()
        samples[side].append((time.perf_counter() - start) / count)
    return {side: statistics.median(seconds) for side, seconds in samples.items()}


def _settle(run: Run, seconds: float) -> None:
    """Run untimed, at least once and for this long."""
    end = time.perf_counter() + seconds
    run()
    while time.perf_counter() < end:
        run()


def _times(run: Run) -> int:
    """How often a run is repeated within one sample: about a millisecond's worth."""
    _settle(run, 0.02)
    start = time.perf_counter()
    run()
    return max(1, int(1e-3 / (time.perf_counter() - start)))


def backward_medians(runs: dict[str, tuple[Run, BackwardRun]], repeats: int) -> dict[str, float]:
    """Median seconds of each side's backward, of a value that was computed untimed just before."""
    samples: dict[str, list[float]] = {side: [] for side in runs}
    for side in turns(runs, repeats):
        forward, backward_of = runs[side]
        _settle(lambda forward=forward, backward_of=backward_of: backward_of(forward()), 0.02)
        value = forward()
        start = time.perf_counter()
        backward_of(value)
        samples[side].append(time.perf_counter() - start)
    return {side: statistics.median(seconds) for side, seconds in samples.items()}


def measure(w: Workload, repeats: int, quick: bool, copy: float) -> Row:
    """Everything about one workload."""
    arrays = w.make(np.random.default_rng(0))
    products = w.kind == "matmul"
    together = medians(checked(w, arrays, quick), repeats, products)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        forward = medians(forwards(w, arrays, together), repeats, products)
        backward = backward_medians(backwards(w, arrays, together), repeats)
    roof = least_bytes(w, arrays) / copy
    alone = {} if quick else {side: fresh(side, w.name) for side in together if side in ALONE}
    return Row(w.name, w.kind, together, forward, backward, roof, alone)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    quick_help = "few repeats, no torch.compile, nothing in fresh processes"
    parser.add_argument("--quick", action="store_true", help=quick_help)
    parser.add_argument("--only", default="", help="workloads whose name contains this")
    parser.add_argument("--write", action="store_true", help="write docs/performance.md and chart")
    options = parser.parse_args()
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=true")
    repeats = 5 if options.quick else 25
    console = Console(width=180)
    copy = bandwidth()
    rows = [measure(w, repeats, options.quick, copy) for w in WORKLOADS if options.only in w.name]
    heading = (
        f"torch {torch.__version__}, numpy {np.__version__}, {status()[1]}; {n_threads()} threads; "
        f"medians of {repeats}; a copy moves {copy / 1e9:.1f} GB/s"
    )
    chains = [] if options.only else compile_times(options.quick)
    report = Report(heading, rows, chains, check_seconds())
    report.show(console)
    if options.write:
        report.write(DOCS)
    worst = [r.ratio() for r in rows if not math.isnan(r.ratio())]
    console.print(f"least best peer / gradof: {min(worst, default=math.nan):.2f}")


if __name__ == "__main__":
    main()
