"""Numbers that vary and are no operands: one trace serves all, as eager computes and draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import gradof
from gradof.tracer.torch.written_numbers import WRITTEN

T = torch.Tensor
X = torch.randn(6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
X[0, 0] = 0.0
X[1] = torch.tensor([0.1, 0.2, -0.1, -0.2, 0.3])  # at the edges
LABELS = torch.tensor([0, 1, -100, 3, 4, 0])
NORMAL: Any = torch.distributions.Normal
VALUES = (0.1, 0.2, 0.3, 0.4)

CASES: dict[str, Callable[[T, Any], T]] = {
    "leaky_relu": lambda x, p: F.leaky_relu(x, p),
    "elu": lambda x, p: F.elu(x * 100, p),
    "celu": lambda x, p: F.celu(x * 100, p),
    "softplus": lambda x, p: F.softplus(x * 100, p),
    "hardtanh": lambda x, p: F.hardtanh(x, -p, p),
    "softshrink": lambda x, p: F.softshrink(x, p),
    "huber_loss": lambda x, p: F.huber_loss(x, torch.zeros_like(x), delta=p),
    "smooth_l1_loss": lambda x, p: F.smooth_l1_loss(x, x * 0, beta=p, reduction="sum"),
    "margin_ranking_loss": lambda x, p: F.margin_ranking_loss(x, x * 2, x.sign(), margin=p),
    "triplet_margin_loss": lambda x, p: F.triplet_margin_loss(x, x * 2, x * 3, p, swap=True),
    "cross_entropy": lambda x, p: F.cross_entropy(x, LABELS, label_smoothing=p),
    "cross_entropy, each": lambda x, p: F.cross_entropy(
        x, LABELS, label_smoothing=p, reduction="none"
    ),
    "addmm": lambda x, p: torch.addmm(x[:5], x[:5], x[:5], alpha=p, beta=2 * p),
    "scaled_dot_product_attention": lambda x, p: F.scaled_dot_product_attention(x, x, x, scale=p),
    "normal": lambda x, p: torch.normal(0.0, p, (6, 5)) * x,
    "normal_": lambda x, p: torch.empty(6, 5).normal_(1.0, p) * x,
    "uniform_": lambda x, p: torch.empty(6, 5).uniform_(-p, p) * x,
    "broadcast_tensors": lambda x, p: NORMAL(x, p).log_prob(x * 2),
    "broadcast_tensors of numbers": lambda x, p: NORMAL(0, p).log_prob(x),
    "sampled": lambda x, p: torch.distributions.Laplace(x, p).rsample(),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_as_eager_in_one_trace_more(name: str, dtype: torch.dtype) -> None:
    """Values, gradients at the edges too, and the state of the generator."""
    fn = CASES[name]
    compiled = gradof.differentiate(fn)
    for value in VALUES:
        found = []
        for called in (fn, compiled):
            x = X.to(dtype, copy=True).requires_grad_()
            torch.manual_seed(1)
            y = called(x, value)
            state = torch.get_rng_state()
            y.backward(torch.ones_like(y) * 0.7)
            found.append((y.detach(), x.grad, state))
        torch.testing.assert_close(found[1], found[0], equal_nan=True)
    assert compiled.cache_info().misses == 2


@pytest.mark.parametrize("name", CASES)
def test_half_precision_keeps_the_op_itself(name: str) -> None:
    """Eager rounds once; what a program covers is single precision and above."""
    compiled = gradof.differentiate(CASES[name])
    for value in VALUES[:3]:
        torch.manual_seed(1)
        want = CASES[name](X.bfloat16(), value)
        torch.manual_seed(1)
        torch.testing.assert_close(compiled(X.bfloat16(), value), want)


def test_each_program_has_a_case() -> None:
    """A new one is tested."""
    known = {"baddbmm", "broadcast_tensors"} | {name.partition(" ")[0].strip(",") for name in CASES}
    assert {getattr(f, "__name__", "") for f in WRITTEN} <= known


def test_a_negative_deviation_is_an_error_as_in_eager() -> None:
    """The trace holds for deviations that are none below zero."""
    compiled = gradof.differentiate(lambda x, p: x * torch.normal(0.0, p, (6, 5)))
    for value in VALUES:
        compiled(X, value)
    with pytest.raises(RuntimeError, match="std"):
        compiled(X, -1.0)
