"""The programs of `tests/loops/programs.py` for JAX, loops as `lax.scan`.

`SCANS[name](steps)` takes the arguments of the program. JAX has no reverse of a `while_loop`: for
Newton's method it is told beforehand how many steps these numbers take.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

Loss = Callable[..., Any]


def chain(steps: int) -> Loss:
    """Four operations on three numbers."""
    step = lambda x, _: (jnp.sin(x) * 0.9 + x * 0.1, None)  # noqa: E731
    return lambda x: jnp.sum(lax.scan(step, x, None, length=steps)[0])


def rk4(steps: int) -> Loss:
    """Lotka-Volterra."""

    def slope(x: Any, p: Any) -> Any:
        return jnp.array([p[0] * x[0] - p[1] * x[0] * x[1], p[2] * x[0] * x[1] - p[3] * x[1]])

    def loss(p: Any) -> Any:
        h = 5.0 / steps

        def step(x: Any, _: Any) -> Any:
            k1 = slope(x, p)
            k2 = slope(x + h / 2 * k1, p)
            k3 = slope(x + h / 2 * k2, p)
            k4 = slope(x + h * k3, p)
            return x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4), None

        x, _ = lax.scan(step, jnp.array([1.0, 0.5]), None, length=steps)
        return jnp.sum(x**2)

    return loss


def hmm(steps: int) -> Loss:
    """The forward algorithm."""

    def loss(logits: Any, emissions: Any, seen: Any) -> Any:
        move = jnp.exp(logits) / jnp.exp(logits).sum(axis=1, keepdims=True)

        def step(state: Any, s: Any) -> Any:
            alpha, total = state
            alpha = (alpha @ move) * emissions[:, s]
            scale = alpha.sum()
            return (alpha / scale, total + jnp.log(scale)), None

        begin = (jnp.full(5, 0.2) * emissions[:, seen[0]], jnp.zeros(()))
        return -lax.scan(step, begin, seen[1:])[0][1]

    return loss


def kalman(steps: int) -> Loss:
    """The Kalman filter."""

    def loss(logs: Any, seen: Any) -> Any:
        move = jnp.array([[1.0, 0.1], [0.0, 1.0]])
        noise, spread = jnp.exp(logs[0]) * jnp.eye(2), jnp.exp(logs[1])

        def step(state: Any, z: Any) -> Any:
            x, cov, total = state
            x, cov = move @ x, move @ cov @ move.T + noise
            off, var = z - x[0], cov[0, 0] + spread
            gain = cov[:, 0] / var
            total = total + 0.5 * (jnp.log(var) + off**2 / var)
            return (x + gain * off, cov - jnp.outer(gain, cov[0]), total), None

        return lax.scan(step, (jnp.zeros(2), jnp.eye(2), jnp.zeros(())), seen)[0][2]

    return loss


def leapfrog(steps: int) -> Loss:
    """Five bodies."""

    def pull(x: Any, mass: Any) -> Any:
        apart = x[None] - x[:, None]
        far = (apart**2).sum(axis=2) + 0.1
        return (mass[None, :, None] * apart / far[:, :, None] ** 1.5).sum(axis=1)

    def loss(x: Any, v: Any, mass: Any) -> Any:
        h = 0.01

        def step(state: Any, _: Any) -> Any:
            x, v, a = state
            v = v + 0.5 * h * a
            x = x + h * v
            a = pull(x, mass)
            return (x, v + 0.5 * h * a, a), None

        (x, _, _), _ = lax.scan(step, (x, v, pull(x, mass)), None, length=steps)
        return jnp.sum(x**2)

    return loss


def smoothing(steps: int) -> Loss:
    """Exponential smoothing."""

    def loss(p: Any, seen: Any) -> Any:
        rate = 1 / (1 + jnp.exp(-p[0]))
        step = lambda level, z: (rate * z + (1 - rate) * level, z - level)  # noqa: E731
        _, errors = lax.scan(step, seen[0], seen[1:])
        return jnp.mean(errors**2)

    return loss


def garch(steps: int) -> Loss:
    """GARCH(1,1)."""

    def loss(p: Any, seen: Any) -> Any:
        def step(state: Any, r: Any) -> Any:
            var, total = state
            total = total + jnp.log(var) + r**2 / var
            return (p[0] + p[1] * r**2 + p[2] * var, total), None

        begin = (p[0] / (1 - p[1] - p[2]), jnp.zeros(()))
        return lax.scan(step, begin, seen)[0][1]

    return loss


def soft_dtw(n: int) -> Loss:
    """Soft dynamic time warping: rows of the table by a scan, cells by a scan within."""

    def loss(x: Any, y: Any) -> Any:
        far = (x[:, None] - y[None]) ** 2
        first = jnp.full(n + 1, 1e6).at[0].set(0.0)

        def row(above: Any, costs: Any) -> Any:
            def cell(left: Any, at: Any) -> Any:
                up, corner, cost = at
                low = jnp.minimum(jnp.minimum(up, left), corner)
                soft = low - jnp.log(
                    jnp.exp(low - up) + jnp.exp(low - left) + jnp.exp(low - corner)
                )
                return cost + soft, cost + soft

            begin = jnp.asarray(1e6)
            _, cells = lax.scan(cell, begin, (above[1:], above[:-1], costs))
            return jnp.concatenate([begin[None], cells]), None

        return lax.scan(row, first, far)[0][n]

    return loss


def heat_1d(steps: int) -> Loss:
    """Heat along a rod."""

    def step(u: Any, _: Any) -> Any:
        return u.at[1:-1].set(u[1:-1] + 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2])), None

    return lambda u: jnp.sum(lax.scan(step, u, None, length=steps)[0] ** 2)


def heat_2d(steps: int) -> Loss:
    """Heat on a plate."""

    def step(u: Any, _: Any) -> Any:
        inner = u[1:-1, 1:-1]
        around = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
        return jnp.pad(inner + 0.1 * (around - 4 * inner), 1), None

    return lambda u: jnp.sum(lax.scan(step, u, None, length=steps)[0] ** 2)


def rnn(steps: int) -> Loss:
    """A vanilla recurrent network."""

    def loss(w: Any, u: Any, xs: Any) -> Any:
        step = lambda h, x: (jnp.tanh(w @ h + u @ x), None)  # noqa: E731
        return jnp.sum(lax.scan(step, jnp.zeros(16), xs)[0] ** 2)

    return loss


def gru(steps: int) -> Loss:
    """torch's GRU cell, with the weights that torch drew, in float32."""
    import torch

    torch.manual_seed(0)
    cell = torch.nn.GRUCell(8, 16)
    xs = jnp.asarray(torch.randn(steps, 4, 8).numpy())
    wi, wh, bi, bh = (jnp.asarray(p.detach().numpy()) for p in (
        cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh))  # fmt: skip

    def step(h: Any, x: Any) -> Any:
        a, b = jnp.split(x @ wi.T + bi, 3, -1), jnp.split(h @ wh.T + bh, 3, -1)
        r, z = jax.nn.sigmoid(a[0] + b[0]), jax.nn.sigmoid(a[1] + b[1])
        new = jnp.tanh(a[2] + r * b[2])
        return new + z * (h - new), None

    return lambda h: jnp.sum(lax.scan(step, h, xs)[0] ** 2)


