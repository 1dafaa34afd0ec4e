"""The fuzzer: a seed is a program, a planted mistake is found, and a fixed sample is right."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradof.errors import GradientMismatchError
from gradof.ops.expr import Expr, F
from gradof.ops.registry import get_op
from gradof.testing.fuzz import generate, search
from gradof.testing.fuzz.numpy_judge import judge
from gradof.testing.fuzz.program import Library, Setting

LIBRARIES: tuple[Library, ...] = ("torch", "numpy")


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_seed_is_a_program(library: Library) -> None:
    for seed in range(4):
        one, other = generate(library, seed, "small"), generate(library, seed, "small")
        assert one.source() == other.source()


@pytest.mark.parametrize(("library", "programs"), [("torch", 150), ("numpy", 60)])
def test_a_sample_is_right(library: Library, programs: int) -> None:
    found = search(library, programs=programs, seed=20_000, size="small")
    assert not found.wrong, found.summary()
    assert found.counts["second"] >= programs // 2, found.summary()
    assert len(found.reach.ops) > 100 and found.reach.emitters["statements"] >= programs // 2


@pytest.mark.parametrize(("library", "programs"), [("torch", 4), ("numpy", 1)])
def test_a_sample_with_loops_is_right(library: Library, programs: int) -> None:
    found = search(library, programs=programs, seed=30_002, size="loops")
    assert not found.wrong, found.summary()
    assert found.counts["second"] >= 1, found.summary()
    assert "Loop" in found.reach.ops and found.reach.emitters["WholeKernel"] >= 1


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_planted_mistake_is_found_and_written(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(g: Expr, y: Expr) -> Expr:
        return g * (1.0 - y)

    monkeypatch.setitem(get_op("tanh").vjp, "x", wrong)
    for seed in range(200):
        if "tanh" in generate(library, seed, "small").body():
            found = search(library, programs=1, seed=seed, size="small", folder=tmp_path)
            if found.wrong:
                break
    ((_, what, path),) = found.wrong
    assert "gradient" in what and path is not None
    text = path.read_text()
    assert text[text.index("def program") : text.index("def inputs")].count(" = ") <= 3, text
    with pytest.raises(GradientMismatchError):
        runpy.run_path(str(path))["test_program"]()
    monkeypatch.undo()
    if library == "torch":  # of numpy the judge is differences, which are not as sharp
        runpy.run_path(str(path))["test_program"]()


def test_programs_change_arguments_that_require_no_gradient() -> None:
    changing = []
    for seed in range(40):
        program = generate("torch", seed, "small")
        args = program.arguments()
        before = [a.detach().clone() for a in args]
        program.function()(*args)
        pairs = zip(args, before, strict=True)
        changed = [a for a, b in pairs if ((a != b) & (b == b)).any()]
        changing += [seed] if any(a.is_floating_point() for a in changed) else []
    assert changing


def at_a_kink(x: Any) -> Any:
    return (np.abs(x) ** 2).sum() + np.tanh(x).sum()


def with_half_a_second_derivative(g: Expr, y: Expr) -> Expr:
    return g * (1.0 - y * F.detach(y))


def test_a_kink_is_told_from_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    def inputs() -> tuple[np.ndarray]:
        return (np.array([0.0, 0.5, -1.5]),)

    verdict = judge(at_a_kink, inputs, Setting(), 3)
    assert verdict.passed and verdict.at_kink and verdict.orders == 1
    monkeypatch.setitem(get_op("tanh").vjp, "x", with_half_a_second_derivative)
    wrong = judge(at_a_kink, inputs, Setting(), 3)
    assert wrong.kinds == {"second"} and not wrong.at_kink
