"""A torch.autograd.Function whose backward calls the Function."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import gradof
from gradof.errors import CustomRuleError


class Solve(torch.autograd.Function):
    """A solution, whose gradient is one."""

    @staticmethod
    def forward(ctx: Any, a: Any, b: Any, factor: Any, pivots: Any, adjoint: bool) -> Any:
        x = torch.linalg.lu_solve(factor, pivots, b, adjoint=adjoint)
        ctx.adjoint = adjoint
        ctx.save_for_backward(a, x, factor, pivots)
        return x

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        a, x, factor, pivots = ctx.saved_tensors
        solve: Any = Solve
        back = solve.apply(a, grad, factor, pivots, not ctx.adjoint)
        return -(x @ back.mT if ctx.adjoint else back @ x.mT), back, None, None, None


def test_a_function_whose_backward_calls_itself() -> None:
    def solve(a: Any, b: Any) -> Any:
        with torch.no_grad():
            factor, pivots = torch.linalg.lu_factor(a)
        function: Any = Solve
        return function.apply(a, b, factor, pivots, False)

    torch.manual_seed(0)
    a = (torch.randn(3, 3, dtype=torch.float64) + 3 * torch.eye(3)).requires_grad_()
    b = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    fast = gradof.differentiate(solve, strict=True)
    ours, eagers = fast(a, b), torch.linalg.solve(a, b)
    for _ in range(3):
        assert torch.allclose(ours, eagers, rtol=1e-9)
        ours, = torch.autograd.grad(ours.square().sum(), a, create_graph=True)
        eagers, = torch.autograd.grad(eagers.square().sum(), a, create_graph=True)
    assert torch.allclose(ours, eagers, rtol=1e-9) and fast.cache_info().backward_runs
    with pytest.raises(CustomRuleError, match="order 4 of Solve, whose backward calls itself"):
        torch.autograd.grad(ours.sum(), a, create_graph=True)


class Covariance(torch.autograd.Function):
    """As gpytorch's: it refuses gradients that it has not."""

    @staticmethod
    def forward(ctx: Any, x: Any, scale: Any) -> Any:
        if ctx.needs_input_grad[0]:
            raise RuntimeError("no gradient of x")
        ctx.save_for_backward(x)
        return x * scale

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return None, (grad * ctx.saved_tensors[0]).sum()


def test_a_function_that_asks_which_gradients_are_due() -> None:
    points, scale = torch.arange(3.0), torch.tensor(2.0, requires_grad=True)
    covariance: Any = Covariance

    def fn() -> Any:
        return covariance.apply(points.reshape(3, 1), scale).square().sum()

    fast = gradof.differentiate(fn, strict=True)
    for _ in range(2):
        (grad,) = torch.autograd.grad(fast(), scale)
        assert grad == 20.0
    assert fast.cache_info().backward_runs == 2

    def of(x: Any) -> Any:
        return covariance.apply(x, scale.detach()).sum()

    with pytest.raises(RuntimeError, match="no gradient of x"):
        gradof.grad(of)(points)
