"""Subclasses of `torch.nn.Parameter` that say nothing of how they compute are traced as one."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import gradof
from gradof.errors import LeafTypeError

Tensor = torch.Tensor


class Scaled(torch.nn.Parameter):
    """A parameter with a number of its own."""

    scale: float

    def __new__(cls, data: Tensor, scale: float = 2.0) -> Any:
        self = super().__new__(cls, data)
        self.scale = scale
        return self

    def scaled(self) -> Any:
        return self.sigmoid() * self.scale


class Slotted(torch.nn.Parameter):
    __slots__ = ("own",)


class Dispatched(torch.nn.Parameter):
    __torch_function__ = torch.Tensor.__dict__["__torch_function__"]  # results are of the subclass


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = Scaled(torch.randn(3, 3))

    def forward(self, x: Tensor) -> Any:
        assert type(self.weight) is Scaled
        y = (x @ self.weight.scaled()).tanh().sum()
        with torch.no_grad():
            self.weight.mul_(0.9)
        return y


def test_a_captured_one_is_an_input() -> None:
    eager, layer = Layer(), Layer()
    compiled = gradof.differentiate(layer, strict=True)
    for i in range(5):
        x = torch.randn(2, 3)
        if i == 3:
            eager.weight.scale = layer.weight.scale = 3.0
        for module, call in ((eager, eager), (layer, compiled)):
            module.weight.grad = None
            call(x).backward()
        torch.testing.assert_close(layer.weight.grad, eager.weight.grad)
        assert type(layer.weight) is Scaled and torch.equal(layer.weight, eager.weight)
    assert compiled.cache_info().misses == 2  # the scale has changed once


def test_an_argument_has_its_class() -> None:
    def fn(x: Tensor, p: Any) -> Any:
        return (x @ p.scaled()).sum() if isinstance(p, Scaled) else (x @ p).sum()

    compiled = gradof.differentiate(fn, strict=True)
    x = torch.randn(2, 3)
    for p in (Scaled(torch.randn(3, 3)), torch.nn.Parameter(torch.randn(3, 3))):
        have, want = (torch.autograd.grad(f(x, p), p)[0] for f in (compiled, fn))
        torch.testing.assert_close(have, want)


@pytest.mark.parametrize("cls", [Slotted, Dispatched])
def test_others_are_refused(cls: Any) -> None:
    given = cls(torch.randn(3))
    compiled = gradof.differentiate(lambda x: (x * 2).sum(), strict=True)
    with pytest.raises(LeafTypeError, match="a subclass of torch"):
        compiled(given)
