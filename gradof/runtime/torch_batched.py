"""Backwards that vmap runs for many cotangents at once: ours runs for one after the other.

    torch.autograd.grad(y, x, cotangents, is_grads_batched=True)
    torch.autograd.functional.jacobian(fn, x, vectorize=True)
    torch.func.vmap(lambda v: torch.autograd.grad(y, x, v, retain_graph=True))(cotangents)

vmap hands over tensors that hide the dimension it maps over. Compiled code reads memory, so it is
given the slices, and the gradients are put together as vmap wants them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

Tensor = torch.Tensor
Gradients = tuple[Tensor | None, ...]

_private: Any = torch._C
_functorch: Any = torch._C._functorch
_torch: Any = torch


def batch_of(cotangents: Sequence[Tensor | None]) -> Batch | None:
    """The batch that cotangents are of; None for those that are as they seem."""
    for cotangent in cotangents:
        if cotangent is None:
            continue
        if _functorch.is_batchedtensor(cotangent):
            return Batch(_functorch.maybe_get_level(cotangent), legacy=False)
        if _functorch.is_legacy_batchedtensor(cotangent):
            level = _private._vmapmode_increment_nesting() - 1
            _private._vmapmode_decrement_nesting()
            return Batch(level, legacy=True)
    return None


class Batch:
    """A level of vmap, or of the older one within torch.autograd."""

    def __init__(self, level: int, legacy: bool) -> None:
        self._level = level
        self._legacy = legacy

    def map(
        self, backward: Callable[..., Sequence[Tensor | None]], cotangents: Sequence[Tensor | None]
    ) -> Gradients:
        """The gradients of each slice of the cotangents, as a batch."""
        whole = [None if c is None else self._visible(c) for c in cotangents]
        size = next(w[0].shape[0] for w in whole if w is not None and w[1])
        rows = []
        for i in range(size):
            slices = [None if w is None else w[0][i] if w[1] else w[0] for w in whole]
            rows.append(backward(*slices))
        return tuple(self._together(column) for column in zip(*rows, strict=True))

    def _visible(self, cotangent: Tensor) -> tuple[Tensor, bool]:
        """A tensor with the batch as its first dimension, or one without it; which it is."""
        if not self._legacy:
            if _functorch.maybe_get_level(cotangent) != self._level:
                return cotangent, False
            dim = _functorch.maybe_get_bdim(cotangent)
            return _functorch.get_unwrapped(cotangent).movedim(dim, 0), True
        if not _functorch.is_legacy_batchedtensor(cotangent):
            return cotangent, False
        return _torch._remove_batch_dim(cotangent, self._level, 1, 0), True

    def _together(self, gradients: Sequence[Tensor | None]) -> Tensor | None:
        given = [g for g in gradients if g is not None]
        if not given:
            return None
        stacked = torch.stack(given)
        add: Any = _torch._add_batch_dim if self._legacy else _functorch._add_batch_dim
        together: Tensor = add(stacked, 0, self._level)
        return together
