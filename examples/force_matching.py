"""Force matching: a network learns a potential from forces alone, through second derivatives.

    python examples/force_matching.py

Argon-like atoms in a cluster, simulated under the Lennard-Jones potential
V = sum over pairs of 4 (r^-12 - r^-6) in reduced units (J. E. Jones, 1924). A network of pair
distances is the energy; forces are minus its gradient, taken inside the loss, and the loss on
forces is differentiated once more for the parameters. torch.compile refuses this; here f and df
are compiled, and the losses are compared with eager's, step by step.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from gradof import differentiate

ATOMS, FRAMES, STEPS = 8, 64, 30


def lennard_jones(positions: Tensor) -> Tensor:
    """Energy of each frame; positions are (frames, atoms, 3)."""
    first, second = torch.triu_indices(ATOMS, ATOMS, 1)
    r2 = (positions[:, first] - positions[:, second]).square().sum(-1)
    inverse = r2.reciprocal() ** 3
    return (4 * (inverse * inverse - inverse)).sum(-1)


def simulate(frames: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Positions and forces of frames along a damped trajectory, velocity Verlet."""
    torch.manual_seed(seed)
    grid = torch.cartesian_prod(*[torch.arange(2.0)] * 3)
    x = (1.2 * grid + 0.05 * torch.randn(ATOMS, 3)).double()[None]
    v = 0.3 * torch.randn_like(x)

    def force(at: Tensor) -> Tensor:
        at = at.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(lennard_jones(at).sum(), at)
        return -gradient

    kept, forces, f, dt = [], [], force(x), 0.004
    for step in range(frames * 20):
        v = (v + dt / 2 * f) * 0.9995
        x = x + dt * v
        f = force(x)
        v = v + dt / 2 * f
        if step % 20 == 19:
            kept.append(x[0])
            forces.append(f[0])
    dtype = torch.get_default_dtype()
    return torch.stack(kept).to(dtype), torch.stack(forces).to(dtype)


class PairEnergy(nn.Module):
    """A network of the inverse distance of each pair, summed."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(3, 32), nn.SiLU(), nn.Linear(32, 32), nn.SiLU(), nn.Linear(32, 1)
        )
        first, second = torch.triu_indices(ATOMS, ATOMS, 1)
        self.register_buffer("first", first)
        self.register_buffer("second", second)

    def forward(self, positions: Tensor) -> Tensor:
        """Energy of each frame."""
        delta = positions[:, self.first] - positions[:, self.second]
        inverse = delta.square().sum(-1, keepdim=True).rsqrt()
        features = torch.cat([inverse, inverse**3, inverse**6], dim=-1)
        return self.net(features).sum((1, 2))


def force_loss(model: nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
    """Mean squared error of the forces; the gradient is taken inside."""

    def loss(positions: Tensor, forces: Tensor) -> Tensor:
        positions = positions.detach().requires_grad_()
        energy = model(positions).sum()
        (gradient,) = torch.autograd.grad(energy, positions, create_graph=True)
        return (gradient + forces).square().mean()

    return loss


def train(compiled: bool, steps: int = STEPS) -> tuple[list[float], float]:
    """Losses, and seconds per step once warm; asserts that compiled code ran."""
    positions, forces = simulate(FRAMES)
    torch.manual_seed(1)
    model = PairEnergy()
    loss = force_loss(model)
    if compiled:
        loss = differentiate(loss, strict=True)  # no turns with eager, which is the other side
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses, start = [], 0.0
    for step in range(steps):
        if step == 3:
            start = time.perf_counter()
        optimizer.zero_grad()
        value = loss(positions, forces)
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
    print(f"loss on forces: {ours[0]:.4f} at first, {ours[-1]:.4f} after {steps} steps")
    print(f"largest relative difference to eager's losses: {apart:.1e}")
    print(f"per step: {fast * 1e3:.2f} ms compiled, {slow * 1e3:.2f} ms eager")


if __name__ == "__main__":
    main()
