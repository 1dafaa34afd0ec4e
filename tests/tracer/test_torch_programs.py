"""Linear algebra, and programs that once went wrong, against eager to second order."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import gradof
from gradof.errors import UnsupportedOpError
from gradof.testing import check

ROOT = Path(__file__).parents[2]


def spd(x: Tensor) -> Tensor:
    """A well-conditioned symmetric positive definite matrix made of x."""
    return x @ x.mT + 3.0 * torch.eye(x.shape[-1], dtype=x.dtype)


PROGRAMS: dict[str, Callable[[Tensor], Any]] = {
    "inv": lambda x: torch.linalg.inv(spd(x)),
    "solve": lambda x: torch.linalg.solve(spd(x), x),
    "solve vector": lambda x: torch.linalg.solve(spd(x), x[..., 0]),
    "solve from the right": lambda x: torch.linalg.solve(spd(x), x, left=False),
    "cholesky": lambda x: torch.linalg.cholesky(spd(x)),
    "upper cholesky": lambda x: torch.linalg.cholesky(spd(x), upper=True),
    "det": lambda x: torch.linalg.det(spd(x)),
    "slogdet": lambda x: torch.linalg.slogdet(spd(x)).logabsdet,
    "logdet": lambda x: torch.logdet(spd(x)),
    "eigvalsh": lambda x: torch.linalg.eigvalsh(spd(x)),
    "eigh, gauge free": lambda x: (lambda e: (e[1] * e[0].exp()[..., None, :]) @ e[1].mT)(
        torch.linalg.eigh(spd(x))
    ),
    "a gradient that is a flipped view": lambda x: x.cumsum(0).prod(1),
    "upsampling": lambda x: torch.nn.functional.interpolate(
        x.reshape(1, 1, *x.shape[-2:]), scale_factor=2, mode="bilinear"
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_equals_eager(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    x = torch.randn(3, 3, dtype=dtype, requires_grad=True)
    assert check(PROGRAMS[name], (x,), order=2 if dtype == torch.float64 else 1).ok


@pytest.mark.parametrize("name", ["inv", "solve", "solve vector", "cholesky", "det", "slogdet"])
def test_batched(name: str) -> None:
    torch.manual_seed(2)
    assert check(PROGRAMS[name], (torch.randn(2, 3, 3, dtype=torch.float64),), order=2).ok


def test_an_argument_passed_through_unchanged_is_not_written_back() -> None:
    """contiguous() of a contiguous tensor returns the tensor itself: that is no change of it."""
    x = torch.randn(1, 1, 3, 3, requires_grad=True)
    compiled = gradof.differentiate(PROGRAMS["upsampling"])
    compiled(x)
    assert not compiled.bind((x,), {}).entry.traced.writebacks


def test_zeros_and_negations_not_in_memory_yet() -> None:
    """torch's own zero tensors and negative bits come as cotangents; both are read rightly."""
    x = torch.randn(3, requires_grad=True)
    y = gradof.differentiate(lambda x: torch.sin(x) * 2.0)(x)
    zero = torch._efficientzerotensor((3,))
    (gradient,) = torch.autograd.grad(y, x, zero, retain_graph=True)
    assert torch.equal(gradient, torch.zeros(3))
    negated = torch._neg_view(torch.ones(3))
    (gradient,) = torch.autograd.grad(y, x, negated)
    torch.testing.assert_close(gradient, -2.0 * torch.cos(x.detach()))
    pairs = (torch.randn(3, 4, requires_grad=True), torch.randn(3, 4, requires_grad=True))
    assert check(torch.nn.functional.l1_loss, pairs, order=2).ok


def test_an_op_without_rule_and_program_is_an_unsupported_op() -> None:
    with pytest.raises(UnsupportedOpError, match="mode"):
        gradof.differentiate(lambda x: torch.mode(x).values, strict=True)(torch.randn(5))


def test_tracing_does_not_load_torch_dynamo() -> None:
    """torch wraps dispatch modes so that their first op imports it, which takes over a second."""
    program = (
        "import sys, torch, gradof\n"
        "x = torch.randn(3, requires_grad=True)\n"
        "gradof.differentiate(lambda x: torch.tanh(x).sum())(x).backward()\n"
        "assert x.grad is not None and 'torch._dynamo' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


def test_masked_scatter_of_nothing_has_a_gradient_of_zeros() -> None:
    def fn(x: Tensor, w: Tensor, mask: Tensor) -> Tensor:
        return x.masked_scatter(mask[:, None], x[mask] * w).sum()

    compiled = gradof.differentiate(fn)
    x, w = torch.randn(4, 3), torch.randn(3, requires_grad=True)
    for mask in (torch.zeros(4, dtype=torch.bool), torch.tensor([True, False, True, False])):
        (found,) = torch.autograd.grad(compiled(x, w, mask), w)
        (expected,) = torch.autograd.grad(fn(x, w, mask), w)
        torch.testing.assert_close(found, expected)
    assert compiled.cache_info().backward_runs == 2


@pytest.mark.parametrize("labels", [
    [1, 1, -1, 0, 0], [-1, 0, 0, 0, 0], [0, 1, 2, 3, 4], [2, 2, 2, 2, 2], [4, -1, -1, -1, 1],
])  # fmt: skip
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_labels_behind_the_first_that_is_none(labels: list[int], reduction: str) -> None:
    """They are classes in torch's own program for compilers (2.13)."""
    def loss(x: Tensor, target: Tensor) -> Tensor:
        return torch.nn.functional.multilabel_margin_loss(x, target, reduction=reduction)

    torch.manual_seed(0)
    x, one = torch.randn(2, 5, requires_grad=True), torch.tensor(labels)
    assert check(loss, (x, torch.stack([one, one.flip(0)])), order=1).ok
    assert check(loss, (x.detach()[0].requires_grad_(), one), order=1).ok


@pytest.mark.parametrize("values", [
    [1.0, 2.0, 2.0, 1.0, 3.0, 3.0], [2.0, float("nan"), 2.0, 5.0, float("inf")], [0.0, 0.0], [4.0],
])  # fmt: skip
def test_equal_elements_share_the_gradient_of_a_nanmedian(values: list[float]) -> None:
    x = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    assert check(lambda x: torch.nanmedian(x * 2.0), (x,), order=1).ok
    whole = torch.tensor([3, 1, 1, 2])
    assert gradof.differentiate(lambda n: torch.nanmedian(n))(whole).item() == 1


@pytest.mark.parametrize("reduce", ["amax", "amin", "sum", "mean", "prod"])
@pytest.mark.parametrize("include_self", [False, True])
@pytest.mark.parametrize("dim", [0, 1])
def test_elements_that_an_index_does_not_reach_have_their_own_gradient(
    reduce: str, include_self: bool, dim: int
) -> None:
    def reduced(x: Tensor, source: Tensor) -> Tensor:
        return x.scatter_reduce(dim, index, source, reduce, include_self=include_self)

    torch.manual_seed(0)
    index = torch.tensor([[1, 0, 1], [0, 0, 2]])
    x = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    source = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    assert check(reduced, (x, source), order=1).ok
