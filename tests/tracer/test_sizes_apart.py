"""Sizes that follow from values, given one by one: `torch.zeros(int(index.max()) + 1, 3)`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from gradof import differentiate
from gradof.tracer.torch.sizes_apart import sizes_and_math

Tensor = torch.Tensor
FORMS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "zeros": lambda x, n: torch.zeros(n, 3) + x.sum(0),
    "ones": lambda x, n: torch.ones(n, 3, dtype=torch.float64) * x.sum(0),
    "empty": lambda x, n: torch.empty(n, 3).fill_(2.0) * x.sum(0),
    "rand": lambda x, n: torch.rand(n, 3) * x.sum(0),
    "randn": lambda x, n: torch.randn(n, requires_grad=False).sum() * x,
    "new_zeros": lambda x, n: x.new_zeros(n, 3).index_add_(0, torch.arange(4) % 2, x),
    "new_ones": lambda x, n: x.new_ones(n, 3) * x.mean(0),
    "new_empty": lambda x, n: x.new_empty(n, 3).copy_(x[:n]),
    "expand": lambda x, n: x[0].expand(n, 3) * torch.arange(n)[:, None],
}


@pytest.mark.parametrize("form", FORMS)
def test_of_a_number_that_is_read_off_a_tensor(form: str) -> None:
    def fn(x: Tensor, index: Tensor) -> Tensor:
        return FORMS[form](x, int(index.max()) + 1)

    compiled = differentiate(fn, strict=True)
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    for most in (2, 3, 2):
        index = torch.tensor([0, 1, most, 1])
        found = []
        for run in (fn, compiled):
            torch.manual_seed(most)
            y = run(x, index)
            found.append((y, *torch.autograd.grad(y.square().sum(), x)))
        torch.testing.assert_close(found[1], found[0])
    assert compiled.cache_info().eager_runs == 0


def test_other_threads_have_torchs_own() -> None:
    started, done = threading.Event(), threading.Event()
    made: list[Tensor] = []

    def other() -> None:
        started.wait(10)
        made.extend([torch.zeros(2, 3), torch.ones(2).new_zeros(3, 1), torch.ones(1).expand(4, 1)])
        done.set()

    def fn(x: Tensor) -> Tensor:
        started.set()
        done.wait(10)
        return x * 2

    thread = threading.Thread(target=other)
    thread.start()
    differentiate(fn)(torch.ones(2))
    thread.join()
    assert [tuple(t.shape) for t in made] == [(2, 3), (3, 1), (4, 1)]
    assert "expand" not in vars(Tensor) and not hasattr(torch.zeros, "__wrapped__")  # as before


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_what_is_scripted_meanwhile_has_torchs_own() -> None:
    scripted: list[Any] = []
    with sizes_and_math():
        scripted.append(torch.jit.script(added))
    assert torch.equal(scripted[0](torch.ones(3)), torch.ones(2, 3))


def added(x: Tensor) -> Tensor:
    return torch.zeros(2, 3) + x
