"""Programs of torch.func, beside eager: losses and steps that hold gradients of their own.

    python benchmarks/torch_func.py [--rounds 9] [--only NAME]

Networks are small and points few, as in physics: eager's time is that of its calls. A step is the
loss and its gradient by the parameters, in float64 on one thread. Both sides run in one process in
turns, the median of the rounds; the worst ratio comes first. torch.compile is no side of it: it
needs a C++ compiler here.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    stack_module_state,
    vjp,
    vmap,
)

sys.path.insert(0, str(Path(__file__).parents[1]))
import gradof
from benchmarks.tables import geometric_mean, markdown, number, shown, turns

F64 = torch.float64


@dataclass
class Program:
    """A loss, its arguments, and the parameters that its gradient is taken by."""

    loss: Callable[..., Tensor]
    args: tuple[Tensor, ...]
    parameters: list[Tensor]

    def step(self, loss: Callable[..., Tensor]) -> list[Tensor]:
        """Value and gradients of this loss, as it is or compiled."""
        value = loss(*self.args)
        return [value, *torch.autograd.grad(value, self.parameters, materialize_grads=True)]


def _net(inputs: int = 2) -> nn.Sequential:
    layers = [nn.Linear(inputs, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1)]
    return nn.Sequential(*layers).double()


def _scalar(net: nn.Module) -> Callable[[Tensor], Tensor]:
    return lambda z: net(z).squeeze()


# --- physics --------------------------------------------------------------------------------------


def lagrangian(net: nn.Module, state: Tensor, wanted: Tensor) -> Any:
    """Accelerations of a learnt Lagrangian (Cranmer et al. 2020)."""

    def energy(q: Tensor, v: Tensor) -> Any:
        return (net(q) * (v**2).sum() + net(v)).squeeze()

    def acceleration(s: Tensor) -> Any:
        q, v = s[:2], s[2:]
        mass = hessian(energy, 1)(q, v) + torch.eye(2, dtype=F64)
        mixed = jacrev(grad(energy, 1), 0)(q, v)
        return torch.linalg.solve(mass, grad(energy, 0)(q, v) - mixed @ v)

    return (vmap(acceleration)(state) - wanted).pow(2).mean()


def hamiltonian(net: nn.Module, state: Tensor) -> Any:
    """The flow of a learnt Hamiltonian (Greydanus et al. 2019)."""
    turn = torch.tensor([[0.0, 1.0], [-1.0, 0.0]], dtype=F64)
    return (vmap(lambda z: turn @ grad(_scalar(net))(z))(state) - state.flip(1)).pow(2).mean()


def heat(net: nn.Module, points: Tensor) -> Any:
    """The residual of the heat equation, by a Hessian of each point."""

    def residual(z: Tensor) -> Any:
        return grad(_scalar(net))(z)[1] - 0.1 * hessian(_scalar(net))(z)[0, 0]

    return vmap(residual)(points).pow(2).mean()


def burgers(net: nn.Module, points: Tensor) -> Any:
    """The residual of Burgers' equation, by forward mode in forward mode."""
    along_x, along_t = torch.zeros_like(points), torch.zeros_like(points)
    along_x[:, 0], along_t[:, 1] = 1.0, 1.0
    u, u_x, *_ = jvp(net, (points,), (along_x,))
    u_t = jvp(net, (points,), (along_t,))[1]
    u_xx = jvp(lambda z: jvp(net, (z,), (along_x,))[1], (points,), (along_x,))[1]
    return (u_t + u * u_x - 0.01 * u_xx).pow(2).mean()


def elasticity(net: nn.Module, points: Tensor) -> Any:
    """The energy of a neo-Hookean body whose displacements are learnt."""

    def displaced(z: Tensor) -> Any:
        return torch.stack([net(z).squeeze(), net(z.flip(0)).squeeze()])

    def energy(z: Tensor) -> Any:
        strain = torch.eye(2, dtype=F64) + jacrev(displaced)(z)
        volume = torch.linalg.det(strain)
        return 0.5 * ((strain**2).sum() - 2) - volume.abs().log() + 0.5 * (volume - 1) ** 2

    return vmap(energy)(points).mean()


def geodesic(net: nn.Module, points: Tensor) -> Any:
    """Accelerations of geodesics, by Christoffel symbols of a learnt metric."""

    def metric(z: Tensor) -> Any:
        return torch.eye(2, dtype=F64) * (1 + net(z).squeeze() ** 2) + 0.1 * torch.outer(z, z)

    def acceleration(z: Tensor, v: Tensor) -> Any:
        slope, inverse = jacfwd(metric)(z), torch.linalg.inv(metric(z))
        lower = slope.permute(0, 2, 1) + slope - slope.permute(2, 0, 1)
        return -0.5 * torch.einsum("il,ljk,j,k->i", inverse, lower, v, v)

    return vmap(acceleration)(points, points.flip(1)).pow(2).mean()


