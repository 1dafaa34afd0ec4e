"""Backwards under vmap, by torch.autograd and by torch.func: each cotangent has its gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import gradof


def _fn(x: Any, w: Any) -> Any:
    return torch.tanh(x @ w) ** 2


def _inputs() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    return x, torch.randn(3, 2, dtype=torch.float64, requires_grad=True)


def _many(f: Callable[..., Any], **options: Any) -> Any:
    x, w = _inputs()
    seeds = torch.randn(5, 4, 2, dtype=torch.float64)
    return torch.autograd.grad(f(x, w), [x, w], seeds, is_grads_batched=True, **options)


def _many_twice(f: Callable[..., Any]) -> Any:
    x, w = _inputs()
    seeds = torch.randn(5, 4, 2, dtype=torch.float64)
    y = f(x, w)
    first = torch.autograd.grad(y, [x, w], seeds, is_grads_batched=True, create_graph=True)
    return torch.autograd.grad([(g**2).sum() for g in first], [x, w])


def _number(f: Callable[..., Any]) -> Any:
    x, w = _inputs()
    for _ in range(3):  # from then on gradients are computed with the value
        torch.autograd.grad(f(x, w).sum(), [x, w])
    seeds = torch.tensor([1.0, -2.0], dtype=torch.float64)
    return torch.autograd.grad(f(x, w).sum(), [x, w], seeds, is_grads_batched=True)


def _func_vmap(f: Callable[..., Any]) -> Any:
    x, w = _inputs()
    seeds, y = torch.randn(4, 2, 5, dtype=torch.float64), f(x, w)
    vmap: Any = torch.func.vmap
    return vmap(lambda v: torch.autograd.grad(y, [x, w], v, retain_graph=True), in_dims=2)(seeds)


def _jacobian(f: Callable[..., Any]) -> Any:
    jacobian: Any = torch.autograd.functional.jacobian
    return jacobian(f, _inputs(), vectorize=True)


def _hessian(f: Callable[..., Any]) -> Any:
    hessian: Any = torch.autograd.functional.hessian
    return hessian(lambda x, w: f(x, w).sum(), _inputs(), vectorize=True)


WAYS = {f.__name__: f for f in (_many, _many_twice, _number, _func_vmap, _jacobian, _hessian)}


@pytest.mark.parametrize("name", WAYS)
def test_as_in_eager(name: str) -> None:
    ours: Any = gradof.differentiate(_fn)
    if name in ("_number", "_hessian"):  # of one number, which may come with its gradients
        ours = gradof.differentiate(lambda x, w: _fn(x, w).sum())
    found = []
    for fn in (ours, ours.fn):
        torch.manual_seed(1)
        found.append(WAYS[name](fn))
    torch.testing.assert_close(*found)
    assert ours.cache_info().backward_runs >= 2
