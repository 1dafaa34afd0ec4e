"""Calls that are traced as other Python, because torch's own would lose what tracing needs.

`cosine_similarity` clamps its norms in place under no_grad, behind autograd's back; `one_hot` asks
for the largest index. Each replacement gives torch's values and torch's gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

OVERRIDES: dict[Any, Callable[..., Any]] = {}


def _instead_of(*functions: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(replacement: Callable[..., Any]) -> Callable[..., Any]:
        OVERRIDES.update(dict.fromkeys(functions, replacement))
        return replacement

    return register


def _norm_at_least(x: torch.Tensor, dim: int, eps: float) -> torch.Tensor:
    # Below eps the value is eps, and the gradient still that of the norm.
    norm: torch.Tensor = torch.linalg.vector_norm(x, dim=dim, keepdim=True)
    return torch.where(norm < eps, norm - norm.detach() + eps, norm)


@_instead_of(torch.cosine_similarity, torch.nn.functional.cosine_similarity)
def _cosine_similarity(
    x1: torch.Tensor, x2: torch.Tensor, dim: int = 1, eps: float = 1e-8
) -> torch.Tensor:
    dtype = torch.promote_types(x1.dtype, x2.dtype)
    a: torch.Tensor
    b: torch.Tensor
    a, b = torch.broadcast_tensors(x1.to(dtype), x2.to(dtype))  # type: ignore[no-untyped-call]
    return ((a / _norm_at_least(a, dim, eps)) * (b / _norm_at_least(b, dim, eps))).sum(dim)


@_instead_of(torch.bernoulli)
def _bernoulli(
    input: torch.Tensor, p: float | None = None, *, generator: torch.Generator | None = None
) -> torch.Tensor:
    if p is None:
        return torch.ops.aten.bernoulli.default(input, generator=generator)  # type: ignore[no-any-return]
    # Unlike Tensor.bernoulli_, this draws in the order of the dims, however `input` lies.
    fresh = torch.empty_like(input, memory_format=torch.contiguous_format)
    return fresh.bernoulli_(p, generator=generator)


@_instead_of(torch.nn.functional.one_hot)
def _one_hot(tensor: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
    if num_classes < 0:
        num_classes = int(tensor.max()) + 1  # guarded: the trace holds for as many classes
    classes = torch.arange(num_classes, device=tensor.device)
    return (tensor.unsqueeze(-1) == classes).to(torch.int64)
