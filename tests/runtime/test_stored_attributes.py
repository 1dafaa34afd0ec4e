"""What classes make of attributes: their own `__getattr__`, and properties over stored values."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from gradof import differentiate
from tests.runtime.compare import close
from tests.runtime.test_torch_values import leaf


class Scaling(torch.nn.Module):
    """As tltorch's factorized tensors: what is stored is not what its name gives."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3, dtype=torch.float64))

    def __getattr__(self, name: str) -> Any:
        found: Any = super().__getattr__(name)
        return found * 3 if name == "weight" else found

    def forward(self, x: Tensor) -> Tensor:
        return (x * self.weight).sum()


class Shadowed:
    def __init__(self) -> None:
        self.__dict__["weight"] = torch.ones(3, dtype=torch.float64)

    @property
    def weight(self) -> Any:
        return self.__dict__["weight"] * 3

    def __call__(self, x: Tensor) -> Any:
        return (x * self.weight).sum()


@pytest.mark.parametrize("make", [Scaling, Shadowed])
def test_what_is_stored_is_read_again_not_what_its_name_gives(make: Any) -> None:
    held = make()
    fast = differentiate(held)
    for call in range(3):
        x = leaf(3)
        fast(x).backward()
        close(x.grad, torch.full_like(x, 3.0 * (call + 1)))
        with torch.no_grad():
            (held._parameters if make is Scaling else vars(held))["weight"].add_(1)
    assert fast.cache_info().misses == 1
