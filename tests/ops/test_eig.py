"""Eigenvalues of general matrices, and inverses of complex ones, against torch to second order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from gradof import differentiate
from tests.runtime.compare import assert_compiled

Tensor = torch.Tensor


def spectrum(x: Tensor) -> Tensor:
    values, vectors = torch.linalg.eig(x)
    lengths: Tensor = values.abs().sin().sum(-1) + values.real[..., 0]
    total: Tensor = lengths + (vectors.abs() ** 3).sum((-1, -2))
    return total


CASES: dict[str, Callable[[Tensor], Tensor]] = {
    "eig": spectrum,
    "eigvals": lambda x: torch.linalg.eigvals(x).imag.abs(),
    "inv": lambda x: torch.linalg.inv(x).abs(),
    "solve": lambda x: torch.linalg.solve(x, torch.ones(3, 2, dtype=x.dtype)).abs(),
    "det": lambda x: torch.linalg.det(x).abs(),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_to_second_order(name: str, dtype: torch.dtype, batch: tuple[int, ...]) -> None:
    torch.manual_seed(4)
    x = torch.randn(*batch, 3, 3, dtype=dtype) + torch.diag(torch.tensor([1.0, 3.0, 6.0]))
    runs: list[list[Any]] = []
    compiled = differentiate(CASES[name])
    for fn in (compiled, CASES[name]):
        leaf = x.clone().requires_grad_()
        out = fn(leaf)
        seed = torch.linspace(0.5, 1.5, out.numel(), dtype=out.dtype).reshape(out.shape)
        (first,) = torch.autograd.grad(out, leaf, seed, create_graph=True)
        (second,) = torch.autograd.grad(first.abs().pow(2).sum(), leaf)
        runs.append([out, first, second])
        if fn is compiled:
            assert_compiled([out])
    for mine, theirs in zip(*runs, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-8, atol=1e-9)
