"""Value and gradients on a CPU: gradof beside torch eager, torch.compile, JAX and HIPS autograd.

    python benchmarks/bench_cpu.py [--quick] [--only NAME]

All sides run in this process, on the same arrays and threads, in turns; medians are printed, and
peer / gradof: above 1 gradof is faster. First gradients are timed on a fresh function, after
import. A side that is not installed, or cannot compile, says so and is left out. Every gradient is
compared with that of torch eager, or numpy's own, before anything is timed.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import os
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from workloads import WORKLOADS, Workload

from gradof import differentiate, value_and_grad
from gradof.codegen.cpu.native.engine import status
from gradof.codegen.cpu.threads import n_threads

Run = Callable[[], list[Any]]
SIDES = ("gradof", "gradof tiles", "gradof numpy", "eager", "torch.compile", "jax", "autograd")


def torch_run(fn: Callable[..., Any], w: Workload, arrays: list[Any]) -> Run:
    """Value and gradients through torch's autograd."""
    tensors = [torch.from_numpy(a) for a in arrays]
    for i in w.argnums:
        tensors[i].requires_grad_()
    wanted = [tensors[i] for i in w.argnums]
    return lambda: list(torch.autograd.grad(fn(*tensors), wanted))


def numpy_run(w: Workload, arrays: list[Any]) -> Run:
    """gradof's value and gradient of numpy code."""
    assert w.array is not None
    array = w.array
    fn = value_and_grad(lambda *args: array(np, *args), argnums=w.argnums)
    return lambda: list(fn(*arrays)[1])


def jax_run(w: Workload, arrays: list[Any]) -> Run:
    """jax.jit of jax.value_and_grad."""
    import jax

    jax.config.update("jax_enable_x64", True)
    assert w.array is not None
    array = w.array
    fn = jax.jit(jax.value_and_grad(lambda *a: array(jax.numpy, *a), argnums=w.argnums))
    given = [jax.numpy.asarray(a) for a in arrays]
    return lambda: [g.block_until_ready() for g in fn(*given)[1]]


def autograd_run(w: Workload, arrays: list[Any]) -> Run:
    """HIPS autograd's value_and_grad."""
    import autograd
    import autograd.numpy as anp

    assert w.array is not None
    array = w.array
    fn = autograd.value_and_grad(lambda *a: array(anp, *a), argnum=w.argnums)
    return lambda: list(fn(*arrays)[1])


class backend:
    """`GRADOF_BACKEND` for a while: code is made at the first call."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        os.environ["GRADOF_BACKEND"] = self.name

    def __exit__(self, *_: object) -> None:
        del os.environ["GRADOF_BACKEND"]


def sides(w: Workload, arrays: list[Any]) -> dict[str, Callable[[], Run]]:
    """How each side is made; the numpy caller's where the workload is not written for torch."""
    fn = w.torch
    made: dict[str, Callable[[], Run]] = {}
    for side in SIDES[:3]:
        made[side] = (
            (lambda: torch_run(differentiate(fn), w, arrays)) if fn is not None
            else (lambda: numpy_run(w, arrays))
        )  # fmt: skip
    if fn is not None:
        made["eager"] = lambda: torch_run(fn, w, arrays)
        made["torch.compile"] = lambda: torch_run(torch.compile(fn), w, arrays)
    if w.array is not None and importlib.util.find_spec("jax"):
        made["jax"] = lambda: jax_run(w, arrays)
    if w.array is not None and importlib.util.find_spec("autograd"):
        made["autograd"] = lambda: autograd_run(w, arrays)
    return made


BACKENDS = {"gradof": "auto", "gradof tiles": "tiles", "gradof numpy": "numpy"}


def measure(w: Workload, repeats: int, quick: bool) -> dict[str, tuple[float, float]]:
    """Per side: median seconds, and seconds to the first gradient."""
    arrays = w.make(np.random.default_rng(0))
    runs: dict[str, Run] = {}
    firsts: dict[str, float] = {}
    reference: list[Any] | None = None
    for side, make in sides(w, arrays).items():
        if quick and side == "torch.compile":
            continue
        try:
            with backend(BACKENDS.get(side, "auto")), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                run = make()
                start = time.perf_counter()
                grads = run()
                firsts[side] = time.perf_counter() - start
        except Exception as error:  # a peer that does not work here is told, not hidden
            print(f"{w.name}: {side} does not run: {type(error).__name__}: {str(error)[:80]}")
            continue
        found = [np.asarray(g) for g in grads]
        if reference is not None:
            for mine, other in zip(found, reference, strict=True):
                scale = np.abs(other).max()
                if not np.allclose(mine, other, rtol=2e-3, atol=2e-4 * scale):
                    raise SystemExit(f"{w.name}: {side} has another gradient")
        reference = reference or found
        runs[side] = run
    samples: dict[str, list[float]] = {side: [] for side in runs}
    for run in runs.values():
        run()
    for _ in range(repeats):
        for side, run in runs.items():
            start = time.perf_counter()
            run()
            samples[side].append(time.perf_counter() - start)
    return {side: (statistics.median(samples[side]), firsts[side]) for side in runs}


def shown(seconds: float) -> str:
    """Milliseconds, or microseconds where they are few."""
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} µs"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few repeats, no torch.compile")
    parser.add_argument("--only", default="", help="workloads whose name contains this")
    options = parser.parse_args()
    repeats = 5 if options.quick else 25
    console = Console(width=150)
    console.print(f"torch {torch.__version__}, numpy {np.__version__}, {status()[1]}; "
                  f"{n_threads()} threads; medians of {repeats}", markup=False)  # fmt: skip
    table = Table("workload", *SIDES, "best peer / gradof", title="value and gradients")
    first = Table("workload", *SIDES, title="first gradient, after import")
    ratios: dict[str, list[float]] = {}
    for w in WORKLOADS:
        if options.only not in w.name:
            continue
        found = measure(w, repeats, options.quick)
        peers = [t for side, (t, _) in found.items() if not side.startswith("gradof")]
        ratio = min(peers) / found["gradof"][0] if peers else math.nan
        ratios.setdefault(w.kind, []).append(ratio)
        cells = [shown(found[s][0]) if s in found else "-" for s in SIDES]
        table.add_row(w.name, *cells, f"{ratio:.2f}")
        first.add_row(w.name, *[shown(found[s][1]) if s in found else "-" for s in SIDES])
    console.print(table)
    console.print(first)
    for kind, values in ratios.items():
        values = [v for v in values if not math.isnan(v)]  # no peer ran
        if not values:
            continue
        mean = math.exp(statistics.fmean(map(math.log, values)))
        console.print(f"{kind}: geometric mean of best peer / gradof {mean:.2f}, "
                      f"least {min(values):.2f}")  # fmt: skip


if __name__ == "__main__":
    main()
