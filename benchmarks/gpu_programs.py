"""Whole programs on a GPU: gradof beside eager, the slowest first.

    python benchmarks/gpu_programs.py [WORD ...] [--workers N] [--out FOLDER] [--minutes M]

The list is that of `programs.py` (networks, every twentieth architecture of transformers, layers of
torch.nn at their largest size) and every fortieth model of timm, where that is installed; every
second of the networks and of timm's models also under `torch.autocast` in bf16. Each is trained for
a step (zero_grad, forward, the mean of the squares, backward), and its gradients are held against
eager's, without TF32.

Workers, each a process, share the list and check side by side. When all are done they time, one
after the other: medians of what a caller waits for a step, the device included, eager and gradof in
turns; and what the device did for one, of the profiler. Ratios are eager / gradof.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import statistics
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]
from programs import make, steps  # noqa: E402

EVERY = 40  # every so manieth model of timm
BATCH = 4  # images for one of timm's
LARGEST = 100_000_000  # parameters; more take long to draw
TURNS, SECONDS = 12, 0.25  # at most, of the timing of one program
CHECKED = 0.45  # of the time, left for timing once no more is checked
LEARNT = 3  # steps before anything is compared or timed
AUTOCAST = " autocast"


def listed() -> list[str]:
    """The names of all programs, by the rule above."""
    import program_nets  # noqa: F401  # it registers its own
    from program_layers import SIZES, layer_names
    from program_models import MODELS
    from programs import STEP

    from tests.models.compare import architectures

    images = [f"timm {name}" for name in _timm_names()[::EVERY]]
    nets = [*MODELS, *images]
    texts = [f"transformers {name}" for name in architectures()[::STEP]]
    layers = [f"{name}, {SIZES[-1]}" for name in layer_names()]
    return [*nets, *(name + AUTOCAST for name in nets[::2]), *texts, *layers]


def _timm_names() -> list[str]:
    try:
        import timm
    except ImportError:
        print("timm is not installed: its models are left out", file=sys.stderr)
        return []
    return list(timm.list_models())


def made(name: str) -> tuple[Any, dict[str, Any]] | str:
    """A model and its inputs on the device, or why there is none."""
    if name.startswith("timm "):
        found: Any = _timm(name.removeprefix("timm "))
    else:
        found = make(name)
    if isinstance(found, str):
        return found
    model, inputs = found
    given = {k: v.detach().cuda() for k, v in inputs.items()}
    if not name.startswith("transformers "):
        for x in given.values():
            x.requires_grad_(x.is_floating_point())
    return model.cuda().train(not name.startswith("transformers ")), given


def _timm(name: str) -> tuple[Any, dict[str, Any]] | str:
    """One of timm's and a batch of the images it is made for."""
    import timm
    import torch

    with torch.device("meta"):
        size = sum(p.numel() for p in timm.create_model(name, num_classes=10).parameters())
    if size > LARGEST:
        return f"{size:,} parameters"
    torch.manual_seed(0)
    model = timm.create_model(name, num_classes=10)
    return model, {"x": torch.randn(BATCH, *model.default_cfg.get("input_size", (3, 224, 224)))}


