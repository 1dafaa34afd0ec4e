"""Training as people do it: two backwards, micro-batches, threads, hooks, loops on a value."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import gradof
from gradof import differentiate

Tensor = torch.Tensor


def pair(make: Callable[[], nn.Module]) -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    net = make().double()
    return net, copy.deepcopy(net)


def same_parameters(mine: nn.Module, theirs: nn.Module) -> None:
    for a, b in zip(mine.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


def test_a_gan_step_has_two_backwards_over_shared_graphs() -> None:
    (g1, g2), (d1, d2) = (
        pair(lambda: nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))),
        pair(lambda: nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))),
    )
    real, noise = torch.randn(16, 2).double(), torch.randn(16, 3).double()

    def step(generator: Any, critic: Any, g: nn.Module, d: nn.Module) -> None:
        og = torch.optim.Adam(g.parameters(), lr=1e-2)
        od = torch.optim.Adam(d.parameters(), lr=1e-2)
        for _ in range(4):
            fake = generator(noise)
            od.zero_grad()
            loss = functional.softplus(critic(fake.detach())).mean()
            loss = loss + functional.softplus(-critic(real)).mean()
            torch.autograd.backward(loss)
            od.step()
            og.zero_grad()
            torch.autograd.backward(functional.softplus(-critic(fake)).mean())
            og.step()

    mine_g, mine_d = differentiate(g1), differentiate(d1)
    step(mine_g, mine_d, g1, d1)
    step(g2, d2, g2, d2)
    same_parameters(g1, g2)
    same_parameters(d1, d2)
    assert mine_g.cache_info().backward_runs == 4
    assert mine_d.cache_info().backward_runs == 12


def test_four_micro_batches_accumulate_to_one_batch() -> None:
    net, twin = pair(lambda: nn.Sequential(nn.Linear(5, 7), nn.GELU(), nn.Linear(7, 3)))
    x, t = torch.randn(32, 5).double(), torch.randint(0, 3, (32,))
    compiled = differentiate(net)
    for part, labels in zip(x.chunk(4), t.chunk(4), strict=True):
        torch.autograd.backward(functional.cross_entropy(compiled(part), labels) / 4)
    torch.autograd.backward(functional.cross_entropy(twin(x), t))
    for a, b in zip(net.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-10, atol=1e-13)
    assert compiled.cache_info().backward_runs == 4


def test_a_gradient_penalty_and_clipping() -> None:
    net, twin = pair(lambda: nn.Sequential(nn.Linear(4, 9), nn.Tanh(), nn.Linear(9, 1)))
    x = torch.randn(6, 4).double()

    def penalised(critic: Any) -> Callable[[Tensor], Tensor]:
        def loss(points: Tensor) -> Tensor:
            points = points.detach().requires_grad_()
            value = critic(points)
            (slope,) = torch.autograd.grad(value.sum(), points, create_graph=True)
            total: Tensor = value.mean() + ((slope.norm(dim=1) - 1) ** 2).mean()
            return total

        return loss

    compiled = differentiate(penalised(net))
    norms = []
    for loss, module in ((compiled, net), (penalised(twin), twin)):
        torch.autograd.backward(loss(x))
        norms.append(nn.utils.clip_grad_norm_(module.parameters(), 0.1))
    torch.testing.assert_close(norms[0], norms[1], rtol=1e-10, atol=0)
    for a, b in zip(net.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-9, atol=1e-12)
    assert compiled.cache_info().backward_runs == 1


def test_a_loop_until_a_tolerance_with_assignments() -> None:
    def relaxed(a: Any) -> Any:
        u = np.zeros(8)
        error, tol = 1.0, 1e-3
        while error > tol:
            old = u.copy()
            u[1:-1] = 0.5 * (u[2:] + u[:-2]) * 0.9 + a[1:-1]
            u[0] = a[0] * u[1]
            error = np.max(np.abs(u - old))
        return np.sum(u**2)

    compiled = gradof.grad(relaxed)
    for scale in (0.3, 0.1):
        a = scale * np.linspace(0.1, 1, 8)
        grads = compiled(a)
        for i in range(8):
            step = np.zeros(8)
            step[i] = 1e-6
            slope = (relaxed(a + step) - relaxed(a - step)) / 2e-6
            assert grads[i] == pytest.approx(slope, rel=1e-6, abs=1e-8)
    text = str(differentiate(relaxed).explain(0.3 * np.linspace(0.1, 1, 8)))
    assert "values read by Python" in text and "test_training.py" in text


def test_eight_threads_and_one_compile_per_signature() -> None:
    def loss(x: Tensor, training: bool) -> Tensor:
        y = torch.tanh(x * 2.0)
        return (y * y).sum() if training else y.sum()

    compiled = differentiate(loss, static_argnames=("training",))
    shapes = [(3,), (4, 2), (5,), (2, 2, 2)]
    failures: list[str] = []
    start = threading.Barrier(8)

    def work(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        start.wait()
        for k in range(24):
            shape, training = shapes[(k + seed) % 4], bool((k // 4) % 2)
            x = torch.randn(shape, generator=generator, dtype=torch.float64)
            mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
            with torch.set_grad_enabled(k % 5 != 0):
                value, want = compiled(mine, training), loss(theirs, training)
            if not torch.allclose(value, want, rtol=1e-12):
                failures.append(f"value {shape} {training}")
            if value.requires_grad != want.requires_grad:
                failures.append(f"requires_grad {shape} {training}")
            if want.requires_grad:
                (a,), (b,) = torch.autograd.grad(value, mine), torch.autograd.grad(want, theirs)
                if not torch.allclose(a, b, rtol=1e-12):
                    failures.append(f"gradient {shape} {training}")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[:5]
    info = compiled.cache_info()
    signatures = 4 * 2 * 2  # shapes, training, grad mode
    assert info.misses == info.entries == signatures
