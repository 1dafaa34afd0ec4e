"""Integers divided by 0: on the CPU torch raises, and so does what is compiled; numpy gives 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import gradof

DIVISIONS: dict[str, Callable[[Any, Any], Any]] = {
    "remainder": lambda a, b: a % b,
    "fmod": torch.fmod,
    "floor_divide": lambda a, b: a // b,
    "truncated": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "within": lambda a, b: ((a + 1) % (b * 2) + a[:1]) // (b.abs() + 0),
}


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
@pytest.mark.parametrize("name", DIVISIONS)
@pytest.mark.parametrize("backend", ["", "tiles", "numpy"])
def test_an_integer_divisor_of_0_is_eagers_error(
    name: str, dtype: torch.dtype, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if backend:
        monkeypatch.setenv("GRADOF_BACKEND", backend)
    fn = DIVISIONS[name]
    for n in (5, 50_000):
        fast = gradof.differentiate(fn, strict=True)
        a, b = torch.arange(n).to(dtype), (torch.arange(n) % 7 + 1).to(dtype)
        for _ in range(3):
            assert torch.equal(fast(a, b), fn(a, b))
        wrong = b.clone()
        wrong[-2] = 0
        for _ in range(2):
            with pytest.raises(RuntimeError, match="ZeroDivisionError"):
                fast(a, wrong)
        assert torch.equal(fast(a, b), fn(a, b))  # and goes on


def test_floats_and_numpys_integers_have_no_error() -> None:
    a, b = torch.tensor([5.0, -5.0, 0.0]), torch.tensor([0.0, 2.0, 0.0])
    for fn in DIVISIONS.values():
        have, want = gradof.differentiate(fn, strict=True)(a, b), fn(a, b)
        torch.testing.assert_close(have, want, equal_nan=True)
    with np.errstate(all="ignore"):
        found = gradof.differentiate(lambda a, b: a // b)(np.arange(3), np.array([1, 0, 2]))
    assert found.tolist() == [0, 0, 1]


@pytest.mark.parametrize("dtype", [torch.int16, torch.int32, torch.int64])
def test_signs_and_truncated_quotients_of_integers(dtype: torch.dtype) -> None:
    least = torch.iinfo(dtype).min
    for n in (3, 50_000):
        a = torch.cat([torch.tensor([least, least + 1, 0], dtype=dtype), torch.arange(n).to(dtype)])
        for fn in (
            torch.sign, lambda a: a.abs() * a.sign(),
            lambda a: torch.div(a, 3, rounding_mode="trunc"),
            lambda a: torch.div(a, -a.sign() * 7 + 1, rounding_mode="trunc"),
        ):  # fmt: skip
            assert torch.equal(gradof.differentiate(fn, strict=True)(a), fn(a))
