"""Re-traces and memory are bounded: shapes that keep changing, logged numbers, many calls."""

from __future__ import annotations

import gc
import os
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from gradof import differentiate, limits
from tests.programs.known import KNOWN_TESTS


def _known(test: Any) -> Any:
    name = test.__name__
    if name in KNOWN_TESTS:
        return pytest.mark.xfail(strict=True, reason=KNOWN_TESTS[name])(test)
    return test


def _resident() -> float:
    """Megabytes of memory this process has."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _gradient(f: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    x = x.detach().clone().requires_grad_()
    out = f(x)
    (gradient,) = torch.autograd.grad(out.sum(), x)
    return out.detach(), gradient


def _same(compiled: Any, f: Any, x: torch.Tensor) -> None:
    for mine, theirs in zip(_gradient(compiled, x), _gradient(f, x), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-12)


@_known
def test_a_loss_that_is_logged_forty_times_is_traced_twice() -> None:
    hist: list[float] = []

    def loss(x: torch.Tensor) -> torch.Tensor:
        value = (x * x).sum()
        hist.append(value.item())
        return value

    compiled = differentiate(loss)
    xs = [torch.randn(4).double() for _ in range(40)]
    for x in xs:
        _gradient(compiled, x)
    assert hist == pytest.approx([(x * x).sum().item() for x in xs], rel=1e-12)
    info = compiled.cache_info()
    assert info.misses <= 2 and info.backward_runs >= 38, info


@_known
def test_an_annealed_weight_and_a_counter_are_traced_twice() -> None:
    class Loss:
        def __init__(self) -> None:
            self.beta, self.step = 1.0, 0

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            self.step += 1
            self.beta *= 0.99
            return (x * self.beta / self.step).sum()

    mine, theirs = Loss(), Loss()
    compiled = differentiate(mine)
    for _ in range(50):
        _same(compiled, theirs, torch.randn(4).double())
    assert (mine.beta, mine.step) == (theirs.beta, theirs.step)
    assert compiled.cache_info().misses <= 2


def _sentence(x: torch.Tensor) -> torch.Tensor:
    h = torch.tanh(x)
    for _ in range(4):
        h = torch.tanh(h @ torch.ones(3, 3, dtype=x.dtype)) + x
    return (h * h).sum()


@_known
def test_shapes_that_come_once_are_not_traced() -> None:
    compiled = differentiate(_sentence)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it runs eagerly
        for n in range(1, 61):
            _same(compiled, _sentence, torch.randn(n, 3).double())
    assert compiled.cache_info().misses <= 12


@_known
def test_shapes_that_come_back_are_traced() -> None:
    compiled = differentiate(_sentence)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(4):
            for n in range(1, 31):
                _same(compiled, _sentence, torch.randn(n, 3).double())
    info = compiled.cache_info()
    assert info.misses <= 30
    assert info.backward_runs >= 30, "a length that is seen the third time is compiled"


@_known
def test_generating_with_a_growing_prefix_is_traced_a_few_times() -> None:
    compiled = differentiate(_sentence)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        prefix = torch.randn(1, 3).double()
        for _ in range(40):
            torch.testing.assert_close(compiled(prefix), _sentence(prefix))
            prefix = torch.cat([prefix, prefix[-1:] * 0.5])
    assert compiled.cache_info().misses <= 12


@_known
def test_many_shapes_keep_a_bounded_number_of_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "signatures", 24)
    compiled = differentiate(lambda x: (x * x).sum())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n in range(1, 41):
            for _ in range(2):
                _gradient(compiled, torch.ones(n).double())
    assert 12 < compiled.cache_info().entries <= 24


@pytest.mark.programs
@_known
def test_a_thousand_shapes_in_bounded_memory(capsys: pytest.CaptureFixture[str]) -> None:
    compiled = differentiate(_sentence)
    seen = [_resident()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n in range(1, 1001):
            for _ in range(3):  # each comes back, and is compiled
                # small and large in turns: entries that are kept have scratch of their size
                _gradient(compiled, torch.randn(7 * n % 1009, 3).double())
            if n % 250 == 0:
                seen.append(_resident())
    info = compiled.cache_info()
    with capsys.disabled():
        print(f"\n1000 shapes: {[f'{m:.0f} MB' for m in seen]}, {info}")
    assert info.entries <= 256
    assert seen[-1] - seen[2] < 30, "the second five hundred take what the first left"


@pytest.mark.programs
@_known
def test_a_hundred_thousand_calls_in_bounded_memory(capsys: pytest.CaptureFixture[str]) -> None:
    hist: list[float] = []

    class Loss:
        def __init__(self) -> None:
            self.beta, self.step = 1.0, 0

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            self.step += 1
            self.beta *= 0.9999
            loss = (torch.tanh(x) * self.beta).sum()
            hist.append(loss.item())
            return loss

    loss = Loss()
    compiled = differentiate(loss)
    x = torch.randn(8).double().requires_grad_()
    seen = []
    for i in range(100_000):
        compiled(x).backward()
        if i % 1_000 == 0:
            hist.clear()
        if i % 20_000 == 1_000:
            seen.append(_resident())
    info = compiled.cache_info()
    with capsys.disabled():
        print(f"\n100000 calls: {[f'{m:.1f} MB' for m in seen]}, {info}")
    assert loss.step == 100_000
    assert info.misses <= 4
    assert seen[-1] - seen[0] < 10
