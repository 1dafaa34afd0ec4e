"""Masks of dropout that machine code draws: torch's own numbers, and its generator afterwards."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import gradof
from gradof import tuning
from gradof.codegen.lowering import draws
from gradof.codegen.machine import mersenne
from gradof.codegen.machine.engine import vector_bits

pytestmark = pytest.mark.skipif(
    not vector_bits() or not mersenne.is_torchs(), reason="torch draws here"
)


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 311, 312, 313, 1024, 1025, 70_001])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("before", [0, 1, 623, 624, 1000])
def test_numbers_and_state(size: int, dtype: Any, before: int) -> None:
    mine, theirs = torch.Generator(), torch.Generator()
    for generator in (mine, theirs):
        generator.manual_seed(size)
        torch.randint(0, 7, (before,), generator=generator)  # an output each
    for p in (0.0, 1e-9, 0.3, 0.5, 0.9, 1.0):
        expected = torch.empty(size, dtype=dtype).bernoulli_(p, generator=theirs).numpy()
        found = mersenne.bernoulli(p, (size,), expected.dtype, mine)
        assert found.dtype == expected.dtype and np.array_equal(found, expected)
        assert torch.equal(mine.get_state(), theirs.get_state())


def test_a_normal_number_that_waits_stays() -> None:
    """torch draws them in pairs, and keeps the second one in the state."""
    mine, theirs = torch.Generator(), torch.Generator()
    for generator in (mine, theirs):
        generator.manual_seed(1)
        torch.randn(1, dtype=torch.float64, generator=generator)
    mersenne.bernoulli(0.5, (1000,), "f4", mine)
    torch.empty(1000).bernoulli_(0.5, generator=theirs)
    assert torch.equal(mine.get_state(), theirs.get_state())
    numbers = [torch.randn(3, dtype=torch.float64, generator=g) for g in (mine, theirs)]
    assert torch.equal(*numbers)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    drawn: list[int] = []

    def bernoulli(p: float, shape: Any, dtype: Any) -> Any:
        drawn.append(int(np.prod(shape)))
        return mersenne.bernoulli(p, shape, dtype)

    monkeypatch.setattr(draws, "bernoulli", bernoulli)
    return drawn


@pytest.mark.parametrize("share", ["fixed", "varies"])
def test_dropout_is_eagers(share: str, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = counted(monkeypatch)

    def loss(x: Any, p: float) -> Any:
        h = F.dropout(torch.tanh(x), 0.2 if share == "fixed" else p)
        return (F.dropout(h, 0.5) * torch.rand(3)[0]).square().sum()

    compiled, x = gradof.differentiate(loss), torch.randn(50, 40, requires_grad=True)
    for k, p in enumerate((0.1, 0.3, 0.7, 0.0, 1.0, 0.25)):
        results = []
        for fn in (loss, compiled):
            torch.manual_seed(k)
            value = fn(x, p)
            results.append((value, *torch.autograd.grad(value, x), torch.rand(2)))
        for mine, other in zip(*results, strict=True):
            torch.testing.assert_close(mine, other)
    assert drawn and set(drawn) == {2000}
    if share == "varies":
        with pytest.raises(ValueError, match="dropout probability"):
            compiled(x, 1.5)


def test_few_are_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = counted(monkeypatch)
    monkeypatch.setattr(tuning, "DRAWN_NATIVELY", 2001)
    x = torch.randn(50, 40, requires_grad=True)
    gradof.differentiate(lambda x: F.dropout(torch.tanh(x)).sum())(x).backward()
    assert not drawn and x.grad is not None


def test_threads_draw_one_after_the_other() -> None:
    """All that they draw together is what one draws: no number twice, and none left out."""
    torch.manual_seed(5)
    expected = torch.empty(12 * 5000).bernoulli_(0.5).reshape(12, 5000).numpy()
    torch.manual_seed(5)
    found: list[Any] = []

    def draw() -> None:
        for _ in range(4):
            found.append(mersenne.bernoulli(0.5, (5000,), "f4"))

    threads = [threading.Thread(target=draw) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(a.tobytes() for a in found) == sorted(a.tobytes() for a in expected)
