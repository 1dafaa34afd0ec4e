"""Loops over small arrays, with their gradients: gradof beside jax.jit of hand-written scans.

    python benchmarks/loops.py               # what is installed; JAX is a side where it is there
    python benchmarks/loops.py RK4 HMM       # some of them
    python benchmarks/loops.py --write       # the table into docs/performance.md

float64, one thread, one process, in turns; the time of the processor, the least of the repeats.
First is the time to the first gradient, from an empty cache of compiled code. Every gradient is
compared with that of JAX, or with differences.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "GRADOF_NUM_THREADS"):
    os.environ[_name] = "1"
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
os.environ["GRADOF_CACHE_DIR"] = tempfile.mkdtemp(prefix="gradof-bench-")

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np  # noqa: E402
from loop_c import c_side  # noqa: E402
from loop_programs import ROWS, Row  # noqa: E402
from tables import geometric_mean, markdown, number, shown, turns  # noqa: E402

import gradof  # noqa: E402

DOCS = Path(__file__).parents[1] / "docs" / "performance.md"
BEGIN, END = "<!-- loops -->", "<!-- /loops -->"
Run = Callable[[], Any]


def seconds(run: Run) -> float:
    """The time of the processor that a call takes, over as many as take a few milliseconds."""
    count, spent = 1, 0.0
    while spent < 5e-3:
        start = time.process_time()
        for _ in range(count):
            run()
        spent = time.process_time() - start
        count *= 2
    return spent / (count // 2)


def gradof_side(row: Row) -> tuple[float, Run]:
    """Time to the first gradient, and a call."""
    program = row.program()
    start = time.process_time()
    if program.library == "torch":
        call, arguments = _of_torch(program.loss), program.arguments
    else:
        call, arguments = gradof.value_and_grad(program.loss), program.arguments
    call(*arguments)
    first = time.process_time() - start
    return first, lambda: call(*arguments)


def _of_torch(loss: Callable[..., Any]) -> Callable[..., Any]:
    import torch

    compiled = gradof.differentiate(loss)

    def call(h: Any) -> tuple[Any, Any]:
        value = compiled(h)
        return value.detach(), torch.autograd.grad(value, h)[0]

    return call


def jax_side(row: Row) -> tuple[float, Run] | None:
    """The same of the scan."""
    if importlib.util.find_spec("jax") is None:
        return None
    import jax

    jax.config.update("jax_enable_x64", True)
    from loop_scans import SCANS

    if row.name not in SCANS:
        return None
    arrays = [jax.numpy.asarray(_numpy(a)) for a in row.program().arguments]
    scan = SCANS[row.name](row.steps)
    start = time.process_time()
    call = jax.jit(jax.value_and_grad(scan))
    jax.block_until_ready(call(*arrays))
    first = time.process_time() - start
    return first, lambda: jax.block_until_ready(call(*arrays))


def _numpy(array: Any) -> Any:
    return array.detach().numpy() if hasattr(array, "detach") else array


def check(row: Row, run: Run, other: Run | None) -> None:
    """Our gradient is that of JAX, or of central differences along a line."""
    value, ours = map(_numpy, run())
    if other is not None:
        loose = 1e-3 if ours.dtype == np.float32 else 1e-6
        for a, b in zip((value, ours), other(), strict=True):
            np.testing.assert_allclose(a, b, rtol=loose, atol=1e-2 * loose)
        return
    program, step = row.program(), 1e-6
    first, *rest = program.arguments
    line = np.random.default_rng(0).standard_normal(np.shape(first))
    if program.library == "torch":
        return  # the tests hold it to eager
    above, below = (float(program.loss(first + by * line, *rest)) for by in (step, -step))
    want = (above - below) / (2 * step)
    np.testing.assert_allclose(float(np.sum(ours * line)), want, rtol=1e-4, atol=1e-5)


@dataclass
class Measured:
    """A row of the table; nan where a side is not there."""

    title: str
    first: float
    jax_first: float
    calls: dict[str, float]

    def ratio(self, other: str) -> float:
        """Our time over theirs."""
        return self.calls["gradof"] / self.calls.get(other, math.nan)


def measure(row: Row, repeats: int) -> Measured:
    """All sides of a program."""
    first, run = gradof_side(row)
    jax, by_hand = jax_side(row), c_side(row)
    check(row, run, jax[1] if jax else None)
    runs = {"gradof": run, **({"jax": jax[1]} if jax else {})}
    if by_hand is not None:
        check(row, run, by_hand)
        runs["c"] = by_hand
    times: dict[str, list[float]] = {name: [] for name in runs}
    for name in turns(runs, repeats):
        times[name].append(seconds(runs[name]))
    calls = {name: min(found) for name, found in times.items()}
    return Measured(row.title, first, jax[0] if jax else math.nan, calls)


def table(found: list[Measured]) -> list[str]:
    """The lines of the table, the worst ratio first."""
    found = sorted(found, key=lambda m: -(m.ratio("jax") if "jax" in m.calls else 0.0))

    def time_of(m: Measured, side: str) -> str:
        return shown(m.calls[side]) if side in m.calls else "-"

    lines = markdown(
        ("program", "call", "JAX's", "ratio", "C's", "ratio", "first gradient", "JAX's"),
        [(m.title, time_of(m, "gradof"), time_of(m, "jax"), number(m.ratio("jax")),
          time_of(m, "c"), number(m.ratio("c")), shown(m.first),
          "-" if math.isnan(m.jax_first) else shown(m.jax_first)) for m in found],
    )  # fmt: skip
    ratios = [m.ratio("jax") for m in found if "jax" in m.calls]
    if ratios:
        lines += ["", f"Geometric mean of the ratios to JAX {geometric_mean(ratios):.2f}, "
                  f"largest {max(ratios):.2f}."]  # fmt: skip
    return lines


def main() -> None:
    """Measure, print, and write where that is asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    found = []
    for row in ROWS:
        if not options.names or any(row.title.startswith(n) for n in options.names):
            found.append(measure(row, options.repeats))
            print(found[-1], flush=True)
    lines = table(found)
    print("\n".join(lines))
    if options.write:
        text = DOCS.read_text(encoding="utf-8")
        head, rest = text.split(BEGIN)
        body = "\n".join(lines)
        DOCS.write_text(f"{head}{BEGIN}\n{body}\n{END}{rest.split(END)[1]}", encoding="utf-8")


if __name__ == "__main__":
    main()
