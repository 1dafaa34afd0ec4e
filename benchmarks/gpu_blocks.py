"""Workloads around matrix products: attention written out, an MLP block, a transformer block."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn import functional as F

FEATURES = 64


def attention(q: Any, k: Any, v: Any) -> Any:
    """softmax(q kᵀ) v, as a person writes it."""
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return torch.softmax(scores, -1) @ v


def mlp_block(x: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
    """Two products with a gelu between them, and the residual."""
    return x + F.gelu(x @ w1 + b1, approximate="tanh") @ w2 + b2


def transformer_block(x: Any, wqkv: Any, wo: Any, w1: Any, w2: Any, n1: Any, n2: Any) -> Any:
    """Attention in heads of 64 features, and a gated MLP, each behind an RMS norm."""
    batch, places, width = x.shape
    heads = width // FEATURES
    h = F.rms_norm(x, (width,), n1, 1e-6)
    qkv = (h @ wqkv).reshape(batch, places, 3, heads, FEATURES).permute(2, 0, 3, 1, 4)
    q, k, v = qkv.unbind(0)
    mixed = attention(q, k, v).transpose(1, 2).reshape(batch, places, width)
    x = x + mixed @ wo
    gate, up = (F.rms_norm(x, (width,), n2, 1e-6) @ w1).chunk(2, -1)
    return x + (F.silu(gate) * up) @ w2


def attention_inputs(draw: Any, b: int, h: int, n: int, d: int) -> list[torch.Tensor]:
    """Batch, heads, places, features."""
    return [draw(b, h, n, d) for _ in "qkv"]


def mlp_inputs(draw: Any, n: int, m: int, inner: int) -> list[torch.Tensor]:
    """Rows, features, features inside."""
    small, smaller = m**-0.5, inner**-0.5
    return [draw(n, m), draw(m, inner, scale=small), draw(inner, scale=0.1),
            draw(inner, m, scale=smaller), draw(m, scale=0.1)]  # fmt: skip


def transformer_inputs(draw: Any, b: int, n: int, width: int) -> list[torch.Tensor]:
    """Batch, places, features; four times as many inside the MLP."""
    inner, small = 4 * width, width**-0.5
    shapes = ((width, 3 * width), (width, width), (width, 2 * inner))
    return [draw(b, n, width), *(draw(*s, scale=small) for s in shapes),
            draw(inner, width, scale=inner**-0.5), draw(width), draw(width)]  # fmt: skip
