"""The programs of `loop_programs.py` for JAX, loops as `lax.scan`."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax
from loop_programs import DECAY, INPUTS, MEASURED, OBSERVED, SERIES


def four_ops(x: Any) -> Any:
    """See loop_programs."""
    step = lambda x, _: (x * DECAY + jnp.sin(x) * 0.1, None)  # noqa: E731
    return jnp.sum(lax.scan(step, x, None, length=10_000)[0])


def _rk4(steps: int) -> Any:
    def rate(y: Any) -> Any:
        return jnp.stack([1.1 * y[0] - 0.4 * y[0] * y[1], 0.1 * y[0] * y[1] - 0.4 * y[1]])

    def step(y: Any, _: Any) -> Any:
        h = 0.01
        a = rate(y)
        b = rate(y + h / 2 * a)
        c = rate(y + h / 2 * b)
        d = rate(y + h * c)
        return y + h / 6 * (a + 2 * b + 2 * c + d), None

    return lambda y: jnp.sum(lax.scan(step, y, None, length=steps)[0])


def _hmm(steps: int) -> Any:
    def forward(move: Any, emit: Any, start: Any) -> Any:
        def step(a: Any, seen: Any) -> Any:
            m = a[:, None] + move
            top = jnp.max(m, 0)
            return jnp.log(jnp.sum(jnp.exp(m - top), 0)) + top + emit[:, seen], None

        first = start + emit[:, OBSERVED[0]]
        a, _ = lax.scan(step, first, jnp.asarray(OBSERVED[1:steps]))
        return jnp.log(jnp.sum(jnp.exp(a - jnp.max(a)))) + jnp.max(a)

    return forward


def _kalman(steps: int) -> Any:
    def likelihood(f: Any, h: Any, q: Any, r: Any) -> Any:
        def step(state: Any, z: Any) -> Any:
            x, p, total = state
            x, p = f @ x, f @ p @ f.T + q
            s, v = h @ p @ h.T + r, z - h @ x
            inverse = jnp.linalg.inv(s)
            gain = p @ h.T @ inverse
            total = total - 0.5 * (v @ inverse @ v + jnp.log(jnp.linalg.det(s)))
            return (x + gain @ v, p - gain @ h @ p, total), None

        begin = (jnp.zeros(4), jnp.eye(4), jnp.zeros(()))
        return lax.scan(step, begin, jnp.asarray(MEASURED[:steps]))[0][2]

    return likelihood


def garch(p: Any) -> Any:
    """See loop_programs."""
    def step(state: Any, y: Any) -> Any:
        h, total = state
        return (p[0] + p[1] * y**2 + p[2] * h, total + jnp.log(h) + y**2 / h), None

    begin = (p[0] / (1 - p[1] - p[2]), jnp.zeros(()))
    return lax.scan(step, begin, jnp.asarray(SERIES))[0][1]


def smoothing(a: Any) -> Any:
    """See loop_programs."""
    def step(state: Any, y: Any) -> Any:
        s, e = state
        return (a * y + (1 - a) * s, e + (y - s) ** 2), None

    begin = (jnp.asarray(SERIES[0]), jnp.zeros(()))
    return lax.scan(step, begin, jnp.asarray(SERIES[1:]))[0][1]


def rnn(w: Any, u: Any, h: Any) -> Any:
    """See loop_programs."""
    step = lambda h, x: (jnp.tanh(w @ h + u @ x), None)  # noqa: E731
    h, _ = lax.scan(step, h, jnp.asarray(INPUTS))
    return jnp.sum(h * h)


def heat1(u: Any) -> Any:
    """See loop_programs."""
    def step(u: Any, _: Any) -> Any:
        return u.at[1:-1].add(0.1 * (u[2:] - 2 * u[1:-1] + u[:-2])), None

    u, _ = lax.scan(step, u, None, length=200)
    return jnp.sum(u * u)


def heat2(u: Any) -> Any:
    """See loop_programs."""
    def step(u: Any, _: Any) -> Any:
        moved = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]
        return u.at[1:-1, 1:-1].add(0.1 * moved), None

    u, _ = lax.scan(step, u, None, length=50)
    return jnp.sum(u * u)


def power(a: Any, v: Any) -> Any:
    """See loop_programs."""
    def step(v: Any, _: Any) -> Any:
        v = a @ v
        return v / jnp.sqrt(jnp.sum(v * v)), None

    v, _ = lax.scan(step, v, None, length=100)
    return v @ a @ v


def descent(rate: Any, w: Any) -> Any:
    """See loop_programs."""
    step = lambda w, _: (w - rate * (jnp.tanh(w) * 2.0 + 0.1 * w), None)  # noqa: E731
    w, _ = lax.scan(step, w, None, length=50)
    return jnp.sum(w * w)


SCANS: dict[str, Any] = {
    "four ops, 10000 steps": four_ops, "RK4, 50 steps": _rk4(50), "RK4, 500 steps": _rk4(500),
    "HMM, 200 steps": _hmm(200), "HMM, 2000 steps": _hmm(2000), "Kalman, 60 steps": _kalman(60),
    "Kalman, 600 steps": _kalman(600), "GARCH, 500 steps": garch,
    "exponential smoothing": smoothing, "RNN, 100 steps": rnn, "heat 1-d, 200 steps": heat1,
    "heat 2-d, 50 steps": heat2, "power iteration": power, "descent, 50 steps": descent,
}  # fmt: skip
