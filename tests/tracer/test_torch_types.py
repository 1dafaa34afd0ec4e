"""`type()` of a number that varies, which is a traced number while it is traced."""

from __future__ import annotations

from typing import Any

import torch

from gradof import differentiate


class Annealed:
    """A loss that asks for the type of its own weight."""

    def __init__(self) -> None:
        self.weight = 1.0

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        self.weight *= 0.5
        kind: Any = type(self.weight)
        assert kind is float and type(kind) is type and isinstance(kind, type)
        assert type(self) is Annealed and type(x) is torch.Tensor
        factor = {float: 2.0, int: 1.0}[kind]
        return (x * self.weight).sum() * factor


def test_the_type_of_a_number_that_varies() -> None:
    mine, plain = Annealed(), Annealed()
    call = differentiate(mine, strict=True)
    for _ in range(5):
        x, y = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
        call(x).backward()
        plain(y).backward()  # type: ignore[no-untyped-call]
        assert x.grad is not None and y.grad is not None and torch.equal(x.grad, y.grad)
    assert mine.weight == plain.weight and call.cache_info().misses == 1


def test_the_type_of_an_argument_that_varies() -> None:
    def scaled(x: torch.Tensor, s: float) -> torch.Tensor:
        return (x * s).sum() if type(s) is float else x.sum()

    call = differentiate(scaled, strict=True)
    for i in range(5):
        x = torch.ones(3, requires_grad=True)
        call(x, 1.5 + i).backward()
        assert torch.equal(x.grad, torch.full((3,), 1.5 + i))  # type: ignore[arg-type]
    assert call.cache_info().misses == 2
