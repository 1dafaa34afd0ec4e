"""Everything there is to do on a GPU machine: `make gpu`.

    PYTHONPATH=. python3 benchmarks/gpu_session.py [tests] [benchmarks] [sanitizer] [--out FOLDER]

Without names, all three: the tests marked `gpu`; benchmarks/gpu.py; and compute-sanitizer, where it
is installed, over a few small tests. It runs with the machine's own Python, because the torch and
triton that fit a GPU are its owner's choice, and needs pytest beside them. A step that fails does
not keep the next from running; the exit code is 1 at the end. What each step prints is kept in
benchmarks/results/ too.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
NEEDS = ("torch", "triton", "numpy", "sympy", "networkx", "pytest")
STEPS = ("tests", "benchmarks", "sanitizer")
TOOLS = {
    # torch asks the driver questions whose answer is an error; only accesses of memory count here
    "memcheck": ["--report-api-errors", "no"],
    "racecheck": [],
}
SANITIZED = ("tests/benchmarks/test_gpu.py", "-k", "on_the_device")
FOUND = 9  # the exit code of findings


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


def steps(names: Sequence[str], out: Path) -> Iterator[tuple[str, list[str], dict[str, str]]]:
    """(name, command, environment besides ours) of what is to run."""
    python = sys.executable
    if "tests" in names:
        yield "gpu-tests", [python, "-m", "pytest", "-m", "gpu", *gpu_tests()], {}
    if "benchmarks" in names:
        script = str(ROOT / "benchmarks" / "gpu.py")
        yield "gpu-benchmarks", [python, script, "--out", str(out)], {}
    if "sanitizer" in names:
        program = shutil.which("compute-sanitizer")
        if program is None:
            print("make gpu: compute-sanitizer is not installed, nothing was searched for "
                  "bad accesses and races", flush=True)  # fmt: skip
            return
        for tool, options in TOOLS.items():
            checked = [program, "--tool", tool, "--error-exitcode", str(FOUND), *options]
            tests = [python, "-m", "pytest", "-m", "gpu", *SANITIZED]
            # torch's cache of memory would hide an access behind the end of a tensor
            yield f"gpu-{tool}", [*checked, *tests], {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}


def run(name: str, command: Sequence[str], further: dict[str, str], out: Path) -> int:
    """The exit code; what the command prints goes to the terminal and to `name`.txt."""
    print(f"== {name}: {' '.join(command)}", flush=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **further}
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


def main() -> None:
    """Run the steps; SystemExit with one line where nothing can run, or something failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("steps", nargs="*", metavar="STEP", help=f"of {', '.join(STEPS)}; all")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    options = parser.parse_args()
    unknown = [step for step in options.steps if step not in STEPS]
    if unknown:
        parser.error(f"no step is named {', '.join(unknown)}: {', '.join(STEPS)}")
    why = lacking()
    if why is not None:
        raise SystemExit(f"make gpu: {why}")
    out = options.out.resolve()
    codes = {
        name: run(name, command, further, out)
        for name, command, further in steps(options.steps or STEPS, out)
    }
    failed = [f"{name} (exit code {code})" for name, code in codes.items() if code]
    if failed or not codes:
        raise SystemExit(f"make gpu: failed: {', '.join(failed) or 'nothing ran'}")


if __name__ == "__main__":
    main()
