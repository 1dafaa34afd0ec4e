"""Programs of `loops.py`, as people write them: a Python loop over small arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

RNG = np.random.default_rng(0)
OBSERVED = RNG.integers(0, 6, 2000)
SERIES = RNG.standard_normal(500)
INPUTS = RNG.standard_normal((100, 8))
MEASURED = RNG.standard_normal((600, 2))


@dataclass(frozen=True)
class Program:
    """A function of arrays whose value is one number."""

    name: str
    fn: Callable[..., Any]
    arrays: tuple[Any, ...]
    argnums: tuple[int, ...]


def four_ops(x: Any) -> Any:
    """Ten thousand steps of four ops on three numbers."""
    for _ in range(10_000):
        x = x * DECAY + np.sin(x) * 0.1
    return np.sum(x)


DECAY = np.array([0.9, 0.8, 0.7])


def _rk4(steps: int) -> Callable[..., Any]:
    def rate(y: Any) -> Any:
        return np.stack([1.1 * y[0] - 0.4 * y[0] * y[1], 0.1 * y[0] * y[1] - 0.4 * y[1]])

    def rk4(y: Any) -> Any:
        h = 0.01
        for _ in range(steps):
            a = rate(y)
            b = rate(y + h / 2 * a)
            c = rate(y + h / 2 * b)
            d = rate(y + h * c)
            y = y + h / 6 * (a + 2 * b + 2 * c + d)
        return np.sum(y)

    return rk4


def _hmm(steps: int) -> Callable[..., Any]:
    def forward(move: Any, emit: Any, start: Any) -> Any:
        a = start + emit[:, OBSERVED[0]]
        for t in range(1, steps):
            m = a[:, None] + move
            top = np.max(m, 0)
            a = np.log(np.sum(np.exp(m - top), 0)) + top + emit[:, OBSERVED[t]]
        return np.log(np.sum(np.exp(a - np.max(a)))) + np.max(a)

    return forward


def _kalman(steps: int) -> Callable[..., Any]:
    def likelihood(f: Any, h: Any, q: Any, r: Any) -> Any:
        x, p, total = np.zeros(4), np.eye(4), 0.0
        for t in range(steps):
            x, p = f @ x, f @ p @ f.T + q
            s, v = h @ p @ h.T + r, MEASURED[t] - h @ x
            inverse = np.linalg.inv(s)
            gain = p @ h.T @ inverse
            total = total - 0.5 * (v @ inverse @ v + np.log(np.linalg.det(s)))
            x, p = x + gain @ v, p - gain @ h @ p
        return total

    return likelihood


def garch(p: Any) -> Any:
    """The likelihood of a GARCH(1, 1)."""
    h, total = p[0] / (1 - p[1] - p[2]), 0.0
    for t in range(500):
        total = total + np.log(h) + SERIES[t] ** 2 / h
        h = p[0] + p[1] * SERIES[t] ** 2 + p[2] * h
    return total


def smoothing(a: Any) -> Any:
    """Errors of exponential smoothing."""
    s, e = SERIES[0], 0.0
    for t in range(1, 500):
        e = e + (SERIES[t] - s) ** 2
        s = a * SERIES[t] + (1 - a) * s
    return e


def rnn(w: Any, u: Any, h: Any) -> Any:
    """A recurrent network of 16 units over 100 inputs."""
    for t in range(100):
        h = np.tanh(w @ h + u @ INPUTS[t])
    return np.sum(h * h)


def heat1(u: Any) -> Any:
    """200 steps on 100 points, by slices."""
    for _ in range(200):
        u = np.concatenate([u[:1], u[1:-1] + 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2]), u[-1:]])
    return np.sum(u * u)


def heat2(u: Any) -> Any:
    """50 steps on 64 x 64 points, written into."""
    for _ in range(50):
        u = u.copy()
        u[1:-1, 1:-1] = u[1:-1, 1:-1] + 0.1 * (
            u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]
        )
    return np.sum(u * u)


def power(a: Any, v: Any) -> Any:
    """A hundred steps of power iteration."""
    for _ in range(100):
        v = a @ v
        v = v / np.sqrt(np.sum(v * v))
    return v @ a @ v


def descent(rate: Any, w: Any) -> Any:
    """A loss after fifty steps of gradient descent, by its rate."""
    for _ in range(50):
        w = w - rate * (np.tanh(w) * 2.0 + 0.1 * w)
    return np.sum(w * w)


def _normal(*shape: int, by: float = 1.0) -> Any:
    return RNG.standard_normal(shape) * by


_MOVE = (np.eye(4) + _normal(4, 4, by=0.05), _normal(2, 4), 0.1 * np.eye(4), 0.5 * np.eye(2))
PROGRAMS = (
    Program("four ops, 10000 steps", four_ops, (np.ones(3),), (0,)),
    Program("RK4, 50 steps", _rk4(50), (np.array([10.0, 5.0]),), (0,)),
    Program("RK4, 500 steps", _rk4(500), (np.array([10.0, 5.0]),), (0,)),
    Program("HMM, 200 steps", _hmm(200), (_normal(4, 4), _normal(4, 6), _normal(4)), (0, 1, 2)),
    Program("HMM, 2000 steps", _hmm(2000), (_normal(4, 4), _normal(4, 6), _normal(4)), (0, 1, 2)),
    Program("Kalman, 60 steps", _kalman(60), _MOVE, (0, 1, 2, 3)),
    Program("Kalman, 600 steps", _kalman(600), _MOVE, (0, 1, 2, 3)),
    Program("GARCH, 500 steps", garch, (np.array([0.1, 0.1, 0.8]),), (0,)),
    Program("exponential smoothing", smoothing, (np.array(0.3),), (0,)),
    Program("RNN, 100 steps", rnn, (_normal(16, 16, by=0.2), _normal(16, 8, by=0.2),
                                    np.zeros(16)), (0, 1, 2)),
    Program("heat 1-d, 200 steps", heat1, (_normal(100),), (0,)),
    Program("heat 2-d, 50 steps", heat2, (_normal(64, 64),), (0,)),
    Program("power iteration", power, (np.eye(20) + _normal(20, 20, by=0.1), _normal(20)), (0,)),
    Program("descent, 50 steps", descent, (np.array(0.05), _normal(10)), (0, 1)),
)  # fmt: skip
