"""Reports of gradients of gradients, forces and forward mode inside compiled code, written anew.

Expected numbers are eager's, or a closed formula's; compiled runs assert that our own code ran.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import gradof
from gradof import differentiate
from gradof.ir.parser import parse_graph
from tests.runtime.compare import assert_compiled, check

Tensor = torch.Tensor
F64 = torch.float64


def _leaf(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(
        shape, dtype=F64, generator=torch.Generator().manual_seed(seed)
    ).requires_grad_()


def test_pina_621_residual_of_a_pde_with_a_laplacian() -> None:
    """The loss of a physics-informed network takes second derivatives of its output."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1)).to(F64)

    def residual(points: Tensor) -> Tensor:
        points = points.detach().requires_grad_()
        u = net(points)
        (du,) = torch.autograd.grad(u.sum(), points, create_graph=True)
        laplacian = torch.zeros(points.shape[0], dtype=F64)
        for i in range(2):
            (ddu,) = torch.autograd.grad(du[:, i].sum(), points, create_graph=True)
            laplacian = laplacian + ddu[:, i]
        source = torch.sin(points[:, 0]) * torch.sin(points[:, 1])
        return (laplacian + source).square().mean()

    points = torch.rand(10, 2, dtype=F64)
    wanted = torch.autograd.grad(residual(points), list(net.parameters()), allow_unused=True)
    compiled = differentiate(residual)
    got = torch.autograd.grad(compiled(points), list(net.parameters()), allow_unused=True)
    for mine, theirs in zip(got, wanted, strict=True):
        assert (mine is None) == (theirs is None)
        if mine is not None:
            torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-11)
    assert compiled.cache_info().backward_runs == 1


class Potential(nn.Module):
    """An energy of pair distances, and forces from it: what force fields are trained with."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 12), nn.SiLU(), nn.Linear(12, 1))

    def energy(self, x: Tensor) -> Tensor:
        i, j = torch.triu_indices(x.shape[0], x.shape[0], offset=1)
        r = (x[i] - x[j]).norm(dim=1, keepdim=True)
        return torch.sum(self.net(r) * torch.exp(-r))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        energy = self.energy(x)
        (gradient,) = torch.autograd.grad(energy, x, create_graph=True)
        return energy, -gradient


@pytest.mark.parametrize("training", [True, False])
def test_torchmd_net_307_energy_and_forces_in_one_module(training: bool) -> None:
    torch.manual_seed(1)
    plain = Potential().to(F64).train(training)
    compiled = differentiate(copy.deepcopy(plain))
    x = _leaf(5, 3)
    for mine, theirs in zip(compiled(x), plain(x), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-12)


def test_cuequivariance_268_forces_are_trained() -> None:
    """The loss on forces reaches every parameter of the energy, as in eager."""
    torch.manual_seed(2)
    plain = Potential().to(F64)
    twin = copy.deepcopy(plain)
    x, target = _leaf(4, 3), torch.randn(4, 3, dtype=F64)
    (plain(x)[1] - target).square().sum().backward()
    (differentiate(twin)(x)[1] - target).square().sum().backward()
    for mine, theirs in zip(twin.parameters(), plain.parameters(), strict=True):
        assert (mine.grad is None) == (theirs.grad is None)
        if theirs.grad is not None:
            torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-9, atol=1e-11)


def test_mace_1008_forces_are_not_silently_zero() -> None:
    torch.manual_seed(3)
    model = differentiate(Potential().to(F64))
    x = _leaf(4, 3)
    _, forces = model(x)
    step = torch.zeros_like(x)
    step[0, 0] = 1e-6
    with torch.no_grad():
        ahead, behind = (Potential.energy(model, x + s) for s in (step, -step))
    assert forces.abs().min() > 0
    torch.testing.assert_close(forces[0, 0], -(ahead - behind) / 2e-6, rtol=1e-6, atol=1e-8)


def test_matgl_784_the_hessian_is_compiled_too() -> None:
    """Elsewhere the Hessian was kept in eager, and nothing said so."""
    torch.manual_seed(4)
    model = Potential().to(F64)

    def energy(x: Tensor) -> Tensor:
        result: Tensor = model.energy(x)
        return result

    x = _leaf(3, 3)
    compiled = differentiate(energy)
    got = gradof.hessian(compiled)(x)
    want = torch.autograd.functional.hessian(energy, x)  # type: ignore[no-untyped-call]
    torch.testing.assert_close(got.detach(), want, rtol=1e-9, atol=1e-11)
    assert compiled.cache_info().backward_runs == 9, "one compiled run for each row"


def test_torchdeq_11_retain_graph_then_again() -> None:
    """A donated buffer must not be lost between two backwards."""
    x = _leaf(4, 3)
    y = differentiate(lambda t: torch.softmax(t, -1).pow(3).sum())(x)
    (first,) = torch.autograd.grad(y, x, retain_graph=True)
    (second,) = torch.autograd.grad(y, x, retain_graph=True)
    (third,) = torch.autograd.grad(y, x)
    assert torch.equal(first, second) and torch.equal(second, third)


def test_tritonbench_40_create_graph_without_donated_buffers() -> None:
    check(lambda x: (torch.softmax(x, -1) * x).pow(3).sum(0), _leaf(4, 3), order=3)


def test_pytorch_91542_gan_two_backwards_over_one_discriminator() -> None:
    """The discriminator's graph is used by both losses; its parameters change between them."""
    torch.manual_seed(5)

    def step(wrap: Callable[[nn.Module], Any]) -> list[Tensor]:
        torch.manual_seed(6)
        maker = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).to(F64)
        judge = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1)).to(F64)
        make, decide = wrap(maker), wrap(judge)
        a = torch.optim.SGD(maker.parameters(), lr=0.1)
        b = torch.optim.SGD(judge.parameters(), lr=0.1)
        noise, real = torch.randn(6, 4, dtype=F64), torch.randn(6, 2, dtype=F64)
        fake = make(noise)
        loss_b = decide(fake.detach()).sigmoid().mean() - decide(real).sigmoid().mean()
        b.zero_grad()
        loss_b.backward()
        b.step()
        loss_a = -decide(fake).sigmoid().mean()
        a.zero_grad()
        loss_a.backward()
        a.step()
        return [p.detach() for p in (*maker.parameters(), *judge.parameters())]

    for mine, theirs in zip(step(differentiate), step(lambda m: m), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-12)


