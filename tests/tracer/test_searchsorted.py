"""torch.searchsorted in torch functions: places without a gradient, and what is taken there."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.func import vmap

from gradof import differentiate

Tensor = torch.Tensor
ENDS = torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64)
ROWS = torch.tensor([[-1.0, -0.2, 0.4], [-0.5, 0.0, 0.9]], dtype=torch.float64)


def _sampled(x: Tensor) -> Tensor:
    """By inverting a distribution of each row, as renderers of radiance fields do."""
    share = torch.softmax(x, 1).cumsum(1)
    places = torch.searchsorted(share, torch.rand(2, 6, dtype=x.dtype), right=True)
    return torch.gather(x, 1, places.clamp(max=x.shape[1] - 1))


def _table(x: Tensor) -> Tensor:
    at = torch.searchsorted(ENDS, x).clamp(1, 2)
    share = (x - ENDS[at - 1]) / (ENDS[at] - ENDS[at - 1])
    return (ENDS**2)[at - 1] * (1 - share) + (ENDS**2)[at] * share


CASES: dict[str, Callable[[Tensor], Tensor]] = {
    "left": lambda x: x * torch.searchsorted(ENDS, x),
    "right": lambda x: x * torch.searchsorted(ENDS, x, right=True),
    "a side": lambda x: x * torch.searchsorted(ENDS, x, side="right", out_int32=True),
    "rows": lambda x: x * torch.searchsorted(ROWS, x),
    "a sorter": lambda x: x * torch.searchsorted(
        ROWS.flip(1), x, sorter=torch.tensor([[2, 1, 0]] * 2)
    ),
    "traced ends": lambda x: torch.searchsorted(x.sort()[0], ROWS) * x[:, :3],
    "of each row": vmap(lambda row: row * torch.searchsorted(ENDS, row)),
    "a table": _table,
    "a sample": _sampled,
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_as_in_eager(name: str) -> None:
    fn = CASES[name]
    compiled = differentiate(fn, strict=True)
    for seed in range(2):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(2, 5, dtype=torch.float64, generator=generator).requires_grad_()
        results = []
        for side in (fn, compiled):
            torch.manual_seed(seed)
            y = side(x)
            results.append((y, torch.autograd.grad(y.sum(), x)[0]))
        torch.testing.assert_close(results[1], results[0])
    assert compiled.cache_info().misses == 1
