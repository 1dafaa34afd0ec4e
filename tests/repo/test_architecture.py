"""What docs/architecture.md names is there, and its walk is the one that a call takes."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch

import gradof

PAGE = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text()
WALK = re.findall(r"^\d+\. (→ )?`(gradof[\w.]+)`:", PAGE, re.MULTILINE)


def found(dotted: str) -> Any:
    """The object of a dotted name."""
    parts = dotted.split(".")
    for k in range(len(parts), 0, -1):
        try:
            owner: Any = importlib.import_module(".".join(parts[:k]))
        except ModuleNotFoundError:
            continue
        for name in parts[k:]:
            owner = getattr(owner, name)
        return owner
    raise AssertionError(f"no {dotted}")


def code_of(dotted: str) -> Any:
    """The code object of a stop, under whatever decorators it has."""
    function = found(dotted)
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function.__code__


def stops_of(run: Callable[[], object]) -> set[str]:
    """The stops of the walk that a run enters, on whatever thread it does."""
    codes = {code_of(name): name for _, name in WALK}
    seen: set[str] = set()

    def note(frame: FrameType, event: str, arg: Any) -> None:
        if event == "call" and frame.f_code in codes:
            seen.add(codes[frame.f_code])

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return seen


def test_the_walk_has_at_most_twelve_stops() -> None:
    assert 8 <= len(WALK) <= 12


def test_the_walk_is_that_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADOF_BACKEND", "auto")
    from gradof.codegen.machine.engine import vector_bits

    @gradof.differentiate
    def loss(x: torch.Tensor) -> torch.Tensor:
        return (torch.tanh(x) * x).mean()

    x = torch.randn(400, 300, requires_grad=True)
    step = lambda: torch.autograd.grad(loss(x), x)  # noqa: E731
    every = {name for _, name in WALK}
    hot = {name for arrow, name in WALK if arrow}
    if not vector_bits():  # tiles compute it
        every, hot = ({n for n in names if "llvm" not in n} for names in (every, hot))
    unseen = {n for n in every if n.endswith("._Compiled.backward")}  # on a thread of torch's
    # the tracer has a profile hook of its own, which hides its own run from this one
    first = stops_of(step)
    assert every - unseen - {"gradof.tracer.torch.tracer.trace_torch"} <= first
    second = stops_of(step)
    assert hot - unseen <= second <= every
    assert not second & {n for arrow, n in WALK if not arrow}


def test_the_glossary_is_short() -> None:
    rows = PAGE[PAGE.index("## Glossary") :].splitlines()[3:]
    assert 20 <= len([row for row in rows if row.startswith("|")]) <= 40
