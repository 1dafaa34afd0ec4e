"""Composites with a gradient of their own: softmax, seen by the reverse and inlined afterwards."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import gradof
from gradof.autodiff.differentiate import differentiate, show_reverse
from gradof.ir.parser import parse_graph
from gradof.ir.types import TensorType
from gradof.passes.expand_composites import expand_composites

SOFTMAX = """graph f(%x : {d}[3,5], %w : {d}[3,5]):
  %z : {d}[3,5] = mul(%x, %w)
  %y : {d}[3,5] = softmax[dim=1](%z)
  %r : {d}[3,5] = mul(%y, %w)
  return (%r)"""


def test_the_reverse_has_one_block_for_it_and_the_split_is_in_primitives() -> None:
    graph = parse_graph(SOFTMAX.replace("{d}", "f64"))
    shown = str(show_reverse(graph))
    assert "softmax[dim=1]" in shown and shown.count("GradOf[name='softmax']") == 1
    assert "exp(" not in shown and "amax" not in shown
    gradient = differentiate(graph)
    assert "softmax[" not in str(gradient.f) and "softmax[" not in str(gradient.df)
    assert str(gradient.f).count("exp(") == 1 and "exp(" not in str(gradient.df)


def test_only_its_result_is_saved() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return (torch.softmax(x.sin(), -1) ** 2).sum()

    x = torch.randn(6, 7, requires_grad=True)
    run = gradof.differentiate(fn)
    run(x).backward()
    report = str(run.explain(x))
    assert "saved for the backward: 2 values" in report, report  # x, for the sine, and the result
    assert "softmax (%d); least cost" in report


def test_a_composite_that_holds_it_is_inlined_around_it() -> None:
    graph = parse_graph("""graph f(%x : f64[3,5], %t : f64[3,5]):
      %l : f64[] = mse_loss[reduction='sum'](%x, %t)
      %y : f64[3,5] = softmax[dim=0](%x)
      return (%l, %y)""")
    assert expand_composites(graph, with_rules=False)
    kinds = [n.kind for n in graph.nodes()]
    assert "softmax" in kinds and "mse_loss" not in kinds
    assert not expand_composites(graph, with_rules=False)
    assert expand_composites(graph) and "softmax" not in [n.kind for n in graph.nodes()]


@pytest.mark.cases(2)
@pytest.mark.parametrize("budget", [None, 0.5, 0.0])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_three_derivatives_are_eagers(dim: int, budget: float | None) -> None:
    def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = torch.softmax(x * w, dim)
        return (torch.softmax(y.exp(), 1) * w + y * x).sin()

    rng = np.random.default_rng(3)
    x, w, c, v = (torch.from_numpy(rng.standard_normal((4, 6))) for _ in range(4))
    x.requires_grad_(), w.requires_grad_()
    run = gradof.differentiate(fn, memory_budget=budget)
    found = []
    for f in (run, fn):
        y = f(x, w)
        (first,) = torch.autograd.grad(y, x, c, create_graph=True)
        second = torch.autograd.grad(first, (x, w), v, create_graph=True)
        third = torch.autograd.grad(second[1].square().sum(), (x, w))
        found.append([y, first, *second, *third])
    assert run.cache_info().backward_runs >= 3, "our own transform ran"
    for have, want in zip(*found, strict=True):
        torch.testing.assert_close(have, want, rtol=1e-10, atol=1e-11)


def test_shared_with_a_log_softmax_it_computes_the_exponentials_once() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return -(torch.softmax(x, -1) * torch.log_softmax(x, -1)).sum(-1)

    x = torch.randn(5, 9, dtype=torch.float64, requires_grad=True)
    cotangent = torch.randn(5, dtype=torch.float64)
    run = gradof.differentiate(fn)
    y = run(x)
    (have,) = torch.autograd.grad(y, x, cotangent)
    expected = fn(x)
    (want,) = torch.autograd.grad(expected, x, cotangent)
    torch.testing.assert_close(y, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(have, want, rtol=1e-12, atol=1e-12)
    ((_, plan),) = run.plans()[0].gradients.items()
    assert str(plan.f.graph).count(" = exp(") == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("columns", [7, 3000])
def test_half_precision_is_no_farther_from_float64_than_eager(
    columns: int, dtype: torch.dtype
) -> None:
    x = torch.randn(8, columns, dtype=dtype, requires_grad=True)
    c = torch.randn(8, columns, dtype=dtype)
    wide = x.detach().double().requires_grad_()
    (exact,) = torch.autograd.grad(F.softmax(wide, -1), wide, c.double())
    errors = []
    for f in (gradof.differentiate(lambda x: F.softmax(x, -1)), lambda x: F.softmax(x, -1)):
        (found,) = torch.autograd.grad(f(x), x, c)
        assert found.dtype == dtype
        errors.append(float((found.double() - exact).abs().max()))
    assert errors[0] <= 1.5 * errors[1] + 1e-12


def test_rows_of_no_elements_and_of_minus_infinity() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1)

    for shape in ((3, 0), (0, 4)):
        x = torch.randn(shape, requires_grad=True)
        (have,) = torch.autograd.grad(gradof.differentiate(fn)(x), x, torch.randn(shape))
        assert have.shape == shape
    x = torch.tensor([[0.5, -torch.inf, 1.0], [-torch.inf] * 3], requires_grad=True)
    c = torch.randn(2, 3)
    (have,) = torch.autograd.grad(gradof.differentiate(fn)(x), x, c)
    (want,) = torch.autograd.grad(fn(x), x, c)
    torch.testing.assert_close(have, want, equal_nan=True)


def test_nan_safe_looks_into_it() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        dead = (x == -torch.inf).all(-1, keepdim=True)
        return torch.where(dead, 0.0, torch.softmax(x, -1))

    x = torch.tensor([[0.1, -torch.inf, 1.0], [-torch.inf] * 3], requires_grad=True)
    c = torch.tensor([[0.3, -1.2, 2.0], [1.0, 0.5, -0.7]])
    (plain,) = torch.autograd.grad(gradof.differentiate(fn)(x), x, c)
    (want,) = torch.autograd.grad(fn(x), x, c)
    torch.testing.assert_close(plain, want, equal_nan=True)
    assert plain[1].isnan().all(), "as in eager"
    (safe,) = torch.autograd.grad(gradof.differentiate(fn, numerics="nan_safe")(x), x, c)
    torch.testing.assert_close(safe, want.nan_to_num(0.0))


def test_types_stay() -> None:
    gradient = differentiate(parse_graph(SOFTMAX.replace("{d}", "f16")))
    kinds = [v.type for v in gradient.df.outputs]
    assert all(isinstance(t, TensorType) and t.dtype.name == "f16" for t in kinds)
