"""A loss with explicit weights: what to point `gradof show` at first.

    gradof show  examples/mlp.py:loss --stage reverse
    python examples/mlp.py

Fits a two-layer perceptron to y = sin(3 x) and prints the loss as it falls.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor

from gradof import differentiate


@differentiate
def loss(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, y: Tensor) -> Tensor:
    """Mean squared error of tanh(x @ w1 + b1) @ w2 + b2: x f32[n,d], y f32[n,k] -> f32[]."""
    hidden = torch.tanh(x @ w1 + b1)
    prediction = hidden @ w2 + b2
    error = prediction - y
    return (error * error).mean()


def example_inputs(n: int = 64, hidden: int = 32) -> tuple[Tensor, ...]:
    """x, w1, b1, w2, b2, y; the weights require grad."""
    generator = torch.Generator().manual_seed(0)
    # Not symmetric about 0: there the biases' gradients are 0, and Adam would follow rounding.
    x = torch.linspace(-1.0, 1.5, n).reshape(n, 1)
    w1 = 2.0 * torch.randn(1, hidden, generator=generator)
    w2 = torch.randn(hidden, 1, generator=generator) / hidden**0.5
    b1, b2 = torch.zeros(hidden), torch.zeros(1)
    for weight in (w1, b1, w2, b2):
        weight.requires_grad_()
    return x, w1, b1, w2, b2, torch.sin(3.0 * x)


def main(argv: list[str] | None = None) -> list[float]:
    """Train; returns the losses."""
    parser = argparse.ArgumentParser(description="a two-layer perceptron")
    parser.add_argument("--steps", type=int, default=300)
    steps = parser.parse_args(argv).steps
    x, *weights, y = example_inputs()
    optimizer = torch.optim.Adam(weights, lr=1e-2)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        value = loss(x, *weights, y)
        value.backward()
        optimizer.step()
        losses.append(value.item())
        if step % 50 == 0 or step == steps - 1:
            print(f"step {step:>4}  loss {losses[-1]:.6f}")
    return losses


if __name__ == "__main__":
    main()
