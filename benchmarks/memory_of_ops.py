"""Peak memory of every op beside eager's: `python benchmarks/memory_of_ops.py [FROM [STEP]]`.

Ops are the forms of the fuzzer (`gradof.testing.fuzz`): each alone, on float32 arrays of 5 000 and
50 000 elements, value, gradient and second gradient, the first call with its trace included. The
peak is that of the process (VmHWM), from where it was before. Prints a table, by what is above
eager; exit code 1 if one is above FACTOR times eager's and SLACK.
"""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

FACTOR, SLACK = 4.0, 64.0  # MB
SIZES = (5_000, 50_000)
_ROOM = 6 << 30  # bytes that an op may take before it is stopped


def forms() -> list[Any]:
    """Every form of an op that is no change in place and no control flow."""
    from gradof.testing.fuzz import torch_forms, torch_tables

    groups = (torch_forms.VIEWS, torch_forms.ARITHMETIC, torch_forms.SELECTING,
              torch_forms.REDUCING, torch_forms.PRODUCTS, torch_tables.elementwise())  # fmt: skip
    return [form for group in groups for form in group]


def program(form: Any, n: int) -> Any:
    """A program of one form over arrays of about n elements; None where it cannot be drawn."""
    from gradof.testing.fuzz.draw import Draw
    from gradof.testing.fuzz.program import Setting
    from gradof.testing.fuzz.torch_tables import squashed
    from gradof.testing.fuzz.torch_world import TorchWorld

    for seed in range(6):
        draw = Draw(TorchWorld(), seed, "large")
        draw.main, draw.special = "torch.float32", False
        draw.shape = ((n,), (n // 5, 5), (5, n // 5))[seed % 3]
        if draw.add(form) or (form.squash and draw.add(squashed(form))):
            results = [name for name in draw.live if name[0] == "v"]
            if results:
                return draw.program(Setting(), results)
    return None


def peak(call: Callable[[], Any]) -> float:
    """Megabytes that a call takes at most, beside what was there."""
    gc.collect()
    _trim()
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    call()
    return (_status("VmHWM") - before) / 1024


def _trim() -> None:
    ctypes.CDLL(None).malloc_trim(0)


def _status(what: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what))


def measure(form: Any, n: int) -> tuple[float, float] | None:
    """Megabytes of eager's and of ours; None where the form cannot be drawn, or eager refuses."""
    from gradof import differentiate
    from gradof.runtime.thread import calling_plain
    from gradof.testing.fuzz.torch_runs import derivatives

    made = program(form, n)
    if made is None:
        return None
    fn, order = made.function(), 2

    def eagerly() -> None:
        with calling_plain():
            derivatives(fn, made.arguments(), order, 1)

    while order:
        try:
            eagerly()
            break
        except (RuntimeError, NotImplementedError):  # no such derivative
            order -= 1
    theirs = peak(eagerly)
    compiled = differentiate(fn)
    return theirs, peak(lambda: derivatives(compiled, made.arguments(), order, 1))


def _load() -> None:
    """Have LLVM and what else the first compiled function of a process loads, a hundred MB."""
    import torch

    from gradof import differentiate

    x = torch.ones(SIZES[0], requires_grad=True)
    differentiate(lambda x: x.tanh() * x + 1)(x).sum().backward()


def rows(start: int = 0, step: int = 1) -> Iterator[tuple[str, int, float, float]]:
    """(form, n, eager's megabytes, ours) of every `step`th form."""
    _load()
    for form in forms()[start::step]:
        for n in SIZES:
            found = measure(form, n)
            if found is None:
                break
            yield form.title, n, *found
            if found[1] > FACTOR * found[0] + SLACK:
                break  # with ten times as many elements it may be a hundred times as much


def main() -> int:
    """Print the table; whether any op is above the bound."""
    os.environ |= {"GRADOF_KEPT_MB": "0", "GRADOF_CACHE_DIR": "off"}
    resource.setrlimit(resource.RLIMIT_AS, (_ROOM, _ROOM))
    start, step = (*map(int, sys.argv[1:3]), 0, 1)[:2] if len(sys.argv) > 2 else (0, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = list(rows(start, step))
    found.sort(key=lambda row: row[3] - FACTOR * row[2], reverse=True)
    print(f"{'op':<70} {'n':>6} {'eager MB':>9} {'ours MB':>9}")
    for title, n, theirs, ours in found:
        print(f"{title[:70]:<70} {n:>6} {theirs:>9.1f} {ours:>9.1f}")
    above = [row for row in found if row[3] > FACTOR * row[2] + SLACK]
    print(f"{len(found)} rows, {len(above)} above {FACTOR} times eager's and {SLACK} MB")
    return bool(above)


if __name__ == "__main__":
    sys.exit(main())
