"""torch.nextafter of bfloat16: the neighbours of all its numbers, by their bits."""

from __future__ import annotations

import math

import pytest
import torch

from gradof import differentiate

ALL = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)


@pytest.mark.parametrize("far", [math.inf, -math.inf, 0.0, -0.0, 1.0, -3e38, math.nan])
def test_bits(far: float) -> None:
    towards = torch.full_like(ALL, far)
    want = torch.nextafter(ALL, towards)
    found = differentiate(torch.nextafter, strict=True)(ALL, towards)
    same = (found.view(torch.int16) == want.view(torch.int16)) | (found.isnan() & want.isnan())
    assert same.all(), ALL[~same][:5]


def test_gradients() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (torch.nextafter(x, y) * x).sum()

    x = torch.tensor([1.5, -2.0, 0.0, 3.0], dtype=torch.bfloat16, requires_grad=True)
    y = torch.tensor([1.5, -1.0, 1.0, -4.0], dtype=torch.bfloat16, requires_grad=True)
    want = torch.autograd.grad(fn(x, y), (x, y))
    found = torch.autograd.grad(differentiate(fn, strict=True)(x, y), (x, y))
    for a, b in zip(found, want, strict=True):
        assert torch.equal(a, b)
