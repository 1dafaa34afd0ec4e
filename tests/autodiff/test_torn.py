"""What is compared with a selection of itself is of one computation: Note [Torn comparisons]."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import gradof
from gradof import differentiate
from gradof.autodiff import differentiate as autodiff
from gradof.autodiff.gradient import Gradient
from gradof.ir.parser import parse_graph
from gradof.passes.torn import jumps, torn

Tensor = torch.Tensor

SUMMED = """graph f(%x : f32[256,256], %b : f32[256], %w : f32[256,256]):
  %a : f32[256,256] = add(%x, %b)
  %e : f32[256,256] = exp(%a)
  {select}
  {last}
  return (%y)"""
SELECTED = {
    "the rule of amax": ("%m : f32[256,1] = amax[dims=(1,), keepdims=True](%e)",
                         "%y : f32[256,256] = mul(%w, %m)"),
    "a mask of maxima": ("%m : f32[256,1] = amax[dims=(1,), keepdims=True](%e)",
                         "%h : bool[256,256] = eq(%e, %m)\n  %f : f32[256,256] = "
                         "cast[dtype=f32](%h)\n  %v : f32[256,256] = mul(%w, %f)\n"
                         "  %y : f32[256,256] = mul(%v, %m)"),
    "the largest ones": (
        "%s : f32[256,1], %i : i64[256,1] = kthvalue[dim=1, k=200, keepdims=True](%e)",
        "%h : bool[256,256] = ge(%e, %s)\n  %f : f32[256,256] = cast[dtype=f32](%h)"
        "\n  %v : f32[256,256] = mul(%w, %f)\n  %y : f32[256,256] = mul(%v, %s)"),
    "twice the maximum": (
        "%m : f32[256,1] = amax[dims=(1,), keepdims=True](%e)\n  %n : f32[256,1] = add(%m, %m)",
        "%d : f32[256,256] = add(%e, %e)\n  %h : bool[256,256] = eq(%d, %n)"
        "\n  %f : f32[256,256] = cast[dtype=f32](%h)\n  %v : f32[256,256] = mul(%w, %f)"
        "\n  %y : f32[256,256] = mul(%v, %n)"),
}  # fmt: skip


def is_torn(gradient: Gradient) -> bool:
    """Whether df is given what was selected, and computes again what it was selected from."""
    given = [gradient.f.outputs[i] for i in gradient.df_input_captured_outputs]
    kinds = {v.node.kind for v in given if v.node is not None}
    again = {n.kind for n in gradient.df.nodes()}
    return bool(kinds & {"amax", "kthvalue", "add"}) and "exp" in again


@pytest.mark.parametrize("name", SELECTED)
@pytest.mark.parametrize("budget", [None, 0.5, 0.0])
def test_a_cut_tears_no_comparison(name: str, budget: float | None) -> None:
    select, last = SELECTED[name]
    graph = parse_graph(SUMMED.replace("{select}", select).replace("{last}", last))
    gradient = autodiff.differentiate(graph, memory_budget=budget)
    assert not is_torn(gradient)


def test_what_is_kept_may_be_compared_with_its_maximum() -> None:
    graph = parse_graph("""graph f(%x : f32[256,256], %w : f32[256,256]):
  %m : f32[256,1] = amax[dims=(1,), keepdims=True](%x)
  %y : f32[256,256] = mul(%w, %m)
  return (%y)""")
    gradient = autodiff.differentiate(graph)
    assert not any(n.kind == "amax" for n in gradient.df.nodes()), "no reduction runs twice"


def test_which_values_are_torn() -> None:
    graph = parse_graph(SUMMED.replace("{select}", SELECTED["a mask of maxima"][0])
                        .replace("{last}", SELECTED["a mask of maxima"][1]))  # fmt: skip
    named = {v.hint: v for n in graph.nodes() for v in n.outputs}
    nodes = [n for n in graph.nodes() if jumps(n)]
    assert torn(nodes, {named["m"]}.__contains__) == [named["m"]]
    assert torn(nodes, {named["m"], named["e"]}.__contains__) == []
    assert torn(nodes, {named["a"]}.__contains__) == []


LOOPS: dict[str, Callable[[Tensor], Tensor]] = {
    "amax": lambda t: t - torch.amax(t, -1, keepdim=True),
    "amin": lambda t: t * torch.amin(t, -1, keepdim=True),
    "median": lambda t: t - t.median(),
    "mask": lambda t: t * (t == t.max()) / (t == t.max()).sum(),
    "top": lambda t: torch.where(t >= t.topk(3).values[-1:], t, t * 0.1) / t.topk(3).values[-1],
}  # fmt: skip


@pytest.mark.parametrize("name", LOOPS)
def test_selections_in_a_loop_have_a_gradient(name: str) -> None:
    """Found by a random program: nan, as no logarithm was the largest one when computed again."""
    def fn(x: Tensor, y: Tensor) -> Tensor:
        for _ in range(13):
            t = torch.log(torch.abs(torch.where(x > 0, x, 0.1 * y)) + 0.4)
            x = torch.tanh(torch.clip(x[..., [2, 1, 6, 4, 7, 5, 5, 1, 6]], -0.6, 0.8))
            y = 0.5 * y + 0.3 * torch.tanh(torch.log(torch.abs(LOOPS[name](t)) + 0.4))
        return x.sum() + y.sum()

    for seed in range(6):
        generator = torch.Generator().manual_seed(seed)
        args = [torch.randn(9, generator=generator, requires_grad=True) for _ in range(2)]
        ours = torch.autograd.grad(differentiate(fn)(*args), args)
        exact = torch.autograd.grad(fn(*(a.double() for a in args)), args)
        for mine, right in zip(ours, exact, strict=True):
            assert torch.allclose(mine, right, rtol=1e-3, atol=1e-4)


def test_maxima_in_a_loop_of_numpy_have_a_gradient() -> None:
    def fn(x: Any, y: Any) -> Any:
        for _ in range(13):
            t = np.log(np.abs(np.where(x > 0, x, np.float32(0.1) * y)) + np.float32(0.4))
            x = np.tanh(x[[2, 1, 6, 4, 7, 5, 5, 1, 6]])
            y = np.float32(0.5) * y + np.tanh(t - np.max(t))
        return x.sum() + y.sum()

    for seed in range(6):
        rng = np.random.default_rng(seed)
        args = [rng.standard_normal(9).astype(np.float32) for _ in range(2)]
        for grad in gradof.grad(fn, argnums=(0, 1))(*args):
            assert np.isfinite(grad).all()
