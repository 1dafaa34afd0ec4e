"""Numbers whose squares and products leave a type: what torch's kernels give there, ours give.

The cases are what every sample of torch's op_db showed with its values replaced by such numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from gradof import differentiate

Tensor = torch.Tensor
F = torch.nn.functional
LARGE = 3.2e38


def derivatives(fn: Any, x: Tensor, order: int = 2) -> Iterator[Tensor]:
    x = x.clone().requires_grad_()
    y = fn(x)
    for n in range(order):
        yield y.detach()
        if not y.requires_grad:
            return
        generator = torch.Generator().manual_seed(n)
        way = torch.randn(y.shape, generator=generator, dtype=torch.float64).to(y.dtype)
        (y,) = torch.autograd.grad(y, x, way, create_graph=n + 1 < order)
    yield y.detach()


def same(fn: Callable[[Tensor], Tensor], x: Tensor, order: int = 2) -> None:
    compiled = differentiate(fn)
    found = [list(derivatives(each, x, order)) for each in (compiled, fn)]
    for mine, theirs in zip(*found, strict=True):
        digits = 2e-2 if x.dtype is torch.bfloat16 else 1e-5
        largest = float(theirs[theirs.isfinite()].abs().max()) if theirs.isfinite().any() else 0.0
        torch.testing.assert_close(mine, theirs, rtol=digits, atol=digits * largest, equal_nan=True)
    assert not compiled.cache_info().eager_runs


SPREADS: dict[str, Callable[[Tensor], Tensor]] = {
    "std": lambda x: x.std(), "var of rows": lambda x: x.var(1), "trace": torch.trace,
    "std and mean": lambda x: torch.cat(torch.std_mean(x, 0)),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scale", [1e19, 1e20, 1e-25])
@pytest.mark.parametrize("name", SPREADS)
def test_spreads_are_added_up_in_float64(name: str, scale: float, dtype: torch.dtype) -> None:
    x = torch.randn(5, 5, generator=torch.Generator().manual_seed(1)) * scale
    same(SPREADS[name], x.to(dtype), order=1)  # eager's own second derivative overflows


@pytest.mark.parametrize("order", [2, 3, 0.5, 0, 1, -1, math.inf])
@pytest.mark.parametrize("shape", [(), (1,), (3, 1)])
def test_a_norm_of_one_number_is_its_size(shape: tuple[int, ...], order: float) -> None:
    compiled = differentiate(lambda x: torch.linalg.vector_norm(x, order, -1 if shape else None))
    for value in (1e20, -1e20, 1e-30, 0.0):
        x = torch.full(shape, value, requires_grad=True)
        norm = compiled(x)
        theirs = torch.linalg.vector_norm(x.detach(), order, -1 if shape else None)
        assert torch.equal(norm.detach(), theirs)
        if order:
            (slope,) = torch.autograd.grad(norm.sum(), x)
            assert torch.equal(slope, x.detach().sign())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("fn", [F.silu, F.mish, F.gelu])
def test_a_cotangent_is_multiplied_by_the_slope(fn: Any, dtype: torch.dtype) -> None:
    x = torch.tensor([LARGE, -LARGE, 2e38, 1e20, -1e20, 0.5], dtype=dtype, requires_grad=True)
    way = torch.tensor([1.5, -2.0, 1.7, 3.0, 1.0, 1.0], dtype=dtype)
    found = [torch.autograd.grad(each(x), x, way)[0] for each in (differentiate(fn), fn)]
    assert found[0].isfinite().all()
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("place", [math.inf, -math.inf, math.nan, LARGE, 1e10, -1.0, 1.2])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("padding", ["zeros", "border"])
def test_a_place_that_is_no_number_is_outside(padding: str, mode: str, place: float) -> None:
    torch.manual_seed(0)
    image = torch.randn(1, 2, 4, 4, 4, requires_grad=True)
    grid = torch.rand(1, 2, 2, 2, 3) * 2 - 1
    grid.view(-1)[0] = place
    grid.requires_grad_()
    found = []
    for fn in (differentiate(F.grid_sample), F.grid_sample):
        y = fn(image, grid, mode=mode, padding_mode=padding, align_corners=False)
        found.append([y.detach(), *torch.autograd.grad(y.sum(), (image, grid))])
    for mine, theirs in zip(*found, strict=True):
        if padding == "zeros" or math.isfinite(place):
            torch.testing.assert_close(mine, theirs)


def test_gradients_of_small_singular_values() -> None:
    x = torch.randn(4, 4, generator=torch.Generator().manual_seed(2)) * 1e-20
    found = [list(derivatives(fn, x)) for fn in (differentiate(torch.linalg.svdvals),
                                                 torch.linalg.svdvals)]  # fmt: skip
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=float(theirs.abs().max()) * 1e-4)


@pytest.mark.parametrize("matrix", [torch.full((5, 5), 1.5), torch.zeros(3, 3), torch.eye(4) * 2])
def test_the_nuclear_norm_of_a_matrix_without_full_rank(matrix: torch.Tensor) -> None:
    for fn in (lambda x: torch.norm(x, "nuc"), lambda x: torch.linalg.svdvals(x).sum()):
        mine, theirs = (list(derivatives(each, matrix, 1)) for each in (differentiate(fn), fn))
        for a, b in zip(mine, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("value", [1.5, -1e20, 3e38])
def test_a_running_sum_of_one_number_is_the_number(value: float) -> None:
    same(lambda x: torch.logcumsumexp(x, 0) * 1.0, torch.tensor(value), order=1)
