"""Equal contributions to a gradient are added once; sums in functions stay as they are written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import gradof
from gradof.autodiff.differentiate import differentiate
from gradof.autodiff.zeros import specialize_autograd_zero
from gradof.ir.parser import parse_graph

SQUARE = """graph f(%x : f64[5], %y : f64[5]):
  %a : f64[5] = sin(%x)
  %b : f64[5] = mul(%x, %x)
  %c : f64[5] = mul(%b, %y)
  %z : f64[5] = add(%c, %a)
  return (%z)"""
ADDED = """graph f(%x : f64[5], %y : f64[5]):
  %a : f64[5] = sin(%x)
  %b : f64[5] = add(%y, %a)
  %c : f64[5] = add(%b, %a)
  %z : f64[5] = exp(%c)
  return (%z)"""


def ops_of_df(text: str) -> list[str]:
    gradient = differentiate(parse_graph(text))
    defined = [True] + [False] * (len(gradient.f.outputs) - 1)
    return [n.kind for n in specialize_autograd_zero(gradient.df, defined).graph.nodes()]


def test_the_two_gradients_of_a_square_are_one_product_doubled() -> None:
    kinds = ops_of_df(SQUARE)
    assert kinds.count("add") == 1, "that of the sine's gradient"
    assert "AutogradAdd" not in kinds


def test_what_a_function_adds_is_added_as_it_is_written() -> None:
    assert [n.kind for n in differentiate(parse_graph(ADDED)).f.nodes()].count("add") == 2


FUNCTIONS: list[Callable[[Any, Any], Any]] = [
    lambda x, y: (x * x * y).sum() + x.sin().sum(),
    lambda x, y: ((x * x) * (x * x)).sum() + (y * y).sum(),
    lambda x, y: (x * y + y * x + x * y).sum() + (x * x).sum(),
    lambda x, y: (x + x + x * x * x).sum() * (y + y).sum(),
    lambda x, y: (x * (x.floor() + x.ceil() + x.round() + x.trunc()) + y.frac() * y).sum(),
    lambda x, y: (x / (1 + x * x) * (y * y).mean(-1, keepdim=True)).sum(),
]


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_and_their_gradients_are_torchs(
    function: Callable[[Any, Any], Any], dtype: torch.dtype
) -> None:
    rng = torch.Generator().manual_seed(3)
    ours = [torch.randn(4, 6, generator=rng, dtype=dtype, requires_grad=True) for _ in range(2)]
    theirs = [t.detach().clone().requires_grad_() for t in ours]
    weights = [torch.randn(4, 6, generator=rng, dtype=dtype) for _ in range(2)]
    compiled = gradof.differentiate(function)

    def both(f: Callable[[Any, Any], Any], leaves: list[torch.Tensor]) -> list[torch.Tensor]:
        first = torch.autograd.grad(f(*leaves), leaves, create_graph=True)
        scalar = sum((g * w).sum() for g, w in zip(first, weights, strict=True))
        return [*first, *torch.autograd.grad(scalar, leaves)]  # type: ignore[arg-type]

    tolerance = 2e-5 if dtype == torch.float32 else 1e-12
    for have, want in zip(both(compiled, ours), both(function, theirs), strict=True):
        atol = tolerance * float(want.detach().abs().max())
        np.testing.assert_allclose(have.detach(), want.detach(), rtol=tolerance, atol=atol)
    assert compiled.cache_info().backward_runs >= 1, "torch was not compared with itself"
