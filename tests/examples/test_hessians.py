"""Hessians of the examples: torch's own for torch, differences of our gradient for numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

import gradof
from tests.examples.test_examples import load

Loss = Callable[[Tensor], Tensor]


def of_module(net: nn.Module, loss: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Loss, Tensor]:
    """The loss of a module as a function of the first parameter, and that parameter."""
    name, parameter = next(iter(net.named_parameters()))

    def fn(value: Tensor) -> Tensor:
        return loss(functional_call(net, {name: value}, (x,)))

    return fn, parameter.detach().clone()


def mlp() -> tuple[Loss, Tensor]:
    module = load("mlp")
    x, w1, b1, w2, b2, y = (t.detach().double() for t in module.example_inputs(n=8, hidden=4))
    return (lambda w: module.loss.fn(x, w1, b1, w, b2, y)), w2


def cnn() -> tuple[Loss, Tensor]:
    torch.manual_seed(0)
    net = load("cnn").lenet(width=2).double().train()
    labels = torch.arange(6) % 10
    return of_module(
        net, lambda out: nn.functional.cross_entropy(out, labels),
        torch.randn(6, 1, 8, 8, dtype=torch.float64),
    )  # fmt: skip


def lstm() -> tuple[Loss, Tensor]:
    torch.manual_seed(0)
    net = nn.LSTM(1, 3, batch_first=True).double()
    first = next(iter(net.parameters())).detach().clone()
    x = torch.randn(2, 5, 1, dtype=torch.float64)

    def fn(value: Tensor) -> Tensor:
        out: Tensor = functional_call(net, {"weight_ih_l0": value}, (x,))[0]
        return out.square().mean()

    return fn, first


def force_matching() -> tuple[Loss, Tensor]:
    module = load("force_matching")
    torch.manual_seed(0)
    positions, forces = module.simulate(2)
    net = module.PairEnergy().double()
    name = "net.4.weight"

    def fn(value: Tensor) -> Tensor:
        at = positions.double().requires_grad_()
        energy = functional_call(net, {name: value}, (at,)).sum()
        (slope,) = torch.autograd.grad(energy, at, create_graph=True)
        value_: Tensor = (slope + forces.double()).square().mean()
        return value_

    return fn, dict(net.named_parameters())[name].detach().clone()


@pytest.mark.parametrize("make", [mlp, cnn, lstm, force_matching])
def test_torch(make: Callable[[], tuple[Loss, Tensor]]) -> None:
    fn, at = make()
    have = gradof.hessian(fn)(at)
    want: Any = torch.autograd.functional.hessian(fn, at)  # type: ignore[no-untyped-call]
    assert isinstance(want, Tensor) and want.abs().max() > 0
    torch.testing.assert_close(have, want, rtol=1e-8, atol=1e-10)


def rosenbrock() -> tuple[Callable[[Any], Any], Any]:
    module = load("rosenbrock")
    return module.rosenbrock, module.example_inputs()[0]


def black_scholes() -> tuple[Callable[[Any], Any], Any]:
    module = load("black_scholes")
    spot, *rest = module.example_inputs()
    return (lambda s: module.total(s, *rest)), spot


def logistic() -> tuple[Callable[[Any], Any], Any]:
    module = load("logistic_regression")
    params, x, y = module.example_inputs()
    n = params["w"].size
    at = np.linspace(-0.2, 0.3, n + 1)
    return (lambda v: module.loss({"w": v[:n], "b": v[n]}, x[:50], y[:50])), at


@pytest.mark.parametrize("make", [rosenbrock, black_scholes, logistic])
def test_numpy(make: Callable[[], tuple[Callable[[Any], Any], Any]]) -> None:
    fn, at = make()
    have = gradof.hessian(fn)(at)
    gradient = gradof.grad(fn)
    for i in range(at.size):
        step = np.zeros_like(at)
        step[i] = 1e-6 * max(1.0, abs(at[i]))
        column = (gradient(at + step) - gradient(at - step)) / (2 * step[i])
        np.testing.assert_allclose(have[:, i], column, rtol=1e-5, atol=1e-6 * np.abs(have).max())
    np.testing.assert_allclose(have, have.T, rtol=1e-9, atol=1e-12 * np.abs(have).max())
