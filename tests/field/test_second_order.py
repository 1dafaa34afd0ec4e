"""What people report of second derivatives through compiled code, written anew from their gist.

Expected numbers are eager's, in float64; each test asserts that gradof's own code ran.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import nn

from gradof import differentiate
from tests.runtime.compare import assert_compiled, check

Tensor = torch.Tensor


def test_pytorch_91469_double_backward_through_compiled_code() -> None:
    """torch.compile refuses a backward of a backward; here it is one more graph."""

    def fn(x: Tensor, w: Tensor) -> Tensor:
        return torch.tanh(x @ w).pow(3).sum(0)

    torch.manual_seed(0)
    check(fn, torch.randn(4, 3, dtype=torch.float64).requires_grad_(),
          torch.randn(3, 2, dtype=torch.float64).requires_grad_())  # fmt: skip


def test_pytorch_183603_second_order_after_create_graph() -> None:
    """The gradient with create_graph works elsewhere, and the second order after it fails."""
    runs = []
    for wrap in (differentiate, lambda fn: fn):
        x = torch.linspace(0.2, 1.4, 5, dtype=torch.float64).requires_grad_()
        fn: Callable[[Tensor], Tensor] = wrap(lambda t: (t.sin() * t.exp()).sum())
        value = fn(x)
        (first,) = torch.autograd.grad(value, x, create_graph=True)
        if wrap is differentiate:
            assert_compiled([value])
        (second,) = torch.autograd.grad((first**2).sum(), x, create_graph=True)
        (third,) = torch.autograd.grad(second.sum(), x)
        runs.append((value, first, second, third))
    for mine, theirs in zip(*runs, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)


def test_pytorch_133230_a_module_that_calls_autograd_grad_itself() -> None:
    """A module whose forward takes a gradient cannot be compiled as one graph elsewhere."""

    class Force(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.energy = nn.Sequential(nn.Linear(3, 8), nn.SiLU(), nn.Linear(8, 1))

        def forward(self, x: Tensor) -> Tensor:
            x = x.detach().requires_grad_()
            (g,) = torch.autograd.grad(self.energy(x).sum(), x, create_graph=True)
            return -g

    torch.manual_seed(0)
    net = Force().double()
    twin = copy.deepcopy(net)
    x, want = torch.randn(5, 3).double(), torch.randn(5, 3).double()
    compiled = differentiate(net)
    for module in (compiled, twin):
        torch.autograd.backward((module(x) - want).square().mean())
    for mine, theirs in zip(net.parameters(), twin.parameters(), strict=True):
        assert (mine.grad is None) == (theirs.grad is None)
        if mine.grad is not None:
            torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-10, atol=1e-13)
    assert compiled.cache_info().backward_runs == 1


def test_pytorch_181581_second_order_is_not_silently_wrong() -> None:
    """A second derivative that was silently wrong: saved values carry their own gradient."""

    def fn(x: Tensor) -> Tensor:
        h = torch.sigmoid(x)
        s = torch.softmax(h * x, dim=-1)
        return (s * h).sum(-1) + torch.nn.functional.layer_norm(s, (4,)).pow(2).sum(-1)

    torch.manual_seed(1)
    check(fn, torch.randn(3, 4, dtype=torch.float64).requires_grad_())
