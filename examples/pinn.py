"""A physics-informed network for Burgers' equation u_t + u u_x = nu u_xx, nu = 0.01 / pi.

    python examples/pinn.py

After M. Raissi, P. Perdikaris, G. Karniadakis, "Physics-informed neural networks" (2019): u(0, x) =
-sin(pi x), u(t, -1) = u(t, 1) = 0. The residual takes first and second derivatives of the network
inside the loss, whose gradient is compiled; losses are compared with eager's, step by step.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from gradof import differentiate

POINTS, STEPS = 1000, 30
NU = 0.01 / math.pi


def network() -> nn.Sequential:
    """u(t, x)."""
    layers: list[nn.Module] = [nn.Linear(2, 32), nn.Tanh()]
    for _ in range(3):
        layers += [nn.Linear(32, 32), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(32, 1))


def burgers(model: nn.Module) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Mean squared residual inside, and error on the initial and boundary values."""

    def loss(inside: Tensor, edge: Tensor, known: Tensor) -> Tensor:
        t, x = inside[:, :1].requires_grad_(), inside[:, 1:].requires_grad_()
        u = model(torch.cat([t, x], dim=1))
        u_t, u_x = torch.autograd.grad(u.sum(), (t, x), create_graph=True)
        (u_xx,) = torch.autograd.grad(u_x.sum(), x, create_graph=True)
        residual = u_t + u * u_x - NU * u_xx
        return residual.square().mean() + (model(edge) - known).square().mean()

    return loss


def data(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Points inside, points on the edge, and u there."""
    torch.manual_seed(seed)
    inside = torch.stack([torch.rand(POINTS), 2 * torch.rand(POINTS) - 1], dim=1)
    x = 2 * torch.rand(100, 1) - 1
    start = torch.cat([torch.zeros_like(x), x], dim=1)
    walls = torch.cat([torch.rand(100, 1), torch.sign(torch.randn(100, 1))], dim=1)
    known = torch.cat([-torch.sin(math.pi * x), torch.zeros(100, 1)])
    return inside, torch.cat([start, walls]), known


def train(compiled: bool, steps: int = STEPS) -> tuple[list[float], float]:
    """Losses, and seconds per step once warm; asserts that compiled code ran."""
    inside, edge, known = data()
    torch.manual_seed(1)
    model = network()
    loss = burgers(model)
    if compiled:
        loss = differentiate(loss, strict=True)  # no turns with eager, which is the other side
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    losses, start = [], 0.0
    for step in range(steps):
        if step == 3:
            start = time.perf_counter()
        optimizer.zero_grad()
        value = loss(inside, edge, known)
        value.backward()
        optimizer.step()
        losses.append(value.item())
    if compiled:
        assert loss.cache_info().backward_runs == steps
    return losses, (time.perf_counter() - start) / (steps - 3)


def main(steps: int = STEPS) -> None:
    """Train both, and print how far apart they are."""
    ours, fast = train(compiled=True, steps=steps)
    theirs, slow = train(compiled=False, steps=steps)
    apart = max(abs(a - b) / b for a, b in zip(ours, theirs, strict=True))
    print(f"loss: {ours[0]:.4f} at first, {ours[-1]:.4f} after {steps} steps")
    print(f"largest relative difference to eager's losses: {apart:.1e}")
    print(f"per step: {fast * 1e3:.2f} ms compiled, {slow * 1e3:.2f} ms eager")


if __name__ == "__main__":
    main()
