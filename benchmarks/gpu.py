"""f and df on a GPU: gradof beside torch eager and torch.compile.

    python benchmarks/gpu.py [--only NAME,NAME] [--first yes|no|only] [--quick] [--out FOLDER]
    python benchmarks/gpu.py --dry-run [--out FOLDER]    without a GPU: does all of it run?
    python benchmarks/gpu.py --merge PART.json PART.json --out FOLDER

First the gradients of each workload are judged by float64, and it is asked whether gradof's own
kernels made them; what is wrong is not timed, and the exit code is 1. Then all sides run in this
process, in turns of random order, the L2 cache flushed before each run, timed by CUDA events:
forward, backward, both together (`gpu_timing`). Bytes per second are those that must be moved
(`gpu_workloads`), beside a copy measured before and after. The first gradient is measured in a
process of its own for each side (`gpu_first`). Results are written after each workload, as JSON
and Markdown. It needs torch, triton, numpy, sympy and networkx, and no display.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from gpu_check import Case, judge, kernels, make_case, not_ours, results, wrong
from gpu_commit import commit
from gpu_first import compiled, first
from gpu_profile import profiled
from gpu_report import NO_GPU, SIDES, Report, Row
from gpu_timing import Clock, CudaClock, HostClock, Step, copy_bandwidth, medians
from gpu_workloads import DTYPES, GpuWorkload, label, selected

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"


class Bench:
    """How this run measures: on which device, by which clock, how often."""

    def __init__(self, dry: bool, first: str, repeats: int, chosen: Sequence[str] = SIDES) -> None:
        self.dry, self.first, self.repeats, self.chosen = dry, first, repeats, chosen
        self.device = "cpu" if dry else "cuda"
        self.clock: Clock = HostClock() if dry else CudaClock()

    def copy(self) -> float:
        """The bandwidth of a copy, now."""
        return copy_bandwidth(self.clock, self.device, self.repeats)

    def row(self, w: GpuWorkload, size: tuple[int, ...], dtype: str, with_first: bool) -> Row:
        """Everything about one case. What fails is noted, and the run goes on."""
        row = Row(w.name, label(size), dtype, w.products, w.judged, {}, {})
        try:
            self.measure(make_case(w, size, DTYPES[dtype], self.device), row)
        except Exception as error:  # the other workloads are still measured
            traceback.print_exc()
            row.failed.append(f"{type(error).__name__}: {str(error).strip()[:200]}")
        if self.device == "cuda":
            torch.cuda.empty_cache()  # for the fresh processes
        if with_first and self.first != "no":
            for side in self.sides(row):
                seconds = first(side, w.name, dtype, self.device)
                if seconds is None:
                    row.left_out[side] = "no first gradient, see the output"
                else:
                    row.first[side] = seconds
        return row

    def measure(self, case: Case, row: Row) -> None:
        """Judge and time a case, unless only first gradients are wanted."""
        row.formulas = case.workload.formulas(case.args)
        row.nbytes = case.workload.nbytes(case.args, case.cotangents)
        if self.first != "only":
            fns = self.checked(case, row)
            if not row.failed:
                self.timed(case, fns, row)

    def sides(self, row: Row) -> list[str]:
        """Those that were chosen and can run here; a dry run has no torch.compile."""
        row.left_out |= {side: "not chosen" for side in SIDES if side not in self.chosen}
        if self.dry:
            row.left_out["torch.compile"] = "dry run"
        return [side for side in SIDES if side not in row.left_out]

    def checked(self, case: Case, row: Row) -> dict[str, Callable[..., Any]]:
        """The functions of the sides that are right; gradof's failures go to `row.failed`."""
        fns, eager = {}, results(case, case.workload.fn)
        for side in self.sides(row):
            if side == "torch.compile":
                torch.compiler.reset()  # or sizes become symbols once a function has seen several
            fn = fns[side] = compiled(side, case.workload.fn)
            try:
                # a second call may take another way than the first
                judged = [judge(case, results(case, fn), eager) for _ in range(2)]
            except Exception as error:
                if side != "torch.compile":
                    raise
                del fns[side]
                row.left_out[side] = f"{type(error).__name__}: {str(error)[:200]}"
                continue
            bad = [text for found in judged for text in wrong(found)]
            if side == "gradof":
                row.errors = {k: [*v] for k, v in judged[-1].items()}
                row.kernels = kernels(fn)
                why = not_ours(fn, case)
                row.failed += bad + ([why] if why else [])
            elif bad:
                del fns[side]
                row.left_out[side] = f"wrong: {bad[0]}"
        return fns

    def timed(self, case: Case, fns: dict[str, Callable[..., Any]], row: Row) -> None:
        """Medians of each pass."""
        for which, steps in passes(case, fns).items():
            if not self.dry and which != "together":
                row.launches[which] = [asdict(launch) for launch in profiled(steps["gradof"])]
            found = medians(steps, self.clock, self.repeats)
            row.device[which] = {side: s.device for side, s in found.items()}
            row.host[which] = {side: s.host for side, s in found.items()}