def virial(net: nn.Module, places: Tensor) -> Any:
    """Energy, forces and virial of pairs of atoms: the gradient by places and by a strain."""
    eye = torch.eye(len(places), dtype=F64)

    def energy(r: Tensor, strain: Tensor) -> Any:
        away = (r[:, None] - r[None]) @ (torch.eye(3, dtype=F64) + strain)
        distance = (away.pow(2).sum(-1) + eye).sqrt().flatten()
        return net(torch.stack([distance, 1 / distance], 1)).sum()

    strain = torch.zeros(3, 3, dtype=F64)
    (forces, stress), value = grad_and_value(energy, (0, 1))(places, strain)
    return forces.pow(2).mean() + stress.pow(2).mean() + 0.01 * value


# --- densities ------------------------------------------------------------------------------------


def score_matching(net: nn.Module, points: Tensor) -> Any:
    """Hyvarinen's objective (2005): the divergence of a score and its square."""
    score = grad(_scalar(net))
    return vmap(lambda z: jacfwd(score)(z).trace() + 0.5 * score(z).pow(2).sum())(points).mean()


def continuous_flow(net: nn.Module, points: Tensor) -> Any:
    """A continuous normalizing flow in four steps, its divergence by Hutchinson's estimate."""
    noise = torch.linspace(-1, 1, points.numel(), dtype=F64).reshape(points.shape).sign()
    z, change = points, torch.zeros(len(points), dtype=F64)
    for _ in range(4):
        step, moved, *_ = jvp(lambda z: net(z) * z, (z,), (noise,))
        z, change = z + 0.1 * step, change + 0.1 * (moved * noise).sum(1)
    return (z.pow(2).sum(1) / 2 - change).mean()


def residual_flow(net: nn.Module, points: Tensor) -> Any:
    """The likelihood of a residual flow, by the determinant of each Jacobian."""

    def flow(z: Tensor) -> Any:
        return z + torch.stack([net(z).squeeze() * 0.1, z[0].sin()])

    logs = torch.linalg.slogdet(vmap(jacfwd(flow))(points))[1]
    return vmap(flow)(points).pow(2).mean() - logs.mean()


# --- learning -------------------------------------------------------------------------------------


def tangent_kernel(net: nn.Module, points: Tensor) -> Any:
    """The empirical neural tangent kernel."""

    def of_parameters(parameters: Any, z: Tensor) -> Any:
        return functional_call(net, parameters, (z,)).squeeze()

    slopes = vmap(jacrev(of_parameters), (None, 0))(dict(net.named_parameters()), points)
    return sum((s.flatten(1) @ s.flatten(1).T).pow(2).mean() for s in slopes.values())


def clipped_by_sample(net: nn.Module, points: Tensor, wanted: Tensor) -> Any:
    """Gradients of each sample, clipped, as of private learning."""

    def loss(parameters: Any, z: Tensor, t: Tensor) -> Any:
        return (functional_call(net, parameters, (z,)).squeeze() - t) ** 2

    parameters = dict(net.named_parameters())
    slopes = list(vmap(grad(loss), (None, 0, 0))(parameters, points, wanted).values())
    sizes = torch.stack([s.flatten(1).pow(2).sum(1) for s in slopes]).sum(0).sqrt()
    kept = (1 / sizes).clamp(max=1)
    total = [(s.flatten(1) * kept[:, None]).mean(0).pow(2).sum() for s in slopes]
    return torch.stack(total).sum()


def meta(net: nn.Module, x: Tensor, y: Tensor, x_new: Tensor, y_new: Tensor) -> Any:
    """One inner step for each of some tasks (MAML, Finn et al. 2017)."""
    parameters = dict(net.named_parameters())

    def loss(parameters: Any, x: Tensor, y: Tensor) -> Any:
        return F.mse_loss(functional_call(net, parameters, (x,)), y)

    def adapted(x: Tensor, y: Tensor, x_new: Tensor, y_new: Tensor) -> Any:
        slopes = grad(loss)(parameters, x, y)
        return loss({k: v - 0.1 * slopes[k] for k, v in parameters.items()}, x_new, y_new)

    return vmap(adapted)(x, y, x_new, y_new).mean()


def natural_gradient(net: nn.Module, points: Tensor) -> Any:
    """A product with the Fisher matrix of a logistic model: forward mode, then reverse."""
    parameters = dict(net.named_parameters())
    ones = {name: torch.ones_like(p) for name, p in parameters.items()}

    def logits(parameters: Any) -> Any:
        return functional_call(net, parameters, (points,)).squeeze(1)

    value, moved, *_ = jvp(logits, (parameters,), (ones,))
    share = torch.sigmoid(value) * (1 - torch.sigmoid(value))
    (found,) = vjp(logits, parameters)[1](share * moved)
    return torch.stack([(f**2).sum() for f in found.values()]).sum()


