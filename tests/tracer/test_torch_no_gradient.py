"""Code that asks whether a tensor has a gradient by now, as updates of code books do."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import gradof
from gradof import differentiate
from gradof.errors import EagerWarning


class CodeBook(torch.nn.Module):
    """A running mean that adds a gradient which something else has left in its buffer."""

    mean: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(3, dtype=torch.float64))
        self.weight = torch.nn.Parameter(torch.linspace(1.0, 2.0, 3, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> Any:
        new = (x * self.weight).detach().mean(0)
        if self.mean.grad is not None:
            new.add_(self.mean.grad)
            self.mean.grad = None
        self.mean.data.lerp_(new, 0.5)
        return ((x - self.mean) * self.weight).square().sum()


def steps(call: Any, model: CodeBook) -> list[torch.Tensor]:
    found = []
    for n in range(4):
        if n == 2:
            model.mean.grad = torch.ones(3, dtype=torch.float64)
        x = torch.arange(6.0, dtype=torch.float64).reshape(2, 3) + n
        model.zero_grad()
        loss = call(x)
        loss.backward()
        assert model.mean.grad is None and model.weight.grad is not None
        found += [loss.detach(), model.weight.grad.clone(), model.mean.clone()]
    return found


def test_a_buffer_without_a_gradient_is_part_of_the_trace() -> None:
    model, other = CodeBook(), CodeBook()
    compiled = differentiate(other)
    with pytest.warns(EagerWarning, match=r"`\.grad` is read inside a traced function"):
        found = steps(compiled, other)
    torch.testing.assert_close(found, steps(model, model))
    info = compiled.cache_info()
    assert (info.eager_runs, info.forward_runs) == (1, 3)  # the one with a gradient is eager's


def test_an_argument_without_a_gradient_is_part_of_the_trace() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x.square().sum() if x.grad is None else (x * x.grad).sum()

    compiled = differentiate(fn)
    x, y = (torch.ones(3, requires_grad=True) for _ in range(2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EagerWarning)
        for _ in range(3):
            compiled(x).backward()
            fn(y).backward()  # type: ignore[no-untyped-call]
            torch.testing.assert_close(x.grad, y.grad)
        fresh = torch.full((3,), 2.0, requires_grad=True)
        torch.testing.assert_close(compiled(fresh), torch.tensor(12.0))
    info = compiled.cache_info()
    assert (info.eager_runs, info.forward_runs) == (2, 2)
    torch.testing.assert_close(gradof.grad(fn)(torch.full((3,), 2.0)), torch.full((3,), 4.0))


def test_a_gradient_of_what_is_no_leaf_is_eagers_to_warn_of() -> None:
    compiled = differentiate(lambda x: x.sum() if x.grad is None else x.sum() * 2)
    leaf = torch.ones(3, requires_grad=True)
    with pytest.warns(EagerWarning), pytest.warns(UserWarning, match="not a leaf"):
        compiled(leaf * 1.0)
    assert compiled.cache_info().eager_runs == 1
