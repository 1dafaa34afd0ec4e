"""Backwards and optimisers within a torch function, of leaves that it has made or of others."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from gradof import differentiate
from tests.runtime.compare import all_close

OUTSIDE = nn.Parameter(torch.ones(3))
LAYER = nn.Linear(3, 1)
KEPT: dict[str, Any] = {}
Loss = Callable[[Any], Any]


def _assigned(x: Any) -> Any:
    weight = nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for _ in range(3):
        (weight.grad,) = torch.autograd.grad((weight - x.detach()).square().sum(), weight)
        optimizer.step()
    return (weight.detach() * x).sum()


def _adam(x: Any) -> Any:
    net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    for _ in range(4):
        loss = nn.functional.mse_loss(net(x.detach()), torch.ones(1))
        optimizer.zero_grad(set_to_none=False)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    return net(x).sum()


def _clipped(x: Any) -> Any:
    layer = copy.deepcopy(LAYER)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        layer(x.detach()).square().mean().backward()
        nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
        optimizer.step()
    return (layer(x) * LAYER(x)).sum()


def _lbfgs(x: Any) -> Any:
    weight = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.LBFGS([weight], max_iter=3)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (weight - x.detach()).square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    return (weight.detach() * x).sum()


def _accumulated(x: Any) -> Any:
    weight = nn.Parameter(torch.ones(3))
    (weight**2).backward(torch.arange(3.0))  # type: ignore[no-untyped-call]
    (weight**3).backward(x.detach())  # type: ignore[no-untyped-call]
    assert weight.grad is not None
    first = weight.grad.clone()
    weight.grad.zero_()
    loss = (weight**3).sum()
    torch.autograd.backward([loss, (2 * weight).sum()])
    return ((first + weight.grad) * x).sum()


def _by_inputs(x: Any) -> Any:
    weight = nn.Parameter(torch.ones(3))
    (weight * OUTSIDE * x).square().sum().backward(inputs=[weight])
    assert weight.grad is not None
    return (weight.grad * x).sum()


def _kept(x: Any) -> Any:
    weight = nn.Parameter(torch.ones(3))
    (weight**2 * x.detach()).sum().backward()
    KEPT["grad"] = weight.grad
    return 2 * x


def _calls(fn: Loss, call: Loss) -> list[Any]:
    found = list[Any]()
    for n in range(3):
        OUTSIDE.grad = None
        LAYER.zero_grad()
        KEPT.clear()
        torch.manual_seed(n)
        x = (torch.arange(3.0) + n).requires_grad_()
        value = call(x)
        value.sum().backward()
        found += [value, x.grad, OUTSIDE.grad, LAYER.weight.grad, KEPT.get("grad")]
    return [None if tensor is None else tensor.detach() for tensor in found]


@pytest.mark.parametrize(
    "fn", [_assigned, _adam, _clipped, _lbfgs, _accumulated, _by_inputs, _kept]
)
def test_to_leaves_that_the_function_has_made_they_are_compiled(fn: Loss) -> None:
    compiled = differentiate(fn)
    all_close(_calls(fn, compiled), _calls(fn, fn))
    info = compiled.cache_info()
    assert info.eager_runs == 0 and info.forward_runs >= 3


def _to_an_argument(x: Any) -> Any:
    torch.autograd.backward((3 * x).sum())
    return 2 * x


def _to_both(x: Any) -> Any:
    weight = nn.Parameter(torch.zeros(3))
    (weight - OUTSIDE).square().sum().backward()  # type: ignore[no-untyped-call]
    assert weight.grad is not None
    return weight.grad * x


def _of_two(x: Any) -> Any:
    torch.autograd.backward([(OUTSIDE + x).sum(), (2 * OUTSIDE).sum()])
    return 2 * x


def _of_another(x: Any) -> Any:
    LOSS.backward(retain_graph=True)  # type: ignore[no-untyped-call]
    return 2 * x


LOSS = (2 * OUTSIDE).sum()


@pytest.mark.parametrize("fn", [_to_an_argument, _to_both, _of_two, _of_another])
@pytest.mark.filterwarnings("ignore::gradof.errors.EagerWarning")
def test_to_others_they_run_eagerly(fn: Loss) -> None:
    compiled = differentiate(fn)
    all_close(_calls(fn, compiled), _calls(fn, fn))
    assert compiled.cache_info().eager_runs == 3


@pytest.mark.filterwarnings("ignore::gradof.errors.EagerWarning")
def test_in_inference_mode_they_are_the_error_of_eager() -> None:
    def fn(x: Any) -> Any:
        weight = nn.Parameter(torch.ones(3))
        with torch.enable_grad():
            (weight * 2).sum().backward()  # type: ignore[no-untyped-call]
        return x * weight.grad

    for call in (fn, differentiate(fn)):
        with torch.inference_mode(), pytest.raises(RuntimeError, match="does not require grad"):
            call(torch.ones(3))
