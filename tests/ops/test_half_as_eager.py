"""Half precision where torch's kernels round, or are held in float32 by us: as eager's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from gradof import differentiate

CASES: dict[str, Callable[[torch.Tensor], Any]] = {
    "uneven adaptive pooling": lambda x: F.adaptive_avg_pool2d(x, (3, 5)),
    "uneven adaptive pooling in one dim": lambda x: F.adaptive_avg_pool1d(x[0], 3),
    "area": lambda x: F.interpolate(x, (5, 5), mode="area"),
    "pooling that leaves out what is padded": lambda x: F.avg_pool2d(
        x, 3, padding=1, count_include_pad=False
    ),
    "pooling beyond the end": lambda x: F.avg_pool2d(x, 3, 2, ceil_mode=True),
    "trunc of two arrays": lambda x: torch.div(x, x.flip(0), rounding_mode="trunc"),
    "trunc by a number": lambda x: torch.div(x, 0.3, rounding_mode="trunc"),
    "trunc by one of float32": lambda x: torch.div(x, torch.tensor(0.3), rounding_mode="trunc"),
    "trunc by one element": lambda x: torch.div(x, x[0, 0, 0, :1], rounding_mode="trunc"),
    "trunc of a number": lambda x: torch.div(torch.tensor(3.7), x, rounding_mode="trunc"),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, dtype: torch.dtype) -> None:
    fn, compiled = CASES[name], differentiate(CASES[name], strict=True)
    for seed in range(4):
        torch.manual_seed(seed)
        x = (9.0 * torch.randn(2, 3, 9, 8)).to(dtype)
        found, want = compiled(x), fn(x)
        assert found.dtype == want.dtype
        if "trunc" in name:
            assert torch.equal(found, want)
        else:  # sums may go in another order
            torch.testing.assert_close(found, want, rtol=torch.finfo(dtype).eps, atol=1e-3)


@pytest.mark.parametrize("name", [name for name in CASES if "pooling" in name])
def test_gradients(name: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 9, 8, dtype=torch.bfloat16, requires_grad=True)
    weights = torch.randn_like(CASES[name](x))
    want, found = (
        torch.autograd.grad(fn(x), x, weights)[0]
        for fn in (CASES[name], differentiate(CASES[name], strict=True))
    )
    torch.testing.assert_close(found, want, rtol=2e-2, atol=1e-2)
