"""One run of a torch program: results, gradients and second gradients for random cotangents."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from gradof.tracer.core.pytree import flatten

Tensor = torch.Tensor
Group = list[Tensor | None]


@dataclass
class Run:
    """Results, gradients and second gradients; strides of the results; inputs afterwards."""

    groups: list[Group] = field(default_factory=list)
    strides: list[Any] = field(default_factory=list)
    needs: list[bool] = field(default_factory=list)
    computed: bool = False  # whether any result is no argument
    left: list[Tensor] = field(default_factory=list)


def derivatives(
    fn: Callable[..., Any], args: tuple[Any, ...], order: int, seed: int,
    moved: Callable[[Tensor], Tensor] | None = None,
) -> Run:  # fmt: skip
    """Everything of one run, for the same random cotangents each time."""
    torch.default_generator.manual_seed(seed)
    found = flatten(fn(*args))[0]
    results = [t for t in found if isinstance(t, Tensor)]
    run = Run([[t.detach().clone() for t in results]])
    run.strides = [t.stride() if t.numel() else None for t in results]
    run.needs = [t.requires_grad for t in results]
    run.computed = any(t.requires_grad and not t.is_leaf for t in results)
    run.left = [t.detach().clone() for t in args if isinstance(t, Tensor)]
    ways = Ways(seed)
    wanted = [t for t in args if isinstance(t, Tensor) and t.requires_grad]
    pairs = [(t, ways.like(t, i)) for i, t in enumerate(results)]
    for k in range(order):
        live = [(t, way) for t, way in pairs if t is not None and t.requires_grad]
        if not live or not wanted:
            break
        outputs, seeds = zip(*live, strict=True)
        if moved is not None:
            seeds = tuple(map(moved, seeds))
        grads = torch.autograd.grad(
            outputs, wanted, seeds, create_graph=k + 1 < order, allow_unused=True
        )
        run.groups.append([None if g is None else g.detach().clone() for g in grads])
        pairs = [(g, ways.like(t, i)) for i, (g, t) in enumerate(zip(grads, wanted, strict=True))]
    return run


class Ways:
    """Random cotangents: the same for every run of a program, eager's, ours and in float64."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def like(self, tensor: Tensor, number: int) -> Tensor:
        """The cotangent of this number for a tensor like this."""
        drawn = _drawn(self.seed, number, tuple(tensor.shape), tensor.is_complex())
        return drawn.to(tensor.dtype, copy=True)


@functools.lru_cache(maxsize=16)
def _drawn(seed: int, number: int, shape: tuple[int, ...], is_complex: bool) -> Tensor:
    # in float64, so that runs in all precisions get the same numbers
    generator = torch.Generator().manual_seed(1_000_003 * number + seed + 1)
    dtype = torch.complex128 if is_complex else torch.float64
    return torch.randn(shape, generator=generator, dtype=dtype)
