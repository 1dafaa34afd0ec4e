"""Sequences of calls: a small program that runs twice, as it is and with `differentiate`.

    Sequence("counter", setup="n = 0\ndef f(x):\n    global n; n += 1\n    return (x * n).sum()",
             steps=("", "", "n = 7"))

`setup` runs once, as a module of its own, and defines `f`, a function or a module. Before each
call runs a line of `steps`; then `call`, by default `args = (t(3),); out = g(*args)`, where `g` is
`f` or `differentiate(f)` and t(*shape) makes a float64 leaf with other numbers each time; then
`after`, by default a backward from every output that requires grad. After every step everything
the program can name is described (tests/programs/describe.py), and the descriptions are compared;
names with an underscore in front are left out.
"""

from __future__ import annotations

import builtins
import contextlib
import contextvars
import io
import linecache
import math
import os
import random
import sys
import tempfile
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.utils.checkpoint

from gradof import differentiate
from tests.programs.describe import Line, describe, first_difference

CALL = "args = (t(3),); out = g(*args)"
AFTER = "backward(out)"
PRELUDE = """\
import collections, contextlib, contextvars, copy, dataclasses, enum, functools, itertools
import math, operator, os, random, sys, time, types, warnings
import numpy as np
import torch
import torch.utils.checkpoint
from torch import nn
from torch.nn import functional as F
class Box:
    def __init__(self, **attributes): self.__dict__.update(attributes)
"""


@dataclass(frozen=True)
class Sequence:
    """See the module docstring."""

    name: str
    setup: str
    steps: tuple[str, ...]
    call: str = CALL
    after: str = AFTER
    traces: int | None = None  # at most so many, where none runs eagerly
    rounding: float = 0.0  # a relative tolerance above that of float64, where less is computed in


@dataclass
class Run:
    """What one run of a sequence did: one description for each step, and counts."""

    steps: list[list[Line]] = field(default_factory=list)
    errors: list[BaseException | None] = field(default_factory=list)
    eager_warnings: int = 0
    forward_runs: int = 0
    backward_runs: int = 0
    traces: int = 0
    patches: list[str] = field(default_factory=list)  # of libraries, left behind
    backwards: int = 0  # from results that have a graph


@dataclass(frozen=True)
class Outcome:
    """`kind` is "equal", "error" (where eager has none), "wrong", or "more"; `text` says how.

    More is a gradient where eager's backward refuses, as a tensor that it saved was changed.
    """

    kind: str
    text: str
    compiled: Run
    has_gradient: bool = False  # whether a backward of eager's went through


def compare(sequence: Sequence) -> Outcome:
    """Run a sequence both ways."""
    want, have = run(sequence, compiled=False), run(sequence, compiled=True)
    if set(have.patches) - set(want.patches):
        return Outcome("wrong", f"left replaced: {have.patches}", have)
    for i, (expected, error) in enumerate(zip(want.errors, have.errors, strict=True)):
        if expected is None and error is not None:
            shown = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            return Outcome("error", f"call {i}: {shown}", have)
        if error is None and "modified by an inplace operation" in str(expected):
            return Outcome("more", f"call {i}: eager refuses: {expected}", have)
        if expected is not None and not isinstance(error, type(expected)):
            shown = f"{type(expected).__name__}: {str(expected)[:200]}"
            return Outcome("wrong", f"call {i}: eager raises {shown}, gradof has {error!r}", have)
        difference = first_difference(want.steps[i], have.steps[i], sequence.rounding)
        if difference is not None:
            return Outcome("wrong", f"call {i}: {difference}", have)
    return Outcome("equal", "", have, want.backwards > 0)


def run(sequence: Sequence, *, compiled: bool) -> Run:
    """One run of a sequence, in its own module, with torch's and Python's switches as they were."""
    result = Run()
    library = _library()
    with _own_world() as folder, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        contextvars.Context().run(_run, sequence, compiled, folder, result)
    result.eager_warnings = sum(w.category.__name__ == "EagerWarning" for w in caught)
    result.patches = [name for name, value in _library().items() if library.get(name) is not value]
    for name in result.patches:  # the next sequence is not to fail for this one
        owner, _, attribute = name.rpartition(".")
        setattr(sys.modules[owner], attribute, library[name])
    return result


def _library() -> dict[str, Any]:
    """What a trace may replace while it runs, and is to put back."""
    modules = (builtins, math, random, torch, torch.nn.functional, torch.nn.modules.module,
               torch.autograd, torch.autograd.graph, torch.utils.checkpoint, warnings)  # fmt: skip
    return {
        f"{module.__name__}.{name}": value
        for module in modules
        for name, value in vars(module).items()
        if callable(value)
    }


