"""`float(x)` and `int(x)` of traced tensors, and ops of torch's that take numbers which vary."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gradof import differentiate
from tests.runtime.compare import close

F = nn.functional


def slopes(x: Tensor, *values: Tensor) -> None:
    """The gradients of ours and of eager's are equal."""
    found, wanted = (torch.autograd.grad(v.sum(), x)[0] for v in values)
    close(found, wanted)


class Logged:
    def __init__(self) -> None:
        self.log: list[float] = []
        self.mean, self.seen = 0.0, 0

    def __call__(self, x: Tensor, k: Tensor) -> Tensor:
        loss = x.square().sum()
        self.log.append(float(loss.detach()))
        self.mean = 0.9 * self.mean + 0.1 * float(loss.detach())
        self.seen += int(k.sum())
        assert isinstance(self.mean, float) and type(float("1")) is float
        return loss * torch.zeros(2, dtype=float).exp().sum().float()  # type: ignore[call-overload, no-any-return]


def test_logged_numbers_are_one_trace() -> None:
    theirs, ours = Logged(), Logged()
    compiled = differentiate(ours)
    for _ in range(12):
        x, k = torch.randn(3, requires_grad=True), torch.randint(5, (3,))
        found, wanted = compiled(x, k), theirs(x, k)
        close(found, wanted)
        slopes(x, found, wanted)
        assert ours.seen == theirs.seen and type(ours.seen) is int
        assert ours.log == pytest.approx(theirs.log) and type(ours.log[-1]) is float
        assert ours.mean == pytest.approx(theirs.mean)
    info = compiled.cache_info()
    assert info.misses <= 2 and info.eager_runs == 0, info


def test_a_number_that_decides_is_a_path() -> None:
    def fn(x: Tensor) -> Tensor:
        return x * 2 if float(x.sum()) > 0 else x * int(x[0])

    compiled = differentiate(fn)
    for values in ([1.0, 2.0], [-3.0, 1.0], [2.0, 2.0], [-4.0, 1.0]):
        close(compiled(torch.tensor(values)), fn(torch.tensor(values)))
    assert compiled.cache_info().misses == 3


def test_a_number_of_a_tensor_has_no_gradient() -> None:
    def fn(x: Tensor) -> Tensor:
        return (x * float(x.detach().sum())).sum()

    x = torch.randn(3, requires_grad=True)
    slopes(x, differentiate(fn)(x), fn(x))


@pytest.mark.parametrize("make", [
    lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, momentum=None)),
    lambda: nn.BatchNorm2d(4, momentum=None),
])  # fmt: skip
def test_a_batch_norm_that_averages_all_batches_is_one_trace(make: Any) -> None:
    theirs = make().double()
    ours = copy.deepcopy(theirs)
    compiled = differentiate(ours)
    shape = (5, 4) if isinstance(theirs, nn.Sequential) else (3, 4, 5, 5)
    for call in range(12):
        for module in (theirs, ours):
            module.train(call not in (5, 6))
        x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
        found, wanted = compiled(x).square(), theirs(x).square()
        close(found, wanted)
        slopes(x, found * x, wanted * x)
        for name, value in theirs.state_dict().items():
            close(ours.state_dict()[name], value, name)
    assert compiled.cache_info().misses == 2


@pytest.mark.parametrize("hard", [False, True])
def test_a_temperature_that_changes_is_an_input(hard: bool) -> None:
    tau = {"now": 1.0}

    def fn(x: Tensor) -> Tensor:
        return F.gumbel_softmax(x, tau["now"], hard=hard) * x

    compiled = differentiate(fn)
    for call in range(10):
        tau["now"] *= 0.9
        x = torch.randn(3, 5, requires_grad=True)
        values = []
        for run in (compiled, fn):
            torch.manual_seed(call)
            values.append(run(x))
        close(values[0], values[1])
        slopes(x, *values)
    assert compiled.cache_info().misses == 2
