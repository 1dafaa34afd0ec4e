"""Torch functions and models that are called with texts, numbers and lists, and with no tensor.

What they read or make is torch's, so they are traced where they reach tensors and run as they are
where there is nothing to derive. That a stream of texts costs no trace a text, `test_eager` tests.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import gradof
from gradof.errors import EagerWarning, LeafTypeError


class Reader(nn.Module):
    """The mean of the embeddings of a text's bytes, or of a list of numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(256, 4)

    def forward(self, text: Any, scale: float = 1.0) -> torch.Tensor:
        ids = list(text.encode()) if isinstance(text, str) else text
        found: torch.Tensor = self.embedding(torch.tensor(ids)).mean() * scale
        return found


@pytest.mark.parametrize(
    "args", [("hello",), ([1, 2, 3],), ((4, 5),), ("hello", 2.0), ([1, 2], 3)], ids=str
)
def test_of_a_module(args: tuple[Any, ...]) -> None:
    torch.manual_seed(0)
    model = Reader()
    model(*args).backward()
    want = model.embedding.weight.grad
    for _ in range(3):
        model.zero_grad()
        fast = gradof.differentiate(model, strict=True)
        fast(*args).backward()
        torch.testing.assert_close(model.embedding.weight.grad, want)
    assert fast.cache_info().eager_runs == 0


@pytest.mark.parametrize("value", ["abc", 3, 3.0, None, [1, 2]], ids=str)
def test_of_a_closure(value: Any) -> None:
    w = torch.ones(3, requires_grad=True)
    fast = gradof.differentiate(
        lambda x: (w * (x if isinstance(x, (int, float)) else len(x or ""))).sum(), strict=True
    )
    fast(value).backward()
    n = value if isinstance(value, (int, float)) else len(value or "")
    assert w.grad is not None and w.grad.tolist() == [float(n)] * 3


def test_of_what_reaches_no_tensor() -> None:
    fast = gradof.differentiate(lambda n: torch.arange(n).sum())
    with pytest.warns(EagerWarning, match="without any array"):
        assert [fast(n).item() for n in (3, 4)] == [3, 6]
    with pytest.raises(LeafTypeError, match="without any array"):
        gradof.differentiate(lambda n: torch.arange(n).sum(), strict=True)(3)


def test_a_module_of_numpy_arrays() -> None:
    torch.manual_seed(0)
    model = Reader()
    gradof.differentiate(model, strict=True)(np.array([1, 2])).backward()
    assert model.embedding.weight.grad is not None
    assert model.embedding.weight.grad[1].tolist() == [0.125] * 4


def test_an_integer_has_no_gradient() -> None:
    with pytest.raises(LeafTypeError, match=r"args\[0\] is a int, which has no gradient"):
        gradof.grad(lambda x: x * x)(2)
