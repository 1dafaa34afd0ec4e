"""Loops over tensors that values end: few traces for any number of steps, as eager in any case."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import gradof
from gradof.errors import EagerWarning
from tests.loops.test_whiles import counting_loops
from tests.loops.torch_while_programs import OTHERS, ROLLED
from tests.loops.while_programs import STARTS

NARROW = {"in_single_precision": 1e-5, "in_two_precisions": 1e-5}


def derivatives(fn: Callable[[Any], Any], start: Any) -> list[Any]:
    """The value, the gradient, and the gradient of a sum of the gradient; zeros where none is."""
    x = torch.tensor(start, requires_grad=True)
    value = fn(x)
    found = [value.detach()]
    (slope,) = torch.autograd.grad(value, x, create_graph=True)
    weights = torch.tensor([0.3, -0.5, 0.7], dtype=x.dtype)
    curve = None
    if slope.requires_grad:
        (curve,) = torch.autograd.grad((slope * weights).sum(), x, allow_unused=True)
    return [*found, slope.detach(), torch.zeros_like(x) if curve is None else curve.detach()]


@pytest.mark.cases(15)
@pytest.mark.parametrize("name", [*ROLLED, *OTHERS])
def test_a_loop_that_a_value_ends_is_as_in_eager(name: str) -> None:
    fn = {**ROLLED, **OTHERS}[name]
    compiled: Any = gradof.differentiate(fn)
    tolerance = NARROW.get(name, 1e-9)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", EagerWarning)
        for start in STARTS:
            found, want = derivatives(compiled, abs(start)), derivatives(fn, abs(start))
            torch.testing.assert_close(
                found, want, rtol=tolerance, atol=tolerance, equal_nan=True
            )
    assert len(told) <= (name in OTHERS)
    if name in ROLLED:
        assert compiled.cache_info().misses <= 4
        assert any(counting_loops(compiled))


def test_a_result_of_no_steps_has_no_history() -> None:
    def f(p: Any) -> Any:
        x = torch.ones((), dtype=p.dtype)
        while x < p.detach().abs().sum():
            x = x + p.abs().sum()
        return x

    compiled: Any = gradof.differentiate(f)
    for scale in (3.0, 9.0, 0.1, 5.0, 0.2):
        x = scale * torch.tensor([0.3, -0.5, 0.7], dtype=torch.float64)
        x.requires_grad_()
        found, want = compiled(x), f(x)
        assert found.requires_grad == want.requires_grad
        torch.testing.assert_close(found, want)


def test_large_tensors_have_a_path_each_and_are_as_in_eager() -> None:
    def f(p: Any) -> Any:
        while p.abs().max() > 0.5:
            p = 0.7 * p
        return (p * p).sum()

    compiled: Any = gradof.differentiate(f)
    for scale in (1.0, 4.0, 2.0):
        x = torch.linspace(-scale, scale, 50_000, requires_grad=True)
        torch.testing.assert_close(
            torch.autograd.grad(compiled(x), x), torch.autograd.grad(f(x), x)
        )
    assert not any(counting_loops(compiled))


def test_dropout_in_a_step_draws_as_in_eager() -> None:
    def f(p: Any) -> Any:
        x = p.abs().sum()
        while x > 0.3:
            x = x * (0.5 + 0.3 * torch.rand((), dtype=p.dtype))
        return x

    compiled: Any = gradof.differentiate(f)
    for seed in range(4):
        x = torch.tensor([0.9, 0.4, 2.6], dtype=torch.float64, requires_grad=True)
        torch.manual_seed(seed)
        found = torch.autograd.grad(compiled(x), x)
        torch.manual_seed(seed)
        torch.testing.assert_close(found, torch.autograd.grad(f(x), x))
