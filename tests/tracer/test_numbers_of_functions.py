"""Numbers that vary and are given to a `torch.autograd.Function`: no trace for each of them.

A gradient reversal's strength, a surrogate gradient's slope, a threshold. Forward and backward
compute with the number, branch on it, or need its value.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import gradof

Tensor = torch.Tensor
Forward = Callable[[Tensor, float], Tensor]
Backward = Callable[[Tensor, Tensor, float], Tensor]
PAIRS: dict[str, tuple[Forward, Backward, int]] = {  # the last: traces at most
    "product": (lambda x, b: x * b, lambda x, g, b: g * b, 2),
    "reversal": (lambda x, b: x.view_as(x), lambda x, g, b: -b * g, 2),
    "surrogate": (lambda x, b: (x > 0).double(), lambda x, g, b: g / (1 + b * x.abs()) ** 2, 2),
    "math": (lambda x, b: x * 2, lambda x, g, b: g * math.exp(-b) * torch.sigmoid(b * x), 2),
    "clamp": (lambda x, b: x.clamp(-b, b), lambda x, g, b: g * ((x > -b) & (x < b)), 2),
    "branch": (lambda x, b: x * b if b > 1.3 else x * 1, lambda x, g, b: g * b, 3),
    "branch back": (lambda x, b: x * b, lambda x, g, b: g * b if b > 1.3 else g, 3),
    "value": (lambda x, b: x * (1.0 if b > 1.3 else 2.0), lambda x, g, b: g * [b, 2 * b][b > 1], 3),
}


def function(forward: Forward, backward: Callable[..., Any]) -> Any:
    """A Function of a tensor and a number."""

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, b: float) -> Any:
            ctx.b = b
            ctx.save_for_backward(x)
            return forward(x, b)

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Any:
            return backward(*ctx.saved_tensors, g, ctx.b), None

    return Scaled


def losses(fn: Any) -> dict[str, Callable[[], Callable[[Tensor, float], Any]]]:
    """Losses whose number is an argument, read off a tensor, or counted in a list."""

    def counted() -> Callable[[Tensor, float], Any]:
        kept = [1.0]

        def loss(x: Tensor, b: float) -> Any:
            y = fn.apply(x.sin(), kept[0])
            kept[0] *= 1.1
            return (y * y).sum() + y.sum()

        return loss

    def given() -> Callable[[Tensor, float], Any]:
        return lambda x, b: (fn.apply(x.sin(), b) ** 2 * x).sum()

    def read() -> Callable[[Tensor, float], Any]:
        return lambda x, b: (fn.apply(x.sin(), x.abs().mean().item() + 0.5) ** 2 * x).sum()

    return {"counted": counted, "given": given, "read": read}


@pytest.mark.parametrize("how", ["counted", "given", "read"])
@pytest.mark.parametrize("name", PAIRS)
def test_numbers_given_to_functions_vary(name: str, how: str) -> None:
    forward, backward, most = PAIRS[name]
    make = losses(function(forward, backward))[how]
    eager, compiled = make(), gradof.differentiate(make(), strict=True)
    torch.manual_seed(0)
    for i in range(6):
        x = torch.randn(5, dtype=torch.float64)
        found = []
        for loss in (eager, compiled):
            leaf = x.clone().requires_grad_()
            value = loss(leaf, 1.0 if how == "counted" else 1.0 + 0.13 * i)
            (first,) = torch.autograd.grad(value, leaf, create_graph=True)
            (second,) = torch.autograd.grad((first * first).sum(), leaf)
            found.append((value, first, second))
        for have, want in zip(*reversed(found), strict=True):
            torch.testing.assert_close(have, want)
    info = compiled.cache_info()
    assert info.misses <= most and info.eager_runs == 0
    assert info.backward_runs >= 6
