"""Programs in simpler ops for ops of aten that torch itself has none for.

They are found by `torch_decompose.decomposition` like torch's own, with eager's values and, at
bounds and ties, eager's gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import torch
from numpy.typing import NDArray
from torch.utils._python_dispatch import _disable_current_modes

Tensor = torch.Tensor
Program = Callable[..., Any]


class Programs(dict[Any, Program]):
    """Programs by the op that they stand for."""

    def of(self, *ops: Any) -> Callable[[Program], Program]:
        """Decorates the program of some ops."""

        def register(program: Program) -> Program:
            self.update(dict.fromkeys(ops, program))
            return program

        return register


def constant(numbers: NDArray[Any], device: torch.device) -> Tensor:
    """A constant of the trace, which no op of the graph makes."""
    with _disable_current_modes():
        plain = torch.tensor(numbers)
    lifted: Tensor = torch.ops.aten.lift_fresh.default(plain)
    return lifted.to(device)


NEAREST, BORDER, REFLECTION = 1, 1, 2  # at::native::GridSamplerInterpolation and -Padding


def _pixel(x: Tensor, size: int, padding: int, align_corners: bool) -> Tensor:
    """A coordinate in -1..1 as a place in 0..size - 1, put inside as `padding` says."""
    place = (x + 1) * ((size - 1) / 2) if align_corners else ((x + 1) * size - 1) / 2
    if padding == REFLECTION:
        low, high = (0.0, size - 1.0) if align_corners else (-0.5, size - 0.5)
        place = _reflect(place, low, high - low)
    if padding in (BORDER, REFLECTION):
        # zeros and not a clamp: at a bound eager lets no gradient through
        place = torch.where(place > 0, place, 0.0)
        place = torch.where(place < size - 1, place, size - 1.0)
        return place
    # Far outside, or no number, no corner is read: a place that is finite keeps weights finite.
    return torch.where((place > -1) & (place < size), place, -2.0)


def _reflect(place: Tensor, low: float, span: float) -> Tensor:
    if span == 0:
        return place * 0.0
    away = (place - low).abs()
    flips = torch.floor(away / span).detach()
    rest = away - flips * span
    return torch.where(flips % 2 == 0, rest + low, span - rest + low)


def _grid_sampler_3d(
    x: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    n, _, *space = x.shape
    places = [
        _pixel(grid[..., 2 - d], space[d], padding_mode, align_corners) for d in range(3)
    ]
    batch = torch.arange(n, device=x.device).view(n, 1, 1, 1)

    def corner(at: list[Tensor]) -> Tensor:
        """The elements at whole places, zero outside: [n, D, H, W, channels]."""
        inside = torch.ones_like(at[0], dtype=torch.bool)
        for place, size in zip(at, space, strict=True):
            inside = inside & (place >= 0) & (place < size)
        index = [torch.where(inside, place, 0.0).to(torch.int64) for place in at]
        found = x.permute(0, 2, 3, 4, 1)[batch, index[0], index[1], index[2]]
        return torch.where(inside.unsqueeze(-1), found, 0.0)

    if interpolation_mode == NEAREST:
        return corner([p.detach().round() for p in places]).permute(0, 4, 1, 2, 3) * _flat(places)
    floors = [p.detach().floor() for p in places]
    total = None
    for offsets in product((0, 1), repeat=3):
        weight = torch.ones_like(places[0])
        for place, floor, offset in zip(places, floors, offsets, strict=True):
            weight = weight * (place - floor if offset else floor + 1 - place)
        term = corner([f + o for f, o in zip(floors, offsets, strict=True)])
        term = term * weight.unsqueeze(-1)
        total = term if total is None else total + term
    assert total is not None
    return total.permute(0, 4, 1, 2, 3)


def _flat(places: list[Tensor]) -> Tensor:
    # One, with a gradient of zero: the nearest element does not depend on the grid.
    return (torch.where(torch.isfinite(places[0]), places[0], 0.0) * 0.0 + 1.0).unsqueeze(1)


PROGRAMS: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.grid_sampler_3d.default: _grid_sampler_3d,
}