def _run(sequence: Sequence, compiled: bool, folder: Path, result: Run) -> None:
    module = types.ModuleType("program")
    sys.modules["program"] = module
    world = vars(module)
    _execute(PRELUDE, "prelude", world)
    drawn = torch.Generator().manual_seed(5)

    def backward(out: Any) -> None:
        result.backwards += _backward(out)

    world.update(t=lambda *shape: _leaf(shape, drawn), folder=folder, backward=backward)
    hidden = set(world)
    _execute(sequence.setup, sequence.name, world)
    world["g"] = differentiate(world["f"]) if compiled else world["f"]
    hidden.add("g")
    for i, step in enumerate(sequence.steps):
        printed, error = io.StringIO(), None
        try:
            with contextlib.redirect_stdout(printed):
                for part in (step, sequence.call, sequence.after):
                    _execute(part, f"{sequence.name} step {i}", world)
        except Exception as raised:
            error = raised
        result.errors.append(error)
        seen = {name: value for name, value in world.items()
                if name not in hidden and not name.startswith("_")}  # fmt: skip
        seen |= {"printed": printed.getvalue(), "files": _files(folder), "drawn": _draws()}
        result.steps.append(describe(seen, "program"))
    if compiled:
        info = world["g"].cache_info()
        result.forward_runs, result.backward_runs = info.forward_runs, info.backward_runs
        result.traces = info.misses


def _execute(source: str, name: str, world: dict[str, Any]) -> None:
    file = f"/programs/{name}.py"
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    exec(compile(source, file, "exec"), world)


def _leaf(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    values = torch.rand(shape, generator=generator, dtype=torch.float64) + 0.25
    return values.requires_grad_()


def _backward(out: Any) -> bool:
    """A backward from all tensors that require grad, with cosines; whether there was a graph."""
    found: list[torch.Tensor] = []
    _gather(out, found)
    if found:
        weights = [torch.cos(torch.arange(o.numel())).reshape(o.shape).to(o.dtype) for o in found]
        torch.autograd.backward(found, weights)
    return any(o.grad_fn is not None for o in found)


def _gather(out: Any, found: list[torch.Tensor]) -> None:
    if isinstance(out, torch.Tensor):
        if out.requires_grad and all(out is not other for other in found):
            found.append(out)
    elif isinstance(out, (list, tuple)):
        for item in out:
            _gather(item, found)
    elif isinstance(out, dict):
        _gather(list(out.values()), found)


def _files(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(errors="replace") for path in sorted(folder.iterdir())}


def _draws() -> list[Any]:
    """The next number of each generator, which says whether as many were drawn."""
    state = torch.get_rng_state(), np.random.get_state(), random.getstate()
    drawn = [torch.rand(()).item(), float(np.random.rand()), random.random()]
    torch.set_rng_state(state[0])
    np.random.set_state(state[1])
    random.setstate(state[2])
    return drawn


@contextlib.contextmanager
def _own_world() -> Iterator[Path]:
    """A folder of its own, and every switch of the process as it was, afterwards."""
    modules, environment, paths = dict(sys.modules), dict(os.environ), list(sys.path)
    argv, at, shown = list(sys.argv), os.getcwd(), vars(torch._tensor_str.PRINT_OPTS).copy()
    switches = [(set_, get()) for get, set_ in _SWITCHES]
    torch.manual_seed(3)
    np.random.seed(3)
    random.seed(3)
    try:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)
            os.chdir(at)
    finally:
        for name in set(sys.modules) - set(modules):
            if name.partition(".")[0] in ("program", "helper"):
                del sys.modules[name]
        vars(builtins).pop("PROGRAM_V", None)
        os.environ.clear()
        os.environ.update(environment)
        sys.path[:], sys.argv[:] = paths, argv
        vars(torch._tensor_str.PRINT_OPTS).update(shown)
        for set_, value in switches:
            set_(value)


_SWITCHES: list[tuple[Callable[[], Any], Callable[[Any], Any]]] = [
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    (torch.get_num_threads, torch.set_num_threads),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (torch.is_grad_enabled, torch._C._set_grad_enabled),
    (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    (lambda: torch.is_autocast_enabled("cpu"), lambda on: torch.set_autocast_enabled("cpu", on)),
    (lambda: None, lambda _: torch.set_default_device(None)),
]
