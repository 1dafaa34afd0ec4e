"""Programs with loops, as their users write them: plain Python around small arrays.

    program = rk4(50)
    gradof.grad(program.loss)(*program.arguments)       # wrt. the first argument

`test_programs` holds them to their unrolled form, `benchmarks/loops.py` measures them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
RNG = np.random.default_rng(7)


@dataclass(frozen=True)
class Program:
    """A loss and its arguments, of which the first is differentiated."""

    loss: Callable[..., Any]
    arguments: tuple[Any, ...]
    library: str = "numpy"


def rk4(steps: int) -> Program:
    """Lotka-Volterra by Runge and Kutta's method."""

    def slope(x: Array, p: Array) -> Array:
        return np.array([p[0] * x[0] - p[1] * x[0] * x[1], p[2] * x[0] * x[1] - p[3] * x[1]])

    def loss(p: Array) -> Any:
        x, h = np.array([1.0, 0.5]), 5.0 / steps
        for _ in range(steps):
            k1 = slope(x, p)
            k2 = slope(x + h / 2 * k1, p)
            k3 = slope(x + h / 2 * k2, p)
            k4 = slope(x + h * k3, p)
            x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return np.sum(x**2)

    return Program(loss, (np.array([1.1, 0.4, 0.1, 0.4]),))


def hmm(steps: int) -> Program:
    """The likelihood of observations under a hidden Markov model, by the forward algorithm."""

    def loss(logits: Array, emissions: Array, seen: Array) -> Any:
        move = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        alpha = np.full(5, 0.2) * emissions[:, seen[0]]
        total = 0.0
        for t in range(1, len(seen)):
            alpha = (alpha @ move) * emissions[:, seen[t]]
            scale = alpha.sum()
            alpha = alpha / scale
            total = total + np.log(scale)
        return -total

    emissions = RNG.dirichlet(np.ones(3), 5)
    return Program(loss, (RNG.normal(size=(5, 5)), emissions, RNG.integers(0, 3, steps)))


def kalman(steps: int) -> Program:
    """The likelihood of measurements of a moving point, by the Kalman filter."""

    def loss(logs: Array, seen: Array) -> Any:
        move = np.array([[1.0, 0.1], [0.0, 1.0]])
        noise, spread = np.exp(logs[0]) * np.eye(2), np.exp(logs[1])
        x, cov, total = np.zeros(2), np.eye(2), 0.0
        for z in seen:
            x, cov = move @ x, move @ cov @ move.T + noise
            off, var = z - x[0], cov[0, 0] + spread
            gain = cov[:, 0] / var
            x = x + gain * off
            cov = cov - np.outer(gain, cov[0])
            total = total + 0.5 * (np.log(var) + off**2 / var)
        return total

    return Program(loss, (np.array([-3.0, -1.0]), np.cumsum(RNG.normal(size=steps)) * 0.1))


def leapfrog(steps: int) -> Program:
    """Five bodies under their gravity."""

    def pull(x: Array, mass: Array) -> Array:
        apart = x[None] - x[:, None]
        far = (apart**2).sum(axis=2) + 0.1
        pulls: Array = (mass[None, :, None] * apart / far[:, :, None] ** 1.5).sum(axis=1)
        return pulls

    def loss(x: Array, v: Array, mass: Array) -> Any:
        h = 0.01
        a = pull(x, mass)
        for _ in range(steps):
            v = v + 0.5 * h * a
            x = x + h * v
            a = pull(x, mass)
            v = v + 0.5 * h * a
        return np.sum(x**2)

    return Program(loss, (RNG.normal(size=(5, 2)), RNG.normal(size=(5, 2)), RNG.random(5)))


def smoothing(steps: int) -> Program:
    """Exponential smoothing, fitted by its one-step errors."""

    def loss(p: Array, seen: Array) -> Any:
        level, errors = seen[0], []
        rate = 1 / (1 + np.exp(-p[0]))
        for t in range(1, len(seen)):
            errors.append(seen[t] - level)
            level = rate * seen[t] + (1 - rate) * level
        return np.mean(np.stack(errors) ** 2)

    return Program(loss, (np.array([0.3]), np.cumsum(RNG.normal(size=steps))))


