"""Runs of a torch function: what a call reads and what it gave, complex numbers as real ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

Tensor = torch.Tensor


def is_inexact(tensor: Tensor) -> bool:
    """Whether a tensor may have a gradient, by its dtype."""
    return tensor.is_floating_point() or tensor.is_complex()


def in_parts(tensor: Tensor) -> Tensor:
    """The tensor; a complex one as [..., 2], its real and its imaginary parts."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


@dataclass
class Inputs:
    """Everything a call reads: argument leaves and free tensors, with what to wish back later."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    leaves: list[Tensor]
    free: list[Tensor]
    names: list[str]
    saved: list[Tensor]

    @property
    def wanted(self) -> list[Tensor]:
        """The inputs that require grad."""
        return [t for t in (*self.leaves, *self.free) if t.requires_grad]

    @property
    def wanted_names(self) -> list[str]:
        """Names of `wanted`."""
        pairs = zip((*self.leaves, *self.free), self.names, strict=True)
        return [name for t, name in pairs if t.requires_grad]

    def restore(self) -> None:
        """Undo what the function wrote into its inputs."""
        with torch.no_grad():
            for tensor, saved in zip((*self.leaves, *self.free), self.saved, strict=True):
                if not torch.equal(tensor, saved):
                    tensor.data.copy_(saved)


@dataclass
class Run:
    """What one run gave: leaves of the result, and gradients of those that have one.

    A complex number counts as its real and imaginary part, in a gradient, too.
    """

    results: list[Tensor]
    gradients: list[list[Tensor | None]]  # first, then second

    @property
    def floats(self) -> list[Tensor]:
        """The results that are no whole numbers, as real ones."""
        return [in_parts(t) for t in self.results if is_inexact(t)]


def random_like(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """A random cotangent of the shape and dtype of a tensor."""
    # drawn in float64, so that runs in both precisions get the same numbers
    dtype = torch.complex128 if tensor.is_complex() else torch.float64
    return torch.randn(tensor.shape, generator=generator, dtype=dtype).to(tensor.dtype)