def descent(steps: int) -> Loss:
    """Through steps of an optimiser."""

    def loss(rates: Any, a: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            x, v = state
            v = rates[1] * v - rates[0] * (a @ x + x**3)
            return (x + v, v), None

        return jnp.sum(lax.scan(step, (jnp.ones(4), jnp.zeros(4)), None, length=steps)[0][0] ** 2)

    return loss


def power(steps: int) -> Loss:
    """Power iteration."""

    def loss(a: Any) -> Any:
        def step(v: Any, _: Any) -> Any:
            v = a @ v
            return v / jnp.sqrt(v @ v), None

        v, _ = lax.scan(step, jnp.ones(6), None, length=steps)
        return v @ a @ v

    return loss


def newton(steps: int) -> Loss:
    """Newton's method, of as many steps as it takes."""
    takes = 4

    def loss(scale: Any) -> Any:
        def step(x: Any, _: Any) -> Any:
            far = jnp.max(jnp.abs(jnp.cos(scale * x) - x)) > 1e-12
            new = x - (jnp.cos(scale * x) - x) / (-scale * jnp.sin(scale * x) - 1)
            return jnp.where(far, new, x), None

        return jnp.sum(lax.scan(step, jnp.full(scale.shape, 0.5), None, length=takes)[0])

    return loss


SCANS: dict[str, Callable[[int], Loss]] = {
    f.__name__: f for f in (
        chain, rk4, hmm, kalman, leapfrog, smoothing, garch, soft_dtw, heat_1d, heat_2d, rnn, gru,
        descent, power, newton,
    )
}  # fmt: skip