def garch(steps: int) -> Program:
    """The likelihood of a GARCH(1,1) model."""

    def loss(p: Array, seen: Array) -> Any:
        var, total = p[0] / (1 - p[1] - p[2]), 0.0
        for r in seen:
            total = total + np.log(var) + r**2 / var
            var = p[0] + p[1] * r**2 + p[2] * var
        return total

    return Program(loss, (np.array([0.1, 0.1, 0.8]), RNG.normal(size=steps)))


def soft_dtw(n: int) -> Program:
    """Soft dynamic time warping, its table filled in place."""

    def loss(x: Array, y: Array) -> Any:
        far = (x[:, None] - y[None]) ** 2
        table = np.full((n + 1, n + 1), 1e6)
        table[0, 0] = 0.0
        for i in range(1, n + 1):
            for j in range(1, n + 1):
                a, b, c = table[i - 1, j], table[i, j - 1], table[i - 1, j - 1]
                low = np.minimum(np.minimum(a, b), c)
                soft = low - np.log(np.exp(low - a) + np.exp(low - b) + np.exp(low - c))
                table[i, j] = far[i - 1, j - 1] + soft
        return table[n, n]

    return Program(loss, (RNG.normal(size=n), RNG.normal(size=n)))


def heat_1d(steps: int) -> Program:
    """Heat along a rod, by slices of what is changed in place."""

    def loss(start: Array) -> Any:
        u = start.copy()
        for _ in range(steps):
            u[1:-1] = u[1:-1] + 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2])
        return np.sum(u**2)

    return Program(loss, (RNG.normal(size=64),))


def heat_2d(steps: int) -> Program:
    """Heat on a plate, by slices."""

    def loss(u: Array) -> Any:
        for _ in range(steps):
            inner = u[1:-1, 1:-1]
            around = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
            u = np.pad(inner + 0.1 * (around - 4 * inner), 1)
        return np.sum(u**2)

    return Program(loss, (RNG.normal(size=(32, 32)),))


def rnn(steps: int) -> Program:
    """A vanilla recurrent network, in numpy."""

    def loss(w: Array, u: Array, xs: Array) -> Any:
        h = np.zeros(16)
        for x in xs:
            h = np.tanh(w @ h + u @ x)
        return np.sum(h**2)

    return Program(
        loss, (RNG.normal(size=(16, 16)) / 4, RNG.normal(size=(16, 8)), RNG.normal(size=(steps, 8)))
    )


def descent(steps: int) -> Program:
    """The gradient through steps of an optimiser with momentum, wrt. its rates."""

    def loss(rates: Array, a: Array) -> Any:
        x, v = np.ones(4), np.zeros(4)
        for _ in range(steps):
            g = a @ x + x**3
            v = rates[1] * v - rates[0] * g
            x = x + v
        return np.sum(x**2)

    a = RNG.normal(size=(4, 4))
    return Program(loss, (np.array([0.02, 0.8]), a @ a.T / 4))


def power(steps: int) -> Program:
    """The largest eigenvalue, by power iteration."""

    def loss(a: Array) -> Any:
        v = np.ones(6)
        for _ in range(steps):
            v = a @ v
            v = v / np.sqrt(v @ v)
        return v @ a @ v

    a = RNG.normal(size=(6, 6))
    return Program(loss, (a + a.T,))


def chain(steps: int) -> Program:
    """Four operations on three numbers, many times."""

    def loss(x: Array) -> Any:
        for _ in range(steps):
            x = np.sin(x) * 0.9 + x * 0.1
        return np.sum(x)

    return Program(loss, (np.array([1.0, 0.5, -0.3]),))


def newton(steps: int) -> Program:
    """Where the cosine of numbers is they themselves, by Newton's method until it is exact."""

    def loss(scale: Array) -> Any:
        x = np.full(scale.shape, 0.5)
        while np.max(np.abs(np.cos(scale * x) - x)) > 1e-12:
            x = x - (np.cos(scale * x) - x) / (-scale * np.sin(scale * x) - 1)
        return np.sum(x)

    return Program(loss, (np.linspace(0.5, 1.5, 10 * steps),))


def gru(steps: int) -> Program:
    """torch's GRU cell, over a sequence."""
    import torch

    torch.manual_seed(0)
    cell = torch.nn.GRUCell(8, 16)
    xs = torch.randn(steps, 4, 8)

    def loss(h: Any) -> Any:
        for x in xs:
            h = cell(x, h)
        return (h**2).sum()

    return Program(loss, (torch.zeros(4, 16, requires_grad=True),), "torch")
