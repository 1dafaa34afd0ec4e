"""Whole programs that nobody tuned for: gradof beside eager, the slowest first.

    python benchmarks/programs.py                   every one; --write puts it into the docs
    python benchmarks/programs.py resnet "LSTM"     those whose names have these words
    python benchmarks/programs.py --further         those added later by the same rule (see below)

*The list* is fixed by rule, in `listed()`: the networks of `program_models` and `program_nets`;
every twentieth architecture of transformers' AutoModel, made small as `tests/models` does (those
that eager itself does not run are left out, and told); every layer of torch.nn that takes tensors,
at three sizes. `--further` are ten architectures half way between.

Each program runs in a process of its own, eager and gradof in turns: a training step (zero_grad,
forward, the mean of the squares, backward), and inference under no_grad. The ratio is that of the
medians; on one thread, of the thread's own time. Gradients are compared before anything is timed.
Steps run until gradof has decided whose code runs the calls, its own or torch's as it is
(`gradof.runtime.trial`), which the table tells. The first gradient starts without compiled kernels;
peak memory is what a later step holds beyond what was there.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import statistics
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]
STEP, BETWEEN = 20, 10  # every STEP-th architecture; --further begins BETWEEN
LIMIT = 240  # seconds of processor time of one program
LEARNT = 32  # steps before the clock starts, at most: until it is decided whose code runs


def listed(further: bool = False) -> list[str]:
    """The names of all programs, by the rule above."""
    from tests.models.compare import architectures

    if further:
        return [f"transformers {n}" for n in architectures()[BETWEEN::STEP]][:10]
    import program_nets  # noqa: F401  # it registers its own
    from program_layers import layers
    from program_models import MODELS

    return [*MODELS, *(f"transformers {n}" for n in architectures()[::STEP]), *layers()]


def make(name: str) -> tuple[Any, dict[str, Any]] | str:
    """A model and its inputs, or why there is none."""
    import torch

    torch.manual_seed(0)
    if name.startswith("transformers "):
        from tests.models.compare import Outcome, _runnable

        outcome = Outcome(name)
        found = _runnable(name.removeprefix("transformers "), outcome)
        return outcome.reason if found is None else found
    if ", " in name:
        from program_layers import make_layer

        return make_layer(name)
    import program_nets  # noqa: F401
    from program_models import MODELS

    return MODELS[name]()


def steps(
    model: Any, call: Any, inputs: dict[str, Any], by_name: bool
) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """A training step and an inference, of the model or of what calls it."""
    import torch

    from tests.models.compare import tensors

    def run() -> Any:
        return call(**inputs) if by_name else call(*inputs.values())

    def train() -> Any:
        model.zero_grad(set_to_none=True)
        for given in inputs.values():
            given.grad = None
        terms = [v.float().square().mean() for _, v in tensors(run())
                 if v.requires_grad and v.is_floating_point()]  # fmt: skip
        loss = terms[0] if len(terms) == 1 else torch.stack(terms).sum()
        loss.backward()
        return loss

    def infer() -> Any:
        with torch.no_grad():
            return run()

    return train, infer


def measure(name: str, seconds: float) -> dict[str, Any]:
    """The row of one program; it runs in a process of its own."""
    import torch

    import gradof

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    made = make(name)
    if isinstance(made, str):
        return {"name": name, "left_out": made}
    model, inputs = made
    if not name.startswith("transformers "):
        for given in inputs.values():
            given.requires_grad_(given.is_floating_point())
    model.train(not name.startswith("transformers "))
    compiled = gradof.differentiate(model)
    named = name.startswith("transformers ")
    sides = {side: steps(model, call, inputs, named)
             for side, call in (("eager", model), ("gradof", compiled))}  # fmt: skip
    row: dict[str, Any] = {"name": name}
    sides["eager"][0]()
    start = time.perf_counter()
    torch.manual_seed(7)
    sides["gradof"][0]()
    row["first"] = time.perf_counter() - start
    row["equal"] = _equal(sides, model, inputs)
    row["train_runs"] = _learn(compiled, [train for train, _infer in sides.values()])
    row["backward_runs"] = compiled.cache_info().backward_runs
    row["train"] = _turns({k: v[0] for k, v in sides.items()}, seconds)
    row["memory"] = _peaks({k: v[0] for k, v in sides.items()})
    model.eval()
    row["infer_runs"] = _learn(compiled, [infer for _train, infer in sides.values()])
    row["infer"] = _turns({k: v[1] for k, v in sides.items()}, seconds)
    return row


def _learn(compiled: Any, calls: list[Callable[[], Any]]) -> str:
    """Call in turns until it is decided whose code runs: `ours` or `eager`."""
    for _ in range(LEARNT):
        for call in calls:
            call()
        last = compiled.forward.cache.last
        trial = None if last is None else last[1].trial
        if trial is not None and trial.verdict is not None:
            return "eager" if trial.verdict.is_eager else "ours"
    return "ours"


def _equal(sides: Any, model: Any, inputs: dict[str, Any]) -> float:
    """The largest difference of a gradient, in parts of its largest element.

    Where all of a gradient is rounding, as that of a bias behind which a norm is, it has none.
    """
    import torch

    found = {}
    for side, (train, _) in sides.items():
        torch.manual_seed(11)
        train()
        places = [*model.parameters(), *inputs.values()]
        found[side] = [None if p.grad is None else p.grad.clone() for p in places]
    largest = max((float(g.abs().max()) for g in found["eager"] if g is not None and g.numel()),
                  default=0.0)  # fmt: skip
    worst = 0.0
    for mine, other in zip(found["gradof"], found["eager"], strict=True):
        if (mine is None) != (other is None):
            return float("inf")
        if mine is not None and mine.numel():
            size = max(float(other.abs().max()), 1e-3 * largest) or 1.0
            error = float((mine - other).abs().max()) / size
            worst = worst if error <= worst else error  # nan is the worst
    return worst


def _turns(sides: dict[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """Medians, in turns."""
    import torch

    # on one thread its own time: others may have the core meanwhile
    now = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    found: dict[str, list[float]] = {side: [] for side in sides}
    until = time.perf_counter() + seconds
    order = list(sides)
    while time.perf_counter() < until or len(found["eager"]) < 5:
        order.reverse()
        for side in order:
            start = now()
            kept = sides[side]()
            found[side].append(now() - start)
            del kept
        if len(found["eager"]) >= 300:
            break
    return {side: statistics.median(times) for side, times in found.items()}


def _peaks(sides: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Medians, in turns: one step may find room in pages that malloc has kept, or none."""
    peaks = [{side: _peak(step) for side, step in sides.items()} for _ in range(5)]
    return {side: statistics.median(p[side] for p in peaks) for side in sides}


