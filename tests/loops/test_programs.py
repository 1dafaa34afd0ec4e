"""Programs with loops are rolled, and give what they give unrolled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradof
from gradof import tuning
from gradof.runtime.function import Differentiated
from tests.loops import programs

SMALL = {
    "rk4": lambda: programs.rk4(10), "hmm": lambda: programs.hmm(11),
    "kalman": lambda: programs.kalman(10), "leapfrog": lambda: programs.leapfrog(10),
    "smoothing": lambda: programs.smoothing(12), "garch": lambda: programs.garch(12),
    "soft_dtw": lambda: programs.soft_dtw(9), "heat_1d": lambda: programs.heat_1d(12),
    "heat_2d": lambda: programs.heat_2d(12), "rnn": lambda: programs.rnn(12),
    "descent": lambda: programs.descent(12), "power": lambda: programs.power(12),
    "chain": lambda: programs.chain(16),
}  # fmt: skip


QUICK = ("chain", "hmm", "soft_dtw", "smoothing")
EACH = [n if n in QUICK else pytest.param(n, marks=pytest.mark.long) for n in SMALL]


@pytest.mark.parametrize("name", EACH)
def test_a_program_is_rolled(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = SMALL[name]()

    def results() -> list[Any]:
        loss = lambda *a: program.loss(*a)  # noqa: E731
        value, slope = gradof.value_and_grad(loss)(*program.arguments)
        if name == "soft_dtw":  # unrolled, its second derivative takes half a minute
            return [value, slope]
        second = gradof.grad(lambda x: np.sum(gradof.grad(loss)(x, *program.arguments[1:]) ** 2))
        return [value, slope, second(program.arguments[0])]

    graph = Differentiated(program.loss).trace(*program.arguments)
    loops = [node for node in graph.walk() if node.kind == "Loop"]
    assert loops, str(graph)
    rolled = results()
    monkeypatch.setattr(tuning, "LOOP_STEPS", 1 << 60)
    for have, want in zip(rolled, results(), strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-8, atol=1e-10)


def test_places_without_a_rule_make_no_more_nodes() -> None:
    few, many = (
        len(list(Differentiated(p.loss).trace(*p.arguments).walk()))
        for p in (programs.hmm(20), programs.hmm(40))
    )
    assert few == many


def test_a_recurrent_cell_of_torch_is_rolled(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    program = programs.gru(12)
    (h,) = program.arguments

    def slope() -> Any:
        compiled = gradof.differentiate(lambda h: program.loss(h))
        found = torch.autograd.grad(compiled(h), h)[0]
        assert compiled.cache_info().backward_runs == 1
        return found, compiled

    rolled, compiled = slope()
    graph = compiled.trace(h)
    assert any(node.kind == "Loop" for node in graph.walk()), str(graph)
    torch.testing.assert_close(rolled, torch.autograd.grad(program.loss(h), h)[0])
    monkeypatch.setattr(tuning, "LOOP_STEPS", 1 << 60)
    torch.testing.assert_close(rolled, slope()[0])


def test_two_loops_whose_rows_are_stacked_after_both() -> None:
    import torch

    def f(x: Any, w: Any) -> Any:
        first, second = [], []
        for row in x.unbind():
            first.append(torch.sin(row * w) * w)
        for row in x.unbind():  # in the same number of ops: this loop ends where `stack` was
            second.append(torch.cos(row * w) * w)
        return (torch.stack(first) * torch.stack(second)).sum()

    x = torch.randn(24, 5, dtype=torch.float64, requires_grad=True)
    w = torch.randn(5, dtype=torch.float64, requires_grad=True)
    fast = gradof.differentiate(f, strict=True)
    found = torch.autograd.grad(fast(x, w), (x, w))
    torch.testing.assert_close(found, torch.autograd.grad(f(x, w), (x, w)))
    assert sum(node.kind == "Loop" for node in fast.trace(x, w).walk()) == 2


@pytest.mark.parametrize("n", [33, 129, 513])
def test_sums_that_are_divided_in_the_loop_that_makes_them(n: int) -> None:
    def smoothed(x: Any) -> Any:
        found = np.zeros(int(np.ceil(x.size / 17)))
        for i in range(found.size):
            count = 0
            for k in range(17 * i - 8, 17 * i + 9):
                if 0 < k < len(x):
                    count += 1
                    found[i] += x[k]
            found[i] /= float(count)
        return found

    x = np.random.default_rng(0).random(n)
    np.testing.assert_allclose(gradof.differentiate(smoothed)(x), smoothed(x))
    (slope,) = gradof.vjp(smoothed, x)[1](np.arange(1.0, len(smoothed(x)) + 1))
    weights = np.arange(1.0, len(smoothed(x)) + 1)
    want = [np.sum(weights * smoothed(e)) for e in np.eye(n)]  # it is linear
    np.testing.assert_allclose(slope, want)
