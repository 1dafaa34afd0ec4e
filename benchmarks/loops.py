"""Loops over small arrays, with their gradients: gradof beside jax.jit of hand-written scans.

    python benchmarks/loops.py               # what is installed; JAX is a side where it is there
    python benchmarks/loops.py rk4 hmm       # some of them
    python benchmarks/loops.py --write       # the table into docs/performance.md

float64, one thread, one process, in turns; first is the time to the first gradient, from an empty
cache of compiled code. Every gradient is compared with that of JAX, or with differences.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "GRADOF_NUM_THREADS"):
    os.environ[_name] = "1"
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
os.environ["GRADOF_CACHE_DIR"] = tempfile.mkdtemp(prefix="gradof-bench-")

import numpy as np  # noqa: E402
from loop_programs import PROGRAMS, Program  # noqa: E402
from tables import geometric_mean, markdown, number, shown, turns  # noqa: E402

import gradof  # noqa: E402

DOCS = Path(__file__).parents[1] / "docs" / "performance.md"
BEGIN, END = "<!-- loops -->", "<!-- /loops -->"
Run = Callable[[], Any]


def seconds(run: Run) -> float:
    """The time of one call, over as many as take a few milliseconds."""
    count, spent = 1, 0.0
    while spent < 5e-3:
        start = time.perf_counter()
        for _ in range(count):
            run()
        spent = time.perf_counter() - start
        count *= 2
    return spent / (count // 2)


def gradof_side(p: Program) -> tuple[float, Run]:
    """Time to the first gradient, and a call."""
    start = time.perf_counter()
    call = gradof.value_and_grad(p.fn, argnums=p.argnums)
    call(*p.arrays)
    first = time.perf_counter() - start
    return first, lambda: call(*p.arrays)


def jax_side(p: Program) -> tuple[float, Run] | None:
    """The same of the scan."""
    if importlib.util.find_spec("jax") is None:
        return None
    import jax

    jax.config.update("jax_enable_x64", True)
    from loop_scans import SCANS

    start = time.perf_counter()
    arrays = [jax.numpy.asarray(a) for a in p.arrays]
    call = jax.jit(jax.value_and_grad(SCANS[p.name], argnums=p.argnums))
    jax.block_until_ready(call(*arrays))
    first = time.perf_counter() - start
    return first, lambda: jax.block_until_ready(call(*arrays))


def check(p: Program, run: Run, other: Run | None) -> None:
    """Our gradient is that of JAX, or of central differences along a line."""
    _, ours = run()
    if other is not None:
        _, theirs = other()
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8)
        return
    rng, step = np.random.default_rng(0), 1e-6
    lines = [rng.standard_normal(np.shape(p.arrays[i])) for i in p.argnums]

    def moved(by: float) -> float:
        arrays = list(p.arrays)
        for i, line in zip(p.argnums, lines, strict=True):
            arrays[i] = arrays[i] + by * line
        return float(gradof.differentiate(p.fn)(*arrays))

    want = (moved(step) - moved(-step)) / (2 * step)
    have = sum(float(np.sum(g * line)) for g, line in zip(ours, lines, strict=True))
    np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-5)


def measure(p: Program, repeats: int) -> tuple[str, float, float, float, float]:
    """Name, first gradients and calls of both sides; nan where JAX is not there."""
    first, run = gradof_side(p)
    jax = jax_side(p)
    check(p, run, jax[1] if jax else None)
    runs = {"gradof": run, **({"jax": jax[1]} if jax else {})}
    times: dict[str, list[float]] = {name: [] for name in runs}
    for name in turns(runs, repeats):
        times[name].append(seconds(runs[name]))
    call = {name: statistics.median(found) for name, found in times.items()}
    nan = float("nan")
    return p.name, first, jax[0] if jax else nan, call["gradof"], call.get("jax", nan)


def main() -> None:
    """Measure, print, and write where that is asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    found = []
    for p in PROGRAMS:
        if not options.names or any(p.name.startswith(n) for n in options.names):
            found.append(measure(p, options.repeats))
            print(*found[-1], flush=True)
    found.sort(key=lambda row: -(row[3] / row[4] if row[4] == row[4] else row[3]))
    ratios = [ours / theirs for *_, ours, theirs in found if theirs == theirs]
    lines = markdown(
        ("program", "call", "JAX's", "ratio", "first gradient", "JAX's"),
        [(name, shown(ours), shown(theirs) if theirs == theirs else "-", number(ours / theirs),
          shown(first), shown(jax) if jax == jax else "-")
         for name, first, jax, ours, theirs in found],
    )  # fmt: skip
    if ratios:
        lines += ["", f"Geometric mean of the ratios {geometric_mean(ratios):.2f}, "
                  f"largest {max(ratios):.2f}."]  # fmt: skip
    print("\n".join(lines))
    if options.write:
        text = DOCS.read_text(encoding="utf-8")
        head, rest = text.split(BEGIN)
        body = "\n".join(lines)
        DOCS.write_text(f"{head}{BEGIN}\n{body}\n{END}{rest.split(END)[1]}", encoding="utf-8")


if __name__ == "__main__":
    main()