class Program:
    """One program: its two sides, and the row of what was found."""

    def __init__(self, name: str) -> None:
        self.row: dict[str, Any] = {"name": name}
        self.sides: dict[str, Callable[[], Any]] = {}

    def check(self) -> None:
        """Build both sides and compare their gradients; why not goes into the row."""
        import torch

        import gradof

        name = self.row["name"]
        found = made(name.removesuffix(AUTOCAST))
        if isinstance(found, str):
            self.row["left_out"] = found
            return
        model, inputs = found
        torch.backends.cudnn.allow_tf32 = False
        self.places = [*model.parameters(), *inputs.values()]
        named = name.startswith("transformers ")
        compiled = gradof.differentiate(model)
        self.sides = {side: _under(name, steps(model, call, inputs, named)[0])
                      for side, call in (("eager", model), ("gradof", compiled))}  # fmt: skip
        self.gradients("eager")
        start = time.perf_counter()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            self.gradients("gradof")
            self.row["first"] = time.perf_counter() - start
            for _ in range(LEARNT):
                mine = self.gradients("gradof")
        self.row["said"] = [str(w.message)[:300] for w in said if "gradof" in str(w.category)]
        info = compiled.cache_info()
        self.row["runs"] = [info.forward_runs, info.backward_runs]
        eager, again = self.gradients("eager"), self.gradients("eager")
        self.row["apart"], self.row["eagers"] = _apart(mine, eager), _apart(again, eager)
        torch.cuda.synchronize()

    def gradients(self, side: str) -> list[Any]:
        """Those of a step from one state of the generator."""
        import torch

        torch.manual_seed(11)
        self.sides[side]()
        found = [None if p.grad is None else p.grad.clone() for p in self.places]
        torch.cuda.synchronize()
        return found

    def time(self) -> None:
        """Medians of a step in turns, and what the device did in one; TF32 as torch has it."""
        import torch

        torch.backends.cudnn.allow_tf32 = True
        times: dict[str, list[float]] = {side: [] for side in self.sides}
        until = time.perf_counter() + SECONDS
        order = list(self.sides)
        while len(times["eager"]) < TURNS and (
            time.perf_counter() < until or len(times["eager"]) < 5
        ):
            order.reverse()
            for side in order:
                times[side].append(_waited(self.sides[side]))
        self.row["times"] = {side: statistics.median(found) for side, found in times.items()}
        self.row["device"] = {side: _device(step) for side, step in self.sides.items()}


def _under(name: str, step: Callable[[], Any]) -> Callable[[], Any]:
    import torch

    if not name.endswith(AUTOCAST):
        return step

    def run() -> Any:
        with torch.autocast("cuda", torch.bfloat16):
            return step()

    return run


def _waited(step: Callable[[], Any]) -> float:
    import torch

    torch.cuda.synchronize()
    start = time.perf_counter()
    kept = step()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    del kept
    return seconds


def _device(step: Callable[[], Any]) -> dict[str, Any]:
    """Seconds and launches of the device in a step, and the five kernels that took the most."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as found:
        step()
        torch.cuda.synchronize()
    events = [(e.self_device_time_total / 1e6, e.count, e.key[:60]) for e in found.key_averages()
              if e.self_device_time_total]  # fmt: skip
    return {"seconds": sum(s for s, _, _ in events), "launches": sum(c for _, c, _ in events),
            "most": sorted(events, reverse=True)[:5]}  # fmt: skip


def _apart(mine: list[Any], others: list[Any]) -> float:
    """The norm of the difference of all gradients, in parts of their norm; inf where one lacks."""
    import torch

    off, size = 0.0, 0.0
    for a, b in zip(mine, others, strict=True):
        if (a is None) != (b is None):
            return float("inf")
        if a is not None:
            off += float((a.double() - b.double()).square().sum())
            size += float(torch.linalg.vector_norm(b.double())) ** 2
    return (off / size) ** 0.5 if size else off**0.5


def worker(
    names: list[str], out: Path, index: int, count: int, until: float, after: Path | None
) -> None:
    """Check the programs that nobody has taken, then time one's own when nobody else does."""
    kept, begun = [], time.time()
    with contextlib.ExitStack() as stack:
        log = stack.enter_context((out / f"rows.{index}").open("w"))
        for name in names[index::count]:
            program = Program(name)
            try:
                program.check()
            except Exception as error:  # a program that does not run is a row
                program.row["error"] = f"{type(error).__name__}: {str(error)[:400]}"
                program.row["trace"] = traceback.format_exc()[-1500:]
                program.sides = {}
            kept.append(program)
            _write(log, [program])
            if time.time() > until - CHECKED * (until - begun):
                break
        lock = stack.enter_context((out / "lock").open("w"))
        _wait_for_all(out, index, count, after)
        fcntl.flock(lock, fcntl.LOCK_EX)
        for program in kept:
            if program.sides and time.time() < until:
                try:
                    program.time()
                except Exception as error:
                    program.row["error"] = f"timing: {type(error).__name__}: {str(error)[:400]}"
        _write(log, kept)


