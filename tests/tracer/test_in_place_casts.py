"""Changes in place of another dtype: torch's own error where what is written cannot be cast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from gradof import differentiate

TARGETS = {
    "int64": torch.tensor([1, 2]), "bool": torch.tensor([True, False]),
    "float32": torch.tensor([1.5, 2.5]),
}  # fmt: skip
OTHERS: dict[str, tuple[Any, ...]] = {
    "none": (), "float": (2.5,), "int": (3,), "tensor": (torch.tensor([1.5, 2.5]),),
    "double": (torch.tensor([1.5, 2.5], dtype=torch.float64),),
    "complex": (torch.tensor([1j, 2.0]),),
    "two": (torch.tensor([1.5, 2.5]), torch.tensor([0.5, 2.5])),
}  # fmt: skip
NAMES = [
    "add_", "sub_", "mul_", "div_", "pow_", "addcmul_", "addcdiv_", "ldexp_", "logit_", "sqrt_",
    "exp_", "floor_divide_", "remainder_", "atan2_", "copy_",
]  # fmt: skip


def _of(fn: Callable[..., Any], target: str, other: str) -> Any:
    given = [x.clone() if isinstance(x, torch.Tensor) else x for x in OTHERS[other]]
    x = TARGETS[target].clone()
    try:
        return fn(x, *given), x
    except Exception as error:
        return type(error), str(error).partition(" in the call")[0]


@pytest.mark.filterwarnings("ignore::gradof.errors.EagerWarning")
@pytest.mark.filterwarnings("ignore::gradof.errors.OpaqueOpWarning")
@pytest.mark.filterwarnings("ignore:Casting complex values to real")
@pytest.mark.parametrize("name", NAMES)
def test_as_in_eager(name: str) -> None:
    def fn(x: Any, *others: Any) -> Any:
        return getattr(x, name)(*others)

    raised = 0
    for target in TARGETS:
        for other in OTHERS:
            want = _of(fn, target, other)
            if want[0] is TypeError:
                continue  # no such overload
            got = _of(differentiate(fn), target, other)
            if isinstance(want[0], type):
                raised += 1
                assert isinstance(got[0], type) and issubclass(got[0], want[0]), (target, other)
            else:
                for ours, theirs in zip(got, want, strict=True):
                    torch.testing.assert_close(ours, theirs, equal_nan=True)
    assert raised or name == "copy_"


def test_a_number_is_copied() -> None:
    fast = differentiate(lambda x: (x * 2).copy_(2.5) * x, strict=True)
    x = torch.ones(3, requires_grad=True)
    fast(x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2.5] * 3
