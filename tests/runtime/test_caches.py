"""Functions with `functools.lru_cache`: what they have given is state that a trace reads."""

from __future__ import annotations

import functools
import logging
from typing import Any

import pytest
import torch

from gradof import differentiate
from gradof.errors import TraceError

X = torch.arange(1.0, 4.0, dtype=torch.float64)


def test_a_cold_cache_is_filled_eagerly() -> None:
    @functools.lru_cache(maxsize=2)
    def mask(n: int) -> torch.Tensor:
        return torch.arange(n, dtype=torch.float64)

    def loss(x: Any) -> Any:
        return (x * x * mask(len(x))).sum()

    compiled = differentiate(loss)
    kept = None
    for _ in range(3):
        x = X.clone().requires_grad_()
        compiled(x).backward()
        assert torch.equal(x.grad, 2 * X * torch.arange(3))  # type: ignore[arg-type]
        assert kept is None or mask(3) is kept
        kept = mask(3)
    info = compiled.cache_info()
    assert (info.eager_runs, info.misses, info.backward_runs) == (1, 1, 2)

    mask(3).fill_(5.0)  # the tensor is an input
    x = X.clone().requires_grad_()
    compiled(x).backward()
    assert torch.equal(x.grad, 10 * X)  # type: ignore[arg-type]
    mask(1), mask(2)  # three calls are too many for the cache
    x = X.clone().requires_grad_()
    compiled(x).backward()
    assert torch.equal(x.grad, 2 * X * torch.arange(3))  # type: ignore[arg-type]
    assert mask(3) is not kept

    mask.cache_clear()
    with pytest.raises(TraceError, match="mask is cached, and computed for the first time"):
        differentiate(loss, strict=True)(X)


def test_an_entry_whose_place_is_used_again_is_noticed() -> None:
    class Scale:
        k = 1.0

    made = iter([2.0, 3.0, 4.0, 5.0])

    @functools.lru_cache(maxsize=1)
    def scale(name: str) -> Scale:
        found = Scale()
        found.k = made.__next__()
        return found

    scale("a")
    compiled = differentiate(lambda x: (x * scale("a").k).sum())
    assert compiled(X).item() == 12.0
    scale("b"), scale("a")  # its own link, with another result
    assert compiled(X).item() == 24.0
    assert compiled.cache_info().eager_runs == 0


def test_what_is_logged_once_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    @functools.lru_cache
    def warn_once(text: str) -> None:
        logging.getLogger("once").warning(text)

    def loss(x: Any) -> Any:
        warn_once("careful")
        return (x * x).sum()

    compiled = differentiate(loss)
    for _ in range(3):
        x = X.clone().requires_grad_()
        compiled(x).backward()
        assert torch.equal(x.grad, 2 * X)  # type: ignore[arg-type]
    assert [r.message for r in caplog.records] == ["careful"]
    assert compiled.cache_info().backward_runs == 3
