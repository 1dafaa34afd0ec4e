"""A refusal that the traced function catches is none that eager has: the trace ends with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from gradof import differentiate
from gradof.errors import EagerWarning, TraceError

READS: dict[str, Callable[[Any], float]] = {
    "median": lambda x: float(np.median(x.detach().numpy())),
    "asarray": lambda x: float(np.asarray(x.detach()).mean()),
    "storage": lambda x: float(x.untyped_storage().nbytes()),
}


def _fn(read: Callable[[Any], float]) -> Callable[[Any], Any]:
    def fn(x: Any) -> Any:
        try:
            scale = read(x)
        except Exception:
            scale = 0.0
        return x * scale

    return fn


@pytest.mark.parametrize("name", READS)
def test_of_a_tensor(name: str) -> None:
    fn, x = _fn(READS[name]), torch.arange(3.0) + 1
    with pytest.warns(EagerWarning, match="taken out of torch|read by numpy"):
        torch.testing.assert_close(differentiate(fn)(x), fn(x))
    with pytest.raises(TraceError):
        differentiate(fn, strict=True)(x)


def test_of_an_array() -> None:
    def fn(a: Any) -> Any:
        try:
            scale = float(a.mean())
        except Exception:
            scale = 0.0
        return torch.as_tensor(a) * scale

    a = np.arange(3.0)
    with pytest.warns(EagerWarning, match="read by numpy"):
        torch.testing.assert_close(differentiate(fn)(a), fn(a))


def test_an_error_of_the_program_may_be_caught() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        try:
            return x @ torch.ones(5)
        except RuntimeError:
            return x * 2

    fast, x = differentiate(fn, strict=True), torch.ones(3)
    torch.testing.assert_close(fast(x), fn(x))
    assert fast.cache_info().eager_runs == 0
