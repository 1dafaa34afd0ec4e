"""State that keeps the history of the calls before, as where nobody has detached it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from gradof import differentiate

Tensor = torch.Tensor


class Normed(torch.nn.Module):
    """A batch norm whose running mean is never detached; in place, or assigned."""

    mean: Tensor

    def __init__(self, in_place: bool) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(0.5, 1.5, 3))
        self.register_buffer("mean", torch.zeros(3))
        self.in_place = in_place

    def forward(self, x: Tensor) -> Tensor:
        mean = self.mean
        if self.training:
            mean = x.mean(0)
            if self.in_place:
                self.mean.mul_(0.9).add_(0.1 * mean)
            else:
                self.mean = 0.9 * self.mean + 0.1 * mean
        result: Tensor = ((x - mean) * self.weight).tanh()
        return result


def steps(model: Any, net: torch.nn.Module) -> list[Tensor]:
    found = []
    made = torch.linspace(0.2, 0.4, 3, requires_grad=True)
    for n in range(5):
        torch.manual_seed(n)
        x = (torch.randn(4, 3) * made).exp()  # its graph is freed by each backward
        net.zero_grad()
        model(x).square().sum().backward()
        assert made.grad is not None
        found += [made.grad.clone(), *(p.grad for p in net.parameters() if p.grad is not None)]
    net.eval()
    z = torch.ones(2, 3, requires_grad=True)
    found += torch.autograd.grad(model(z).sum(), [z, *net.parameters()])
    return [*found, *(b.detach() for b in net.buffers())]


@pytest.mark.parametrize("in_place", [False, True])
def test_a_running_mean_with_a_history(in_place: bool) -> None:
    net = Normed(in_place)
    other = copy.deepcopy(net)
    compiled = differentiate(other)
    for mine, theirs in zip(steps(compiled, other), steps(net, net), strict=True):
        torch.testing.assert_close(mine, theirs)
    info = compiled.cache_info()
    assert (info.forward_runs, info.eager_runs) == (6, 0)
    assert other.mean.requires_grad


def test_under_torchs_checkpoints() -> None:
    """torch ends the second run of a stretch in the midst of it, by a hook."""
    found = []
    for wraps in (False, True):
        net = Normed(in_place=False)
        model = differentiate(net) if wraps else net
        made = torch.linspace(0.2, 0.4, 3, requires_grad=True)
        for n in range(3):
            x = (torch.arange(12.0).reshape(4, 3) * 0.1 + n) * made
            y = torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False)
            y.square().sum().backward()
        found.append([made.grad, net.weight.grad, net.mean.detach()])
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_its_gradient_goes_through_all_the_calls() -> None:
    class Sum(torch.nn.Module):
        total: Tensor = torch.zeros(3)

        def forward(self, x: Tensor, w: Tensor) -> Tensor:
            self.total = self.total * w + x
            return (x * x).sum()

    found = []
    for wraps in (False, True):
        net = Sum()
        model = differentiate(net) if wraps else net
        x, w = torch.ones(3, requires_grad=True), torch.full((3,), 0.5, requires_grad=True)
        for n in range(4):
            assert model(x * (n + 1.0), w).requires_grad
        found.append([net.total.detach(), *torch.autograd.grad(net.total.sum(), [x, w])])
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.filterwarnings("ignore::gradof.errors.RetraceWarning")  # the queue grows
def test_what_is_not_freed_in_eager_can_be_gone_through_again() -> None:
    """A queue of views: a step's gradients go through the views of the steps before."""

    class Sliding(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.linspace(0.5, 1.0, 3))
            self.queue: list[Tensor] = []

        def forward(self, x: Tensor) -> Tensor:
            queue = [*self.queue, x.flatten()][-3:]
            rows = torch.stack(queue, -1) * self.weight[: len(queue)]
            self.queue = list(queue)
            return (rows.sum(-1) - 0.1).sigmoid().view(x.shape)

    found = []
    for wraps in (False, True):
        net = Sliding()
        model = differentiate(net) if wraps else net
        xs = [torch.full((3, 2), n + 1.0, requires_grad=True) for n in range(6)]
        for x in xs:
            model(x).sum().backward()
        found.append([*(x.grad for x in xs), net.weight.grad])
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs)
