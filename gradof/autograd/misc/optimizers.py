"""Stochastic optimizers of nests of arrays: `optimizer(grad, x0, callback=None, num_iters=...)`.

`grad(x, i)` and `callback(x, i, g)` take what `x0` is like; i counts the steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradof.autograd.misc.flatten import flatten
from gradof.autograd.wrap_util import wraps

Function = Callable[..., Any]


def unflatten_optimizer(optimize: Function) -> Function:
    """An optimizer of flat arrays as one of nests."""

    @wraps(optimize)
    def of_nests(
        grad: Function, x0: Any, callback: Function | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        flat, unflatten = flatten(x0)

        def flat_grad(x: Any, i: int) -> Any:
            return flatten(grad(unflatten(x), i))[0]

        def told(x: Any, i: int, g: Any) -> None:
            if callback is not None:
                callback(unflatten(x), i, unflatten(g))

        return unflatten(optimize(flat_grad, flat, told, *args, **kwargs))

    made: Function = of_nests
    return made


@unflatten_optimizer
def sgd(
    grad: Function, x: Any, callback: Function, num_iters: int = 200, step_size: float = 0.1,
    mass: float = 0.9,
) -> Any:  # fmt: skip
    """Gradient descent with momentum."""
    velocity = np.zeros(len(x))
    for i in range(num_iters):
        g = grad(x, i)
        callback(x, i, g)
        velocity = mass * velocity - (1.0 - mass) * g
        x = x + step_size * velocity
    return x


@unflatten_optimizer
def rmsprop(
    grad: Function, x: Any, callback: Function, num_iters: int = 100, step_size: float = 0.1,
    gamma: float = 0.9, eps: float = 1e-8,
) -> Any:  # fmt: skip
    """Steps scaled by a running root mean square of the gradients."""
    mean_square = np.ones(len(x))
    for i in range(num_iters):
        g = grad(x, i)
        callback(x, i, g)
        mean_square = mean_square * gamma + g**2 * (1 - gamma)
        x = x - step_size * g / (np.sqrt(mean_square) + eps)
    return x


@unflatten_optimizer
def adam(
    grad: Function, x: Any, callback: Function, num_iters: int = 100, step_size: float = 0.001,
    b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8,
) -> Any:  # fmt: skip
    """Adam (Kingma and Ba, 2014)."""
    mean, mean_square = np.zeros(len(x)), np.zeros(len(x))
    for i in range(num_iters):
        g = grad(x, i)
        callback(x, i, g)
        mean = b1 * mean + (1 - b1) * g
        mean_square = b2 * mean_square + (1 - b2) * g**2
        corrected = mean / (1 - b1 ** (i + 1))
        x = x - step_size * corrected / (np.sqrt(mean_square / (1 - b2 ** (i + 1))) + eps)
    return x
