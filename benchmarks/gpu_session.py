"""Everything there is to do on a GPU machine: `make gpu`, in steps of under ten minutes each.

    PYTHONPATH=. python3 benchmarks/gpu_session.py [STEP ...] [--out FOLDER] [--workers N]

quick       one size of each workload in bf16, few turns: what is wrong, and what is slow
tests       the tests marked `gpu`, many at once
memory      all sizes and dtypes of the workloads that memory bounds, softmax to group norm
rest        those of the other workloads
first       the first gradient of each workload in a fresh process
sanitizer   compute-sanitizer, where it is installed, over every workload cut small

Without names, all of them in this order. It runs with the machine's own Python, because the torch
and triton that fit a GPU are its owner's choice, and needs pytest beside them. Each step leaves
what it printed and found in a folder of its own under --out; a step that has been done there with
this commit is not done again, so that a session that was cut off goes on where it was. At the end
`memory`, `rest` and `first` are merged into one report. A step that fails does not keep the next
from running; the exit code is 1 at the end.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpu_commit import commit

ROOT = Path(__file__).parents[1]
NEEDS = ("torch", "triton", "numpy", "sympy", "networkx", "pytest")
MEMORY = "norm,softmax,cross-entropy,bias-gelu"
REST = "swiglu,rope,attention,Adam,Black-Scholes,MLP,transformer"
MERGED = ("memory", "rest", "first")
TOOLS = {
    # torch asks the driver questions whose answer is an error; only accesses of memory count here
    "memcheck": ["--report-api-errors", "no"],
    "racecheck": [],
}
SANITIZED = ("tests/benchmarks/test_gpu.py", "-k", "on_the_device")
FOUND = 9  # the exit code of findings
DONE = "done.json"


@dataclass(frozen=True)
class Step:
    """One step: the commands it runs, by the names of their logs, with what they add to the
    environment; the arguments are the folder for results and the number of workers."""

    name: str
    commands: tuple[tuple[str, list[str]], ...]
    environment: dict[str, str] = field(default_factory=dict)


def steps(out: Path, workers: int) -> list[Step]:
    """All steps in order; the results of each go to a folder of its name below `out`."""
    script = [sys.executable, str(ROOT / "benchmarks" / "gpu.py")]

    def measured(name: str, *options: str) -> Step:
        return Step(name, ((name, [*script, *options, "--out", str(out / name)]),))

    pytest = [sys.executable, "-m", "pytest", "-m", "gpu", "-p", "no:cacheprovider"]
    return [
        measured("quick", "--quick"),
        Step("tests", (("tests", [*pytest, *_at_once(workers), *gpu_tests()]),),
             {"OMP_NUM_THREADS": "1"}),
        measured("memory", "--first", "no", "--only", MEMORY),
        measured("rest", "--first", "no", "--only", REST),
        measured("first", "--first", "only"),
        # torch's cache of memory would hide an access behind the end of a tensor
        Step("sanitizer", _sanitized(pytest), {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}),
    ]  # fmt: skip


def _at_once(workers: int) -> list[str]:
    """pytest's options: going on after a file that cannot be read, many tests at once."""
    options = ["--continue-on-collection-errors", "--tb=short", "-q", "-rfE"]
    if importlib.util.find_spec("pytest_benchmark") is not None:
        options += ["-p", "no:benchmark"]  # it warns of workers, and a warning is an error
    if importlib.util.find_spec("xdist") is None or workers == 1:
        return options
    return [*options, "-n", str(workers)]


def _sanitized(pytest: list[str]) -> tuple[tuple[str, list[str]], ...]:
    program = shutil.which("compute-sanitizer")
    if program is None:
        return ()
    return tuple(
        (tool, [program, "--tool", tool, "--error-exitcode", str(FOUND), *options,
                *pytest, *SANITIZED])
        for tool, options in TOOLS.items()
    )  # fmt: skip


STEPS = ("quick", "tests", "memory", "rest", "first", "sanitizer")


def lacking() -> str | None:
    """Why nothing can run here, in one line; None if it can."""
    missing = [name for name in NEEDS if importlib.util.find_spec(name) is None]
    if missing:
        return f"{sys.executable} has no {', '.join(missing)}"
    import torch

    return None if torch.cuda.is_available() else "torch sees no CUDA device"


def gpu_tests() -> list[str]:
    """The files that hold tests for a GPU: others may need packages that are not there."""
    found = (p for p in sorted((ROOT / "tests").rglob("*.py")) if "mark.gpu" in p.read_text())
    return [str(p.relative_to(ROOT)) for p in found]


def run(name: str, command: Sequence[str], further: dict[str, str], out: Path) -> int:
    """The exit code; what the command prints goes to the terminal and to `name`.txt."""
    print(f"== {name}: {' '.join(command)}", flush=True)
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONUNBUFFERED": "1", **further}
    out.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )  # fmt: skip
    with process, (out / f"{name}.txt").open("w") as log:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            log.write(line)
        code = process.wait()
        last = f"== {name}: exit code {code} after {time.perf_counter() - start:.0f} s"
        print(last, flush=True)
        log.write(last + "\n")
    return code


def done(step: Step, out: Path) -> dict[str, int] | None:
    """The exit codes of a step that has run to its end in this folder, with this commit."""
    note = out / step.name / DONE
    found = json.loads(note.read_text()) if note.exists() else {}
    codes: dict[str, int] | None = found.get("codes") if found.get("commit") == commit() else None
    return codes


def do(step: Step, out: Path) -> dict[str, int]:
    """Run a step's commands, and note that they ran to their ends."""
    if not step.commands:
        print("make gpu: compute-sanitizer is not installed, nothing was searched for "
              "bad accesses and races", flush=True)  # fmt: skip
    codes = {name: run(name, c, step.environment, out / step.name) for name, c in step.commands}
    if codes:
        (out / step.name / DONE).write_text(json.dumps({"commit": commit(), "codes": codes}) + "\n")
    return codes


def merge(out: Path) -> int:
    """One report of what has been measured; 0 where there is nothing."""
    parts = sorted(str(p) for name in MERGED for p in (out / name).glob("*.json") if p.name != DONE)
    if not parts:
        return 0
    script = str(ROOT / "benchmarks" / "gpu.py")
    return run("merged", [sys.executable, script, "--merge", *parts, "--out", str(out)], {}, out)


def main() -> None:
    """Run the steps; SystemExit with one line where nothing can run, or something failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("steps", nargs="*", metavar="STEP", help=f"of {', '.join(STEPS)}; all")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "gpu", help="build/gpu")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="tests at once")
    parser.add_argument("--again", action="store_true", help="also what has been done")
    options = parser.parse_args()
    unknown = [step for step in options.steps if step not in STEPS]
    if unknown:
        parser.error(f"no step is named {', '.join(unknown)}: {', '.join(STEPS)}")
    why = lacking()
    if why is not None:
        raise SystemExit(f"make gpu: {why}")
    out, codes = options.out.resolve(), dict[str, int]()
    for step in steps(out, options.workers):
        if options.steps and step.name not in options.steps:
            continue
        before = None if options.again else done(step, out)
        if before is not None:
            print(f"== {step.name}: done before, see {out / step.name}; --again does it once more")
        codes |= do(step, out) if before is None else before
    codes["merged"] = merge(out)
    failed = [f"{name} (exit code {code})" for name, code in codes.items() if code]
    if failed:
        raise SystemExit(f"make gpu: failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
