"""Functions of torch on plain numbers alone, and indices that are sequences of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from gradof import differentiate

WHERE = torch.tensor([[0, 1], [1, 2]])


def _masked(x: Any) -> Any:
    mask = torch.ones(2, 3, dtype=torch.bool)
    rows, cols = zip(*WHERE, strict=True)
    mask[rows, cols] = False
    return (x[:3] * mask).sum() + mask[list(rows), cols].sum()


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "rounded quotient as a size": lambda x: x[: torch.div(7, 2, rounding_mode="trunc")] ** 2,
    "sum of an int and a float": lambda x: x * torch.add(1, 2.5),
    "quotient of a quotient": lambda x: x * (torch.div(10, 4) / 2),
    "rows and columns": _masked,
}


@pytest.mark.parametrize("fn", FUNCTIONS.values(), ids=FUNCTIONS)
def test_as_in_eager(fn: Callable[[Any], Any]) -> None:
    compiled = differentiate(fn, strict=True)
    gradients = []
    for call in (compiled, fn):
        x = torch.arange(1.0, 6.0, dtype=torch.float64).requires_grad_()
        out = call(x)
        out.sum().backward()
        gradients.append((out.detach(), x.grad))
    for have, want in zip(*gradients, strict=True):
        assert have.dtype == want.dtype and torch.equal(have, want)
    assert compiled.cache_info().backward_runs == 1
