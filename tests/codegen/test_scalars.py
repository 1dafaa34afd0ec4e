"""Arithmetic of arrays without dimensions: Python's operators on numpy scalars, bit for bit."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch

import gradof
from gradof.codegen import compile_graph
from gradof.ir.parser import parse_graph

pytestmark = pytest.mark.usefixtures("op_by_op")

TEXT = """graph f(%x : {d}[], %y : {d}[], %v : {d}[3]):
  %0 : float = Constant[value=0.1]()
  %1 : int = Constant[value=3]()
  %a : {d}[] = add(%x, %y)
  %b : {d}[] = sub(%0, %x)
  %c : {d}[] = mul(%a, %1)
  %e : {d}[] = div(%b, %y)
  %g : {d}[] = neg(%e)
  %h : {d}[] = square(%c)
  %s : {d}[] = sum[dims=(0,), keepdims=False](%v)
  %m : {d}[] = div(%s, %1)
  %k : {d}[] = sin(%m)
  %n : {d}[] = mul(%k, %h)
  %w : {d}[3] = mul(%n, %v)
  %z : {d}[] = neg(%x)
  return (%a, %b, %c, %e, %g, %h, %m, %n, %w, %z)"""
SPECIAL = [0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan, 1e-320, 3e38, 1.7e308]


def expected(x: Any, y: Any, v: Any) -> list[Any]:
    """The graph in ufuncs."""
    a, b = np.add(x, y), np.subtract(0.1, x)
    c, e = np.multiply(a, 3), np.true_divide(b, y)
    h, m = np.square(c), np.true_divide(np.add.reduce(v), 3)
    n = np.multiply(np.sin(m), h)
    found = [a, b, c, e, np.negative(e), h, m, n, np.multiply(n, v), np.negative(x)]
    return [np.asarray(f) for f in found]


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_operators_give_the_bits_and_dtypes_of_ufuncs(library: Any, dtype: str) -> None:
    graph = parse_graph(TEXT.replace("{d}", dtype))
    run = compile_graph(graph, library=library)
    assert "np.add(" not in run.source and "x_0 = x[()]" in run.source
    kind = {"f32": np.float32, "f64": np.float64}[dtype]
    v = np.array([0.3, -1.7, 2.9], kind)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("error")
        for x in np.array(SPECIAL, kind):
            for y in np.array(SPECIAL, kind):
                given = np.asarray(x), np.asarray(y), v
                for have, want in zip(run(*given), expected(*given), strict=True):
                    assert type(have) is np.ndarray and have.dtype == want.dtype == kind
                    assert have.shape == want.shape
                    same = have.tobytes() == want.tobytes()
                    assert same or bool(np.isnan(have).all() and np.isnan(want).all())


def test_arguments_are_neither_kept_nor_changed() -> None:
    text = "graph f(%x : f64[]):\n %y : f64[] = add(%x, %x)\n return (%y, %x)"
    run = compile_graph(parse_graph(text))
    x = np.array(2.0)
    y, again = run(x)
    assert y == 4.0 and again == 2.0 and not np.shares_memory(again, x)
    again[...] = 7.0
    assert x == 2.0


def test_a_function_of_one_number_and_its_derivatives() -> None:
    def fn(x: Any) -> Any:
        return np.sin(x) * np.exp(-x * x) + np.sqrt(1.0 + x * x)

    run, slope = gradof.value_and_grad(fn), gradof.grad(gradof.grad(fn))
    x = np.float64(0.7)
    value, first = run(x)
    s, c, e, r = np.sin(x), np.cos(x), np.exp(-x * x), np.sqrt(1 + x * x)
    np.testing.assert_allclose(value, fn(x), rtol=1e-15)
    np.testing.assert_allclose(first, (c - 2 * x * s) * e + x / r, rtol=1e-14)
    second = (-s - 2 * s - 2 * x * c - 2 * x * (c - 2 * x * s)) * e + 1 / r**3
    np.testing.assert_allclose(slope(x), second, rtol=1e-13)


def test_losses_of_torch_are_as_they_were() -> None:
    def fn(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return (x * x).mean() * scale / (1.0 + scale * scale) - scale

    x, scale = torch.randn(5, 4), torch.tensor(0.3)
    run = gradof.differentiate(fn)
    for a in (x, scale):
        a.requires_grad_()
    for _ in range(3):
        value, want = run(x, scale), fn(x, scale)
        torch.testing.assert_close(value, want)
        have = torch.autograd.grad(value * 0.7, (x, scale))
        torch.testing.assert_close(have, torch.autograd.grad(want * 0.7, (x, scale)))
    assert run.cache_info().backward_runs >= 2
