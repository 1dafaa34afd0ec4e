"""The functions whose pages are tested and shown: `gradof explore tests/explore/programs.py:NAME`.

The last three have what a newcomer is to find from a page alone: a saved value that could be
computed again, a trace at every call, and a branch that is not taken and spoils the gradient.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

LAYERS, WIDTH, HEADS, STEPS, WORDS = 6, 64, 4, 32, 128


def digits(images: Tensor, labels: Tensor, w: Tensor, b: Tensor, v: Tensor, c: Tensor) -> Tensor:
    h = torch.tanh(images @ w + b)
    logits = h @ v + c
    return F.cross_entropy(logits, labels)


def digits_example_inputs() -> tuple[Tensor, ...]:
    torch.manual_seed(0)
    leaves = [torch.randn(*s).mul(0.1).requires_grad_() for s in ((64, 48), (48,), (48, 10), (10,))]
    return torch.rand(128, 64), torch.randint(0, 10, (128,)), *leaves


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    variance = (centred * centred).mean(-1, keepdim=True)
    normal = centred * torch.rsqrt(variance + 1e-5)
    y = torch.tanh(normal * weight + bias)
    return (y * y).mean()


def layer_norm_example_inputs() -> tuple[Tensor, ...]:
    torch.manual_seed(0)
    return tuple(torch.randn(*s).requires_grad_() for s in ((512, 256), (256,), (256,)))


def attention(x: Tensor, qkv: Tensor, out: Tensor, mask: Tensor) -> Tensor:
    q, k, v = (
        part.view(STEPS, HEADS, -1).transpose(0, 1) for part in torch.split(x @ qkv, WIDTH, dim=-1)
    )
    scores = q @ k.transpose(-1, -2) / (WIDTH // HEADS) ** 0.5
    weights = torch.softmax(scores.masked_fill(mask, float("-inf")), dim=-1)
    joined: Tensor = (weights @ v).transpose(0, 1).reshape(STEPS, WIDTH)
    return joined @ out


def gpt2(words: Tensor, targets: Tensor, parameters: dict[str, Tensor]) -> Tensor:
    p = parameters
    mask = torch.ones(STEPS, STEPS, dtype=torch.bool).triu(1)
    x = p["words"][words] + p["places"]
    for k in range(LAYERS):
        h = F.layer_norm(x, (WIDTH,), p[f"{k}.norm1.w"], p[f"{k}.norm1.b"])
        x = x + attention(h, p[f"{k}.qkv"], p[f"{k}.out"], mask)
        h = F.layer_norm(x, (WIDTH,), p[f"{k}.norm2.w"], p[f"{k}.norm2.b"])
        x = x + F.gelu(h @ p[f"{k}.up"], approximate="tanh") @ p[f"{k}.down"]
    logits = F.layer_norm(x, (WIDTH,), p["norm.w"], p["norm.b"]) @ p["words"].T
    return F.cross_entropy(logits, targets)


def gpt2_example_inputs() -> tuple[Any, ...]:
    torch.manual_seed(0)
    shapes: dict[str, tuple[int, ...]] = {
        "words": (WORDS, WIDTH), "places": (STEPS, WIDTH), "norm.w": (WIDTH,), "norm.b": (WIDTH,)
    }  # fmt: skip
    for k in range(LAYERS):
        shapes |= {
            f"{k}.norm1.w": (WIDTH,), f"{k}.norm1.b": (WIDTH,), f"{k}.qkv": (WIDTH, 3 * WIDTH),
            f"{k}.out": (WIDTH, WIDTH), f"{k}.norm2.w": (WIDTH,), f"{k}.norm2.b": (WIDTH,),
            f"{k}.up": (WIDTH, 4 * WIDTH), f"{k}.down": (4 * WIDTH, WIDTH),
        }  # fmt: skip
    made = {name: (torch.randn(*s) * 0.1).requires_grad_() for name, s in shapes.items()}
    return torch.randint(0, WORDS, (STEPS,)), torch.randint(0, WORDS, (STEPS,)), made


def kalman(log_q: Any, log_r: Any, measured: Any) -> Any:
    """The negative log-likelihood of a position that drifts with a velocity."""
    move = np.array([[1.0, 1.0], [0.0, 1.0]])
    q = np.exp(log_q) * np.eye(2)
    r = np.exp(log_r)
    state, spread, total = np.zeros(2), np.eye(2), 0.0
    for z in measured:
        state = move @ state
        spread = move @ spread @ move.T + q
        surprise = z - state[0]
        scale = spread[0, 0] + r
        gain = spread[:, 0] / scale
        state = state + gain * surprise
        spread = spread - np.outer(gain, spread[0])
        total = total + 0.5 * (np.log(scale) + surprise**2 / scale)
    return total


def kalman_example_inputs() -> tuple[Any, ...]:
    rng = np.random.default_rng(0)
    return np.array(-2.0), np.array(-1.0), np.cumsum(rng.standard_normal(12))


# What a newcomer is to find from a page alone: docs/finding_waste.md tells of these three.


def block(x: Tensor, up: Tensor, down: Tensor) -> Tensor:
    a = x @ up
    s = torch.softmax(F.gelu(a), dim=-1)
    return (s @ down + x).square().mean()


def block_example_inputs() -> tuple[Tensor, ...]:
    torch.manual_seed(0)
    up, down = torch.randn(128, 1024).mul(0.1), torch.randn(1024, 128).mul(0.1)
    return torch.randn(256, 128), up.requires_grad_(), down.requires_grad_()


_WIDTHS = itertools.count(5)


def recent(series: Tensor, width: int) -> Tensor:
    last = series[-width:]
    trend = last.cumsum(0) / width
    return (trend - last).square().sum()


def recent_example_inputs() -> tuple[Any, ...]:
    torch.manual_seed(0)
    return torch.randn(64, requires_grad=True), next(_WIDTHS)


def distance(x: Tensor) -> Tensor:
    return torch.where(x > 0.0, torch.sqrt(torch.relu(x)), 0.0).sum()


def distance_example_inputs() -> tuple[Tensor, ...]:
    torch.manual_seed(0)
    return (torch.randn(64, 64, requires_grad=True),)
