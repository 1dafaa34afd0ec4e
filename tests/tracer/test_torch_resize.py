"""Interpolation to other sizes and padding by what is there: values and gradients are eager's."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from gradof import differentiate

Tensor = torch.Tensor
SHAPE = (2, 3, 5, 4, 6)
SIZES: tuple[dict[str, Any], ...] = (
    {"size": 1}, {"size": 3}, {"size": 4}, {"size": 10}, {"scale_factor": 2}, {"scale_factor": 3},
    {"scale_factor": 1.2}, {"scale_factor": 0.6}, {"scale_factor": 2.1},
    {"scale_factor": 1.7, "recompute_scale_factor": True},
)  # fmt: skip
PADS = ((1, 1), (2, 0), (0, 3), (3, 3), (-1, 2), (-1, -1), (0, 0), (2, -2))


def _right(fn: Callable[[Tensor], Tensor], x: Tensor, gradient: bool = True) -> None:
    compiled = differentiate(fn)
    found = []
    for each in (fn, compiled):
        arg = x.clone().requires_grad_()
        y = each(arg)
        way = torch.randn(y.shape, generator=torch.Generator().manual_seed(0)).to(y.dtype)
        found.append((y.detach(), torch.autograd.grad(y, arg, way)[0]))
    (y, g), (mine, slope) = found
    near = 2e-2 if x.dtype == torch.float16 else 2e-6  # of several numbers that are added
    assert torch.allclose(mine, y, rtol=near, atol=near)
    assert torch.allclose(slope, g, rtol=near, atol=near) or not gradient
    assert compiled.cache_info().backward_runs


def _input(dims: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(SHAPE[: dims + 2], generator=torch.Generator().manual_seed(1)).to(dtype)


@pytest.mark.cases(9)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize(
    ("mode", "dims"),
    [*itertools.product(("nearest", "nearest-exact"), (1, 2, 3)),
     ("linear", 1), ("bilinear", 2), ("trilinear", 3)],
)  # fmt: skip
def test_interpolation(mode: str, dims: int, dtype: torch.dtype) -> None:
    x = _input(dims, dtype)
    for options in SIZES:
        # eager's own gradient is another's where a scale keeps a size: [1, 1, 1, 1] of [0, 0, 1, 2]
        scaled = options.get("scale_factor") in (1.2, 2.1) and mode == "nearest" and dims != 2
        _right(lambda x: F.interpolate(x, mode=mode, **options), x, not scaled)  # noqa: B023
        if mode.endswith("linear"):
            _right(lambda x: F.interpolate(x, mode=mode, align_corners=True, **options), x)  # noqa: B023


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_padding(mode: str, dims: int, dtype: torch.dtype) -> None:
    x = _input(dims, dtype)
    for pads in PADS:
        for arg in (x, x[0]):
            _right(lambda x: F.pad(x, pads * dims, mode=mode), arg)  # noqa: B023


def test_a_layout_of_channels_last() -> None:
    x = _input(2, torch.float32).contiguous(memory_format=torch.channels_last)
    for mode in ("nearest", "bilinear"):
        _right(lambda x: F.interpolate(x, scale_factor=2, mode=mode), x)  # noqa: B023
    _right(lambda x: F.pad(x, (1, 2, 0, 1), mode="reflect"), x)


@pytest.mark.filterwarnings("ignore::gradof.errors.OpaqueOpWarning")
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_bytes_are_rounded_as_in_eager(mode: str) -> None:
    x = (torch.rand(1, 3, 9, 8, generator=torch.Generator().manual_seed(1)) * 255).to(torch.uint8)
    w = torch.ones(1, requires_grad=True)

    def fn(x: Tensor, w: Tensor) -> Tensor:
        return F.interpolate(x, size=(5, 12), mode=mode).float() * w

    compiled = differentiate(fn)
    assert torch.equal(compiled(x, w), fn(x, w))
    assert compiled.cache_info().forward_runs and not compiled.cache_info().eager_runs


def test_what_eager_refuses_is_refused() -> None:
    x = _input(1, torch.float32).requires_grad_()
    with pytest.raises(RuntimeError, match=r"[Pp]adding size"):
        differentiate(lambda x: F.pad(x, (5, 5), mode="reflect"))(x)
