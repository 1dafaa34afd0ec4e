"""Objects that code knows by weak references die as without gradof, whatever a trace came to."""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import gradof

Call = Callable[[torch.Tensor, Callable[[], Any]], torch.Tensor]


class _Settings:
    gain = 2.0


def _gain(known: Callable[[], Any]) -> float:
    found = known()
    return 1.0 if found is None else float(found.gain)


def _cached() -> Call:
    @functools.lru_cache(None)
    def table(n: int) -> torch.Tensor:
        return torch.arange(n).double()

    return lambda x, known: (x * _gain(known) + table(x.shape[-1])).sum()


def _counted() -> Call:
    counts = {"calls": 0}

    def fn(x: torch.Tensor, known: Callable[[], Any]) -> torch.Tensor:
        counts["calls"] += 1
        return (x * _gain(known)).sum() * counts["calls"]

    return fn


def _failing() -> Call:
    def fn(x: torch.Tensor, known: Callable[[], Any]) -> torch.Tensor:
        return (x * _gain(known)).sum() * id(x).bit_length()

    return fn


@pytest.fixture
def no_collections() -> Iterator[None]:
    """What is in cycles stays, so that nothing is freed by chance."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.usefixtures("no_collections")
@pytest.mark.filterwarnings("ignore::gradof.errors.EagerWarning")
@pytest.mark.parametrize("calls", [1, 2, 3])
@pytest.mark.parametrize("make", [_cached, _counted, _failing])
def test_an_object_dies_with_its_last_reference(make: Callable[[], Call], calls: int) -> None:
    fn, held = make(), [_Settings()]
    known = weakref.ref(held[0])
    compiled = gradof.differentiate(lambda x: fn(x, known))
    x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    for _ in range(calls):
        compiled(x).backward()
    held.clear()
    assert known() is None
