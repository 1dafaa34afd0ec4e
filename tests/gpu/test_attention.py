"""Attention as flash kernels on a device: every choice of blocks, whole and in part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.gpu.judge import judge

pytestmark = pytest.mark.gpu
Tensor = torch.Tensor
HALF = (torch.bfloat16, torch.float16)
# rows, keys, elements of a row of Q and K, of V
SIZES = {
    "whole blocks": (256, 128, 64, 64), "whole blocks, wide": (128, 256, 128, 128),
    "wider": (64, 128, 256, 256), "narrow": (128, 128, 16, 16),
    "odd": (131, 77, 40, 24), "odd, wide": (200, 300, 128, 96), "one row": (1, 150, 64, 64),
    "odd, wider": (70, 90, 160, 200),
}  # fmt: skip


@pytest.fixture(autouse=True)
def tf32() -> Iterator[None]:
    """Products of float32 in TF32, without which kernels leave them to torch."""
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    yield
    torch.backends.cuda.matmul.fp32_precision = before


def made(*shape: int, device: str, dtype: torch.dtype) -> Tensor:
    return torch.randn(shape, device=device).to(dtype).requires_grad_()


def is_flash(fn: Callable[..., Any], *args: Tensor) -> None:
    """The gradients are right, and kernels of attention made them."""
    compiled = judge(fn, *args, order=1)
    (said,) = compiled.explain(*args).attention
    assert "run as a flash kernel" in said
    assert compiled.cache_info().backward_runs


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("size", SIZES)
def test_sizes(size: str, causal: bool, device: str) -> None:
    rows, keys, head, width = SIZES[size]
    dtype = HALF[len(size) % 2]
    q, k, v = (
        made(2, 3, n, d, device=device, dtype=dtype)
        for n, d in ((rows, head), (keys, head), (keys, width))
    )
    is_flash(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal), q, k, v)


@pytest.mark.parametrize("dtype", [*HALF, torch.float32], ids=str)
@pytest.mark.parametrize("head", [64, 128])
def test_scores_that_are_changed(head: int, dtype: torch.dtype, device: str) -> None:
    q, k, v = (made(2, 2, n, head, device=device, dtype=dtype) for n in (130, 192, 192))
    bias = torch.randn(130, 192, device=device).to(dtype)
    mask = torch.rand(2, 1, 192, device=device) < 0.2

    def capped(q: Any, k: Any, v: Any, bias: Any, mask: Any) -> Any:
        s = 5.0 * torch.tanh((0.1 * (q @ k.mT) - bias) / 5.0)
        return torch.softmax(s.masked_fill(mask, float("-inf")), -1) @ v

    is_flash(capped, q, k, v, bias, mask)


def test_operands_are_read_by_their_strides(device: str) -> None:
    def heads(q: Any, k: Any, v: Any) -> Any:
        q, k, v = (x.transpose(-3, -2) for x in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(-3, -2)

    for shape in ((2, 160, 3, 128), (160, 3, 64)):
        is_flash(heads, *(made(*shape, device=device, dtype=torch.bfloat16) for _ in "qkv"))
    turned = [made(2, 3, 128, 160, device=device, dtype=torch.bfloat16) for _ in "qkv"]
    is_flash(lambda q, k, v: F.scaled_dot_product_attention(q.mT, k.mT, v.mT), *turned)


def test_masks_of_positions(device: str) -> None:
    def masked(q: Any, k: Any, v: Any) -> Any:
        above = torch.arange(k.shape[-2], device=q.device) > torch.arange(
            q.shape[-2], device=q.device)[:, None] + 40  # fmt: skip
        return torch.softmax((q @ k.mT * 0.1).masked_fill(above, float("-inf")), -1) @ v

    sizes = ((150, 64), (230, 64), (230, 64))
    is_flash(masked, *(made(*s, device=device, dtype=torch.float16) for s in sizes))