def test_tinygrad_5858_second_derivative_of_a_cube() -> None:
    x = torch.tensor([2.0, -1.0], dtype=F64, requires_grad=True)
    (first,) = torch.autograd.grad(differentiate(lambda t: t**3)(x).sum(), x, create_graph=True)
    assert_compiled([first])
    (second,) = torch.autograd.grad(first.sum(), x)
    torch.testing.assert_close(second, 6 * x.detach())


def test_tinygrad_6164_gradient_penalty() -> None:
    """Two-norm of the critic's gradient minus one, and its gradient in the weights."""

    def penalty(x: Tensor, w: Tensor) -> Tensor:
        score = torch.tanh(x @ w).sum()
        (g,) = torch.autograd.grad(score, x, create_graph=True)
        return torch.mean((torch.linalg.vector_norm(g, dim=1) - 1).square())

    check(penalty, _leaf(4, 3), _leaf(3, 2, seed=1))


def test_pytorch_187284_tangents_are_not_dropped() -> None:
    x, t = torch.rand(4, dtype=F64), torch.rand(4, dtype=F64)
    fn = differentiate(lambda x: torch.sin(x) * x)
    value, tangent = gradof.jvp(fn, (x,), (t,))
    torch.testing.assert_close(value, x.sin() * x)
    torch.testing.assert_close(tangent, t * (x.cos() * x + x.sin()))


def test_pytorch_192985_a_custom_rule_serves_forward_mode_too() -> None:
    """The rule says three times the gradient; the tangent must say so as well."""

    @gradof.custom_vjp
    def tripled(x: Any) -> Any:
        return x * 1.0

    tripled.defvjp(lambda x: (x * 1.0, None), lambda _, g: (3.0 * g,))
    x = torch.rand(3, dtype=F64)
    _, tangent = gradof.jvp(lambda t: tripled(t).sum(), (x,), (torch.ones_like(x),))
    torch.testing.assert_close(tangent, torch.tensor(9.0, dtype=F64))


def test_pytorch_139756_forward_over_reverse() -> None:
    """A Hessian-vector product as the tangent of the gradient equals reverse over reverse."""

    def energy(x: Tensor) -> Tensor:
        return (x.sin() * x.exp()).sum()

    x, v = torch.rand(5, dtype=F64), torch.rand(5, dtype=F64)
    _, forward = gradof.jvp(gradof.grad(energy), (x,), (v,))
    (reverse,) = gradof.hvp(energy, (x,), (v,))
    second = 2 * x.cos() * x.exp()
    torch.testing.assert_close(forward, second * v)
    torch.testing.assert_close(reverse, second * v)


def test_pytorch_113552_the_backward_graph_is_exported() -> None:
    """A backward that can be kept: printed, parsed again, and equal."""
    fn = differentiate(lambda x: (torch.tanh(x) * 2).sum())
    gradient = fn.gradient(_leaf(3))
    assert str(parse_graph(str(gradient.df))) == str(gradient.df)
    assert "GradOf" in str(gradient.df)


def test_numba_8565_a_compiled_gradient_of_a_plain_loop() -> None:
    """JIT and differentiation together, for numpy code with a loop and assignment."""

    def simulate(k: Any, x0: Any) -> Any:
        x = np.zeros(20)
        x[0] = x0
        for i in range(1, 20):
            x[i] = x[i - 1] - 0.1 * k * np.sin(x[i - 1])
        return np.sum(x**2)

    k, x0 = np.array(0.7), np.array(1.2)
    got = gradof.grad(simulate, argnums=(0, 1))(k, x0)
    step = 1e-6
    for grad, (dk, dx) in zip(got, ((step, 0.0), (0.0, step)), strict=True):
        slope = (simulate(k + dk, x0 + dx) - simulate(k - dk, x0 - dx)) / (2 * step)
        np.testing.assert_allclose(grad, slope, rtol=1e-7)


def test_hips_47_gradients_of_many_small_calls_are_compiled_once() -> None:
    gradient = gradof.grad(lambda x: np.sum(np.exp(-x) * np.sin(x)))
    for seed in range(20):
        x = np.random.default_rng(seed).random(50)
        np.testing.assert_allclose(gradient(x), np.exp(-x) * (np.cos(x) - np.sin(x)), rtol=1e-12)
    assert gradient.base.cache_info().entries == 1


def test_pytorch_153251_joint_value_and_gradient_as_one_graph() -> None:
    """One graph from inputs to value and gradient, with nothing saved between."""
    fn = gradof.value_and_grad(lambda x: np.sum(np.tanh(x) ** 2))
    x = np.linspace(-1.0, 1.0, 5)
    value, gradient = fn(x)
    np.testing.assert_allclose(value, np.sum(np.tanh(x) ** 2))
    np.testing.assert_allclose(gradient, 2 * np.tanh(x) / np.cosh(x) ** 2)
    info = fn.base.cache_info()
    assert info.forward_runs == 0 and info.backward_runs == 1, "no separate forward"
