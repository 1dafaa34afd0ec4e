"""Uneven pooling, resampling and randomised slopes of torch, to second gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from gradof import differentiate

Tensor = torch.Tensor


def _draw(*shape: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def _orders(fn: Callable[..., Tensor], tensors: list[Tensor]) -> list[Tensor | None]:
    """Value, gradients and second gradients under random cotangents."""
    leaves = [t.clone(memory_format=torch.preserve_format).requires_grad_() for t in tensors]
    torch.manual_seed(4)
    value = fn(*leaves)
    first = torch.autograd.grad(
        value, leaves, _draw(*value.shape, dtype=value.dtype, seed=1), create_graph=True
    )
    live = [g for g in first if g.requires_grad]
    second: tuple[Tensor | None, ...] = ()
    if live:
        seeds = [_draw(*g.shape, dtype=g.dtype, seed=2) for g in live]
        second = torch.autograd.grad(live, leaves, seeds, allow_unused=True)
    return [value, *first, *second]


def _same_as_eager(fn: Callable[..., Tensor], *tensors: Tensor) -> None:
    compiled = differentiate(fn)
    eager = _orders(fn, list(tensors))
    for _ in range(2):  # the call that traces, and a later one
        for ours, theirs in zip(_orders(compiled, list(tensors)), eager, strict=True):
            if theirs is None or ours is None:
                assert all(t is None or not t.any() for t in (ours, theirs))
            else:
                torch.testing.assert_close(ours, theirs)
    (plan,) = compiled.plans()
    assert plan.gradients, "nothing of gradof ran"


DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
POOLS: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "1d": (lambda x: F.adaptive_max_pool1d(x.tanh(), 3), (2, 3, 7)),
    "2d": (lambda x: F.adaptive_max_pool2d(x.tanh(), (3, 2)), (2, 3, 7, 5)),
    "2d without batch": (lambda x: F.adaptive_max_pool2d(x.exp(), (4, 3)), (3, 6, 5)),
    "2d of a transpose": (lambda x: F.adaptive_max_pool2d(x.mT.exp(), (4, 3)), (1, 2, 5, 7)),
    "2d more than there are": (lambda x: F.adaptive_max_pool2d(x.exp(), 5), (1, 1, 3, 2)),
    "3d": (lambda x: F.adaptive_max_pool3d(x.tanh(), (2, 3, 2)), (1, 2, 5, 4, 3)),
    "fractional 2d": (lambda x: F.fractional_max_pool2d(x.tanh(), 2, (3, 3)), (2, 2, 7, 8)),
    "fractional 3d": (lambda x: F.fractional_max_pool3d(x.exp(), 2, (2, 3, 3)), (1, 2, 4, 6, 7)),
    "rrelu": (lambda x: F.rrelu(x, training=True) ** 2, (5, 9)),
    "rrelu in use": (lambda x: F.rrelu(x) ** 2, (5, 9)),
}  # fmt: skip


@DTYPES
@pytest.mark.parametrize("name", POOLS)
def test_uneven_windows(name: str, dtype: torch.dtype) -> None:
    fn, shape = POOLS[name]
    _same_as_eager(fn, _draw(*shape, dtype=dtype))


@pytest.mark.cases(6)
@DTYPES
@pytest.mark.parametrize("align", [True, False])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_grid_sample_of_volumes(mode: str, padding: str, align: bool, dtype: torch.dtype) -> None:
    def fn(x: Tensor, grid: Tensor) -> Tensor:
        return F.grid_sample(x, grid, mode, padding, align)

    x, grid = _draw(2, 2, 3, 4, 2, dtype=dtype), _draw(2, 2, 1, 3, 3, dtype=dtype, seed=5)
    grid[0, 0, 0, 0], grid[1, 0, 0, 0, 1] = 1.0, -1.0  # on the bounds themselves
    _same_as_eager(fn, x, grid)


@DTYPES
@pytest.mark.parametrize("align", [True, False])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(3, 9), (5, 4), (11, 2)])
def test_antialiased_resampling(
    size: tuple[int, int], mode: str, align: bool, dtype: torch.dtype
) -> None:
    def fn(x: Tensor) -> Tensor:
        return F.interpolate(x, size, mode=mode, align_corners=align, antialias=True)

    _same_as_eager(fn, _draw(2, 3, 7, 6, dtype=dtype))
    _same_as_eager(fn, _draw(2, 3, 6, 7, dtype=dtype).mT)


@DTYPES
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_a_chunked_cross_entropy_is_the_whole_one(reduction: str, dtype: torch.dtype) -> None:
    options = torch.nn.LinearCrossEntropyOptions(batch_chunk_size=2)
    target = torch.tensor([1, 0, 3, 3, 2])

    def fn(x: Tensor, weight: Tensor) -> Tensor:
        return F.linear_cross_entropy(x, weight, target, reduction=reduction, options=options)

    def plain(x: Tensor, weight: Tensor) -> Tensor:
        return F.linear_cross_entropy(x, weight, target, reduction=reduction)

    tensors = [_draw(5, 3, dtype=dtype), _draw(4, 3, dtype=dtype, seed=3)]
    # eager has no second derivative through chunks; that of the whole is the same
    compiled = differentiate(fn)
    for ours, theirs in zip(_orders(compiled, tensors), _orders(plain, tensors), strict=True):
        assert ours is not None and theirs is not None
        torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(fn(*tensors), compiled(*tensors))


def test_statistics_that_are_given_are_not_saved() -> None:
    x = _draw(3, 2, 4, dtype=torch.float32)
    mean, var = torch.zeros(2), torch.ones(2)
    call = torch.ops.aten._native_batch_norm_legit.default

    def fn(x: Tensor) -> Any:
        y, saved, _ = call(x, None, None, mean, var, False, 0.1, 1e-5)
        assert saved.shape == (0,)
        return y.tanh()

    _same_as_eager(fn, x)
