"""torch.profiler.record_function inside traced code: a range of the run, no part of the graph."""

from __future__ import annotations

from typing import Any

import torch
from torch.profiler import record_function

import gradof
from gradof.ir.printer import print_graph


@record_function("all of it")
def _loss(x: torch.Tensor) -> torch.Tensor:
    with record_function("forward"):
        y = torch.tanh(x) * 2
        with record_function("inner", "an argument"):
            y = y + x
    return (y**2).sum()


def _plain(x: torch.Tensor) -> torch.Tensor:
    return ((torch.tanh(x) * 2 + x) ** 2).sum()


def test_values_and_gradients_are_those_without_it() -> None:
    fast: Any = gradof.differentiate(_loss, strict=True)
    for _ in range(3):
        x = torch.randn(4, dtype=torch.float64, requires_grad=True)
        have, want = fast(x), _plain(x)
        torch.testing.assert_close(have, want)
        grads = [torch.autograd.grad(v, x, create_graph=True)[0] for v in (have, want)]
        torch.testing.assert_close(*grads)
        torch.testing.assert_close(*(torch.autograd.grad(g.sum(), x)[0] for g in grads))
    assert fast.cache_info().misses == 1 and fast.cache_info().backward_runs >= 3
    assert "profiler" not in print_graph(fast.trace(x))


def test_ranges_of_ours_within_a_range_outside() -> None:
    fast: Any = gradof.differentiate(_plain)
    x = torch.ones(3, requires_grad=True)
    with record_function("outside"):
        fast(x).backward()
    assert x.grad is not None and fast.cache_info().backward_runs == 1