def newton(weights: Tensor, rows: Tensor, labels: Tensor) -> Any:
    """The loss after three of Newton's steps of a logistic regression."""

    def loss(w: Tensor) -> Any:
        return F.softplus(-(rows @ w) * labels.sign()).sum() + 0.5 * w.pow(2).sum()

    w = weights
    for _ in range(3):
        w = w - torch.linalg.solve(hessian(loss)(w), grad(loss)(w))
    return loss(w) + w.sum()


def gauss_newton(weights: Tensor, rows: Tensor, wanted: Tensor) -> Any:
    """The same of least squares, by Jacobians."""
    w = weights
    for _ in range(3):
        slope = jacfwd(lambda w: torch.tanh(rows @ w) - wanted)(w)
        residual = torch.tanh(rows @ w) - wanted
        matrix = slope.T @ slope + torch.eye(len(w), dtype=F64)
        w = w - torch.linalg.solve(matrix, slope.T @ residual)
    return (torch.tanh(rows @ w) - wanted).pow(2).sum()


def conjugate_gradients(weights: Tensor, rows: Tensor, wanted: Tensor) -> Any:
    """Three steps towards the Newton step, by products with the Hessian."""
    slope = grad(lambda w: torch.log1p((rows @ w - wanted) ** 2).sum())
    residual = slope(weights)
    x, p = torch.zeros_like(residual), residual
    for _ in range(3):
        product = jvp(slope, (weights,), (p,))[1]
        share = residual @ residual / (p @ product)
        x, left = x + share * p, residual - share * product
        p, residual = left + (left @ left) / (residual @ residual) * p, left
    return (x * slope(weights)).sum()


def programs() -> dict[str, Program]:
    """All of them, by name."""
    torch.manual_seed(0)
    net, points = _net(), torch.randn(20, 2, dtype=F64)
    weights = torch.randn(4, dtype=F64, requires_grad=True)
    rows, wanted = torch.randn(12, 4, dtype=F64), torch.randn(12, dtype=F64)
    tasks = [torch.randn(5, 10, n, dtype=F64) for n in (2, 1, 2, 1)]
    of_points = (hamiltonian, heat, burgers, elasticity, geodesic, score_matching,
                 continuous_flow, residual_flow, tangent_kernel, natural_gradient)  # fmt: skip
    given: list[tuple[Callable[..., Tensor], tuple[Tensor, ...]]] = [
        *((fn, (points,)) for fn in of_points),
        (lagrangian, (torch.randn(8, 4, dtype=F64), torch.randn(8, 2, dtype=F64))),
        (virial, (torch.randn(6, 3, dtype=F64),)),
        (clipped_by_sample, (points, torch.randn(20, dtype=F64))),
        (meta, tuple(tasks)),
    ]
    found = {
        fn.__name__: Program(_of_net(fn, net), args, list(net.parameters())) for fn, args in given
    }
    for fn in (newton, gauss_newton, conjugate_gradients):
        found[fn.__name__] = Program(fn, (weights, rows, wanted), [weights])
    parameters, _ = stack_module_state([_net() for _ in range(3)])
    stacked = {name: p.detach().requires_grad_() for name, p in parameters.items()}

    def ensemble(points: Tensor) -> Any:
        """The spread of three networks."""
        return vmap(lambda p: functional_call(net, p, (points,)))(stacked).var(0).mean()

    found["ensemble"] = Program(ensemble, (points,), list(stacked.values()))
    return found


def _of_net(fn: Callable[..., Tensor], net: nn.Module) -> Callable[..., Tensor]:
    def loss(*args: Tensor) -> Any:
        return fn(net, *args)

    return loss


def measured(program: Program, rounds: int) -> tuple[float, float, float]:
    """Seconds of gradof's first step, of a later one, and of eager's."""
    compiled = gradof.differentiate(program.loss, strict=True)
    program.step(program.loss)  # what torch imports by then
    start = time.perf_counter()
    program.step(compiled)
    first = time.perf_counter() - start
    times: dict[str, list[float]] = {"gradof": [], "eager": []}
    for side in turns(times, rounds):
        start = time.perf_counter()
        program.step(compiled if side == "gradof" else program.loss)
        times[side].append(time.perf_counter() - start)
    return first, statistics.median(times["gradof"]), statistics.median(times["eager"])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = {
        name: measured(program, options.rounds)
        for name, program in programs().items() if options.only in name
    }  # fmt: skip
    ratios = {name: ours / eager for name, (_, ours, eager) in found.items()}
    rows = [
        [name.replace("_", " "), number(ratios[name]), shown(found[name][1]), shown(found[name][2]),
         shown(found[name][0])]
        for name in sorted(found, key=lambda name: -ratios[name])
    ]  # fmt: skip
    print(f"torch {torch.__version__}, one thread; geometric mean of the ratios "
          f"{geometric_mean(ratios.values()):.2f}")  # fmt: skip
    print(*markdown(["program", "gradof / eager", "gradof", "eager", "gradof's first step"], rows),
          sep="\n")  # fmt: skip


if __name__ == "__main__":
    main()
