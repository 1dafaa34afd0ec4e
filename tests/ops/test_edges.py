"""Gradients at zero, ties, bounds, infinity and nan are torch eager's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import gradof

INF, NAN = float("inf"), float("nan")
X = torch.tensor([0.0, 0.0, 0.0, -2.0, -2.0, 1.5, INF, NAN], dtype=torch.float64)
Y = torch.tensor([0.0, 2.0, -1.0, 2.0, 0.5, -1.0, 2.0, 1.0], dtype=torch.float64)

CASES: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...]]] = {
    "pow": (lambda x, y: x**y, (X, Y)),
    "x**0": (lambda x: x**0, (X,)),
    "x**-1": (lambda x: x**-1, (X,)),
    "x**0.5": (lambda x: x**0.5, (X,)),
    "x**3": (lambda x: x**3, (X,)),
    "0**y": (lambda y: 0.0**y, (Y,)),
    "(-2)**y": (lambda y: (-2.0) ** y, (Y,)),
    "sign": (torch.sign, (X,)),
    "abs": (torch.abs, (X,)),
    "relu": (torch.relu, (X,)),
    "clamp": (lambda x: x.clamp(0.0, 1.5), (X,)),
    "maximum": (torch.maximum, (X, X.flip(0))),
    "minimum": (torch.minimum, (X, X.flip(0))),
    "where": (lambda x: torch.where(x > 0, x.sqrt(), x), (X,)),
    "prod": (lambda x: x[:6].prod(), (X,)),
    "amax": (lambda x: x[:6].amax(), (X,)),
    "xlogy": (torch.xlogy, (X, Y)),
    "norm": (lambda x: (x[:6] * 0).norm(), (X,)),
    "std": (lambda x: (x[:5] * 0).std(), (X,)),
    "atan2": (torch.atan2, (X, Y)),
    "fmod": (torch.fmod, (X, Y)),
    "remainder": (torch.remainder, (X, Y)),
    "logaddexp": (torch.logaddexp, (X, Y)),
    "rsqrt": (torch.rsqrt, (X,)),
    "div": (torch.div, (X, Y)),
    "hypot": (torch.hypot, (X, Y)),
    "asin": (torch.asin, (X,)),
    "softplus": (lambda x: functional.softplus(x * 100), (X,)),
    # torch's own slope at nan is 1 or nan, by the processor's vector width
    "elu": (functional.elu, (X[:7],)),
    "leaky_relu": (functional.leaky_relu, (X,)),
    "sinc": (torch.sinc, (X,)),
    "logsumexp of -inf": (lambda y: torch.logsumexp(torch.stack([y * 0 - INF, y]), 0), (Y,)),
}

# Where we differ, and why; each is counted: the test fails once one of them agrees.
DIFFERS: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...], str]] = {
    "logsumexp of -inf alone": (
        lambda y: torch.logsumexp(torch.stack([y * 0 - INF, y * 0 - INF]), 0), (Y,),
        "the gradient is 0 rather than nan, so that a masked row does not spoil the others",
    ),
    "lerp of infinities": (
        lambda x, y: torch.lerp(x, y, y), (X, Y),
        "the weight's gradient subtracts products of the expansion: inf - inf at infinite ends",
    ),
}  # fmt: skip


def gradients(fn: Callable[..., Tensor], args: tuple[Tensor, ...]) -> tuple[Any, Tensor]:
    leaves = [a.clone().requires_grad_() for a in args]
    value = fn(*leaves)
    return value.detach(), torch.cat(torch.autograd.grad(value.sum(), leaves))


@pytest.mark.parametrize("name", CASES)
def test_edge_is_eager_s(name: str) -> None:
    fn, args = CASES[name]
    compiled = gradof.differentiate(fn)
    value, slope = gradients(compiled, args)
    expected, expected_slope = gradients(fn, args)
    assert compiled.cache_info().backward_runs == 1
    torch.testing.assert_close(value, expected, equal_nan=True)
    torch.testing.assert_close(slope, expected_slope, equal_nan=True)


@pytest.mark.parametrize("name", DIFFERS)
def test_known_difference_is_still_one(name: str) -> None:
    fn, args, reason = DIFFERS[name]
    ours, eager = gradients(gradof.differentiate(fn), args)[1], gradients(fn, args)[1]
    assert reason and not torch.allclose(ours, eager, equal_nan=True)
    finite = torch.isfinite(eager)
    torch.testing.assert_close(ours[finite], eager[finite])