def passes(case: Case, fns: dict[str, Callable[..., Any]]) -> dict[str, dict[str, Step]]:
    """What each pass prepares untimed and then runs, by side."""
    made: dict[str, dict[str, Step]] = {"forward": {}, "backward": {}, "together": {}}
    for side, fn in fns.items():
        def forward(_: Any = None, fn: Any = fn) -> Any:
            return case.forward(fn)

        made["forward"][side] = (lambda: None), forward
        made["backward"][side] = forward, case.backward
        made["together"][side] = (lambda: None), lambda _, f=forward: case.backward(f())
    return made


def environment(dry: bool) -> dict[str, str]:
    """The versions of everything a figure depends on."""
    import triton

    found = {
        "python": platform.python_version(), "torch": torch.__version__,
        "triton": triton.__version__, "CUDA": str(torch.version.cuda), "gradof": commit(),
        "measured": time.strftime("%Y-%m-%d", time.gmtime()),
    }  # fmt: skip
    if dry:
        return {"device": "no GPU: CPU, triton's interpreter", "driver": "none", **found}
    p = torch.cuda.get_device_properties("cuda")
    device = f"{p.name}, sm_{p.major}{p.minor}, {p.multi_processor_count} multiprocessors"
    memory = f"{p.total_memory / 2**30:.0f} GiB, L2 {p.L2_cache_size / 2**20:.0f} MiB"
    return {"device": device, "memory": memory, "driver": driver(), **found}


def driver() -> str:
    """The version nvidia-smi tells."""
    if shutil.which("nvidia-smi") is None:
        return "unknown: no nvidia-smi"
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip().splitlines()[0] if done.stdout.strip() else "unknown"


def interpret() -> None:
    """Kernels of CPU tensors run in triton's interpreter from here on."""
    if "triton" in sys.modules:
        raise SystemExit("gpu.py --dry-run: triton is imported already, the interpreter comes late")
    os.environ.update(GRADOF_BACKEND="triton", TRITON_INTERPRET="1")


def needs_cuda() -> None:
    """SystemExit, with one line, where no GPU can be measured."""
    if not torch.cuda.is_available():
        raise SystemExit("gpu.py: torch sees no CUDA device; --dry-run runs it without one")
    if os.environ.get("TRITON_INTERPRET") == "1":
        raise SystemExit("gpu.py: TRITON_INTERPRET=1 is set, kernels would not run on the GPU")


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dry-run", action="store_true", help="tiny, on a CPU; no GPU figures")
    parser.add_argument("--only", default="", help="workloads whose names contain one of these")
    first_help = "time to the first gradient too, or not, or only that (a dry run: no)"
    parser.add_argument("--first", choices=("yes", "no", "only"), help=first_help)
    quick_help = "one size of each in bf16, 30 turns, no first gradients"
    parser.add_argument("--quick", action="store_true", help=quick_help)
    sides_help = "with gradof, beside which it is measured: eager,torch.compile"
    parser.add_argument("--sides", default=",".join(SIDES[1:]), help=sides_help)
    parser.add_argument("--repeats", type=int, help="most turns of a side (100; a dry run: 2)")
    parser.add_argument("--out", type=Path, help="folder of the results (benchmarks/results)")
    parser.add_argument("--merge", type=Path, nargs="+", help="results of parts, to be made one")
    return parser.parse_args()


def run(options: argparse.Namespace, out: Path | None) -> Report:
    """Measure, and write after each workload."""
    dry = options.dry_run
    first, repeats = ("no", 2) if dry else ("no", 30) if options.quick else ("yes", 100)
    chosen = [SIDES[0], *filter(None, options.sides.split(","))]
    if not set(chosen) <= set(SIDES):
        raise SystemExit(f"gpu.py: --sides has {options.sides}; there are {', '.join(SIDES[1:])}")
    bench = Bench(dry, options.first or first, options.repeats or repeats, chosen)
    report = Report(environment(dry), gpu=not dry, copies=[bench.copy()])
    name = slug(report)
    for w in selected(options.only):
        cases = [(s, d) for s in (w.tiny[:1] if dry else w.sizes) for d in w.dtypes]
        for case in cases[:1] if bench.first == "only" or options.quick else cases:
            row = bench.row(w, *case, with_first=case == cases[0])
            report.rows.append(row)
            print(f"{row.name}: {'; '.join(row.failed) or 'right'}", flush=True)
        if out is not None:
            report.write(out, name)
    report.copies.append(bench.copy())
    return report


def slug(report: Report) -> str:
    """The name of the results' files: the device's."""
    device = report.environment["device"].split(",")[0] if report.gpu else "dry run"
    return re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")


def main() -> None:
    """Measure, print, write; exit code 1 where a gradient is wrong or not ours."""
    options = parsed()
    out = options.out or (None if options.dry_run else RESULTS)
    warnings.simplefilter("ignore")
    if options.merge:
        report = Report.merged([Report.read(path) for path in options.merge])
    else:
        if options.dry_run:
            interpret()
            print(NO_GPU, flush=True)
        else:
            needs_cuda()
        report = run(options, out)
    if out is not None:
        report.write(out, slug(report))
    print(report.text())
    if not report.gpu:
        print(NO_GPU)
    if report.failures:
        raise SystemExit(f"{len(report.failures)} failures: {report.failures[0]}")


if __name__ == "__main__":
    main()
