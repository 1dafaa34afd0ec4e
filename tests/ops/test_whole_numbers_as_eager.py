"""Whole numbers and truths, by ops that floats have as well: values and dtypes are eager's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from gradof import differentiate

PLACES = torch.tensor([0, 1, 1, 2, 0, 3])
CASES: dict[str, Callable[[torch.Tensor], Any]] = {
    "clamp between two tensors": lambda a: a.clamp(PLACES, torch.full((6,), 2, dtype=a.dtype)),
    "clamp where there is no room": lambda a: a.clamp(PLACES + 3, PLACES),
    "product of truths": lambda a: torch.zeros(4, dtype=torch.bool).scatter_reduce(
        0, PLACES, a > 2, "prod", include_self=False
    ),
    "sum of truths": lambda a: torch.zeros(4, dtype=torch.bool).scatter_reduce(
        0, PLACES, a > 2, "sum"
    ),
    "product of numbers": lambda a: torch.ones(4, dtype=a.dtype).scatter_reduce(
        0, PLACES, a, "prod"
    ),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, dtype: torch.dtype) -> None:
    a = torch.arange(6, dtype=dtype)
    found, want = differentiate(CASES[name], strict=True)(a), CASES[name](a)
    assert found.dtype == want.dtype and torch.equal(found, want)