def _peak(step: Callable[[], Any]) -> int:
    """Bytes that a step holds at most, beyond what was held before."""
    from fresh import _status

    import gradof

    gradof.release_memory()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    kept = step()
    assert kept is not None
    return _status("VmHWM") - before


def run(names: list[str], seconds: float) -> Iterator[dict[str, Any]]:
    """A row for each program, from a fork of this process each."""
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "row")
            sys.stdout.flush()
            pid = os.fork()
            if not pid:
                _child(name, seconds, path)
            os.waitpid(pid, 0)
            log = path.with_suffix(".log").read_text().splitlines()
            text = path.read_text() if path.exists() else ""
        yield json.loads(text) if text else {"name": name, "error": log[-1] if log else "killed"}


def _child(name: str, seconds: float, path: Path) -> None:
    code = 1
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT))
        os.environ["GRADOF_CACHE_DIR"] = f"{path}.cache"
        from gradof.codegen.machine.object_cache import object_cache

        object_cache.cache_clear()  # the parent's, with what earlier runs have kept
        log = os.open(path.with_suffix(".log"), os.O_WRONLY | os.O_CREAT)
        os.dup2(log, 1)
        os.dup2(log, 2)
        warnings.simplefilter("ignore")
        path.write_text(json.dumps(measure(name, seconds)))
        code = 0
    except BaseException:  # the last line of the log is the row's reason
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _prepare() -> None:
    """What every child needs, imported once; gradof's own first use is not the program's time."""
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch

    torch.set_num_threads(1)  # no thread of this process may be lost in a fork
    import transformers.modeling_utils
    import transformers.models.llama.modeling_llama  # noqa: F401

    from tests.models import compare

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compare._warm_up()


def main() -> None:
    """Run, print, and write where it is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--seconds", type=float, default=0.15, help="of each half of a program")
    parser.add_argument("--further", action="store_true")
    parser.add_argument("--layers", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--out", type=Path, help="rows as lines of JSON")
    parser.add_argument("--read", type=Path, help="rows of --out, instead of a run")
    parser.add_argument("--write", action="store_true", help="into docs/performance.md")
    args = parser.parse_args()
    if args.read is None:
        _prepare()
    names = [n for n in listed(args.further) if args.layers or ", " not in n or n.startswith("tr")]
    if args.words:
        names = [n for n in names if any(w in n for w in args.words)]
    from program_report import Report

    report = Report()
    found = run(names, args.seconds) if args.read is None else (
        json.loads(line) for line in args.read.read_text().splitlines())  # fmt: skip
    with open(args.out or os.devnull, "w") as out:
        for row in found:
            report.add(row)
            out.write(json.dumps(row) + "\n")
            out.flush()
    report.show()
    if args.write:
        report.write(ROOT / "docs" / "performance.md")


if __name__ == "__main__":
    main()
