"""Attributes that the user has set on argument tensors, and those that are asked for in vain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from gradof import differentiate

Tensor = torch.Tensor


def _caught(x: Any) -> Any:
    try:
        return (x * x.scale).sum()
    except AttributeError:
        return x.sum()


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "getattr": lambda x: (x * getattr(x, "scale", 1)).sum(),
    "hasattr": lambda x: (x * (x.scale if hasattr(x, "scale") else 1)).sum(),
    "computed": lambda x: (x * getattr(x, "sc" + "ale", 1)).sum(),
    "caught": _caught,
    "within": lambda x: (x * next(getattr(x, n, 1) for n in ("scale",))).sum(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_not_there_may_come_and_go(name: str) -> None:
    fn = FUNCTIONS[name]
    compiled = differentiate(fn, strict=True)
    for scale in (None, 2.0, None, 3.0, 2.0):
        x: Any = torch.arange(3.0, requires_grad=True)
        if scale is not None:
            x.scale = scale
        value = compiled(x)
        (grad,) = torch.autograd.grad(value, x)
        assert value.item() == fn(x).item() == 3 * (scale or 1)
        assert grad.tolist() == [scale or 1] * 3
    assert compiled.cache_info().misses <= 3