def _wait_for_all(out: Path, index: int, count: int, after: Path | None) -> None:
    (out / f"checked.{index}").touch()
    while len(list(out.glob("checked.*"))) < count or (after is not None and not after.exists()):
        time.sleep(0.05)


def _write(log: Any, programs: list[Program]) -> None:
    for program in programs:
        log.write(json.dumps(program.row) + "\n")
    log.flush()


def fork(names: list[str], workers: int, out: Path, until: float, after: Path | None) -> None:
    """Run the workers to their ends."""
    children = []
    for index in range(workers):
        pid = os.fork()
        if not pid:
            try:
                text = os.open(out / f"log.{index}", os.O_WRONLY | os.O_CREAT)
                os.dup2(text, 1)
                os.dup2(text, 2)
                worker(names, out, index, workers, until, after)
            except BaseException:
                traceback.print_exc()
            finally:
                (out / f"checked.{index}").touch()
                sys.stderr.flush()
                os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)


def rows(out: Path) -> Iterator[dict[str, Any]]:
    """The last row of each program."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(out.glob("rows.*")):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            found[row["name"]] = row
    yield from found.values()


def report(found: list[dict[str, Any]]) -> Iterator[str]:
    """The table as text, the slowest first, then what was not timed."""
    timed = [r for r in found if "device" in r]
    ratio = {r["name"]: r["times"]["eager"] / r["times"]["gradof"] for r in timed}
    yield "eager/gradof  device  launches  eager ms  first s  apart (eager's)  runs  name"
    for r in sorted(timed, key=lambda r: ratio[r["name"]]):
        e, g = r["device"]["eager"], r["device"]["gradof"]
        yield (f"{ratio[r['name']]:6.2f} {e['seconds'] / max(g['seconds'], 1e-9):6.2f} "
               f"{e['launches']:5d}/{g['launches']:<5d} {r['times']['eager'] * 1e3:7.2f} "
               f"{r['first']:6.2f} {r['apart']:.0e} ({r['eagers']:.0e}) {r['runs']} "
               f"{r['name']}{' SAID ' + r['said'][0] if r['said'] else ''}")  # fmt: skip
    for kind, text in (("host", list(ratio.values())),
                       ("device", [r["device"]["eager"]["seconds"] /
                                   max(r["device"]["gradof"]["seconds"], 1e-9) for r in timed])):
        if text:
            yield f"{kind}: geometric mean {statistics.geometric_mean(text):.3f} of {len(text)}"
    for r in found:
        if "device" not in r:
            yield f"not timed: {r['name']}: {r.get('left_out') or r.get('error') or 'no time'}"


def main() -> None:
    """Run, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--layers", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "gpu-programs")
    parser.add_argument("--minutes", type=float, default=4.0, help="no program begins later")
    parser.add_argument("--after", type=Path, help="timing begins once this file is there")
    args = parser.parse_args()
    os.environ["TRANSFORMERS_VERBOSITY"], os.environ["HF_HUB_OFFLINE"] = "error", "1"
    warnings.simplefilter("ignore")
    args.out.mkdir(parents=True, exist_ok=True)
    for path in (*args.out.glob("checked.*"), *args.out.glob("rows.*")):
        path.unlink()  # an earlier run's
    names = [n for n in listed() if args.layers or ", " not in n]
    names = [n for n in names if not args.words or any(w in n for w in args.words)]
    import transformers.modeling_utils
    import transformers.models.llama.modeling_llama  # noqa: F401

    import gradof  # noqa: F401

    fork(names, min(args.workers, len(names)), args.out, time.time() + 60 * args.minutes,
         args.after)
    text = "\n".join(report(list(rows(args.out))))
    (args.out / "table.txt").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
