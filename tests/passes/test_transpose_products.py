"""Products that are read transposed: no transposing is left, and the numbers are the same."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import gradof
from gradof.codegen import compile_graph
from gradof.ir.clone import clone_graph
from gradof.ir.parser import parse_graph
from gradof.ir.types import TensorType
from gradof.ir.verify import verify
from gradof.passes.transpose_products import transpose_products
from gradof.testing import check

WEIGHT = """graph f(%x : f64[5,3], %g : f64[5,4]):
 %t : f64[3,5] = permute[dims=(1, 0)](%x)
 %p : f64[3,4] = mm(%t, %g)
 %dw : f64[4,3] = permute[dims=(1, 0)](%p)
 return (%dw)"""
FRESH = """graph f(%a : f64[5,3], %b : f64[3,4]):
 %p : f64[5,4] = mm(%a, %b)
 %y : f64[4,5] = permute[dims=(1, 0)](%p)
 return (%y)"""
BATCHES = """graph f(%q : f64[2,5,3], %g : f64[2,5,4]):
 %t : f64[2,3,5] = permute[dims=(0, 2, 1)](%q)
 %p : f64[2,3,4] = bmm(%t, %g)
 %y : f64[2,4,3] = permute[dims=(0, 2, 1)](%p)
 %z : f64[2,4,3] = tanh(%y)
 return (%z)"""
ONE_BATCH = """graph f(%x : f64[6,5], %g : f64[6,4]):
 %a : f64[1,6,5] = reshape[shape=(1, 6, 5)](%x)
 %t : f64[1,5,6] = permute[dims=(0, 2, 1)](%a)
 %h : f64[6,4,1] = reshape[shape=(6, 4, 1)](%g)
 %i : f64[6,1,4] = permute[dims=(0, 2, 1)](%h)
 %b : f64[1,6,4] = reshape[shape=(1, 6, 4)](%i)
 %p : f64[1,5,4] = bmm(%t, %b)
 %q : f64[5,4,1] = reshape[shape=(5, 4, 1)](%p)
 %r : f64[4,5,1] = permute[dims=(1, 0, 2)](%q)
 %dw : f64[4,5] = reshape[shape=(4, 5)](%r)
 return (%dw)"""
TWO_BATCH_DIMS = """graph f(%a : f64[1,2,5,3], %b : f64[1,2,3,4]):
 %p : f64[1,2,5,4] = bmm(%a, %b)
 return (%p)"""
ONE_MATRIX = """graph f(%a : f64[2,5,3], %b : f64[3,4]):
 %p : f64[2,5,4] = bmm(%a, %b)
 %y : f64[2,4,5] = permute[dims=(0, 2, 1)](%p)
 return (%y)"""
SHARED = WEIGHT.replace("return (%dw)", "return (%dw, %t)")
OTHER_DIMS = BATCHES.replace(
    "%y : f64[2,4,3] = permute[dims=(0, 2, 1)](%p)", "%y : f64[4,2,3] = permute[dims=(2, 0, 1)](%p)"
).replace("%z : f64[2,4,3]", "%z : f64[4,2,3]")
READ_TWICE = FRESH.replace("return (%y)", "return (%y, %p)")


@pytest.mark.parametrize("text, expected", [
    (WEIGHT, ["permute", "mm"]), (FRESH, ["permute", "permute", "mm"]),
    (BATCHES, ["permute", "bmm", "tanh"]), (ONE_BATCH, ["permute", "mm"]),
    (SHARED, ["permute", "permute", "mm"]),
])  # fmt: skip
def test_transposed(text: str, expected: list[str]) -> None:
    graph = parse_graph(text)
    before = clone_graph(graph)
    assert transpose_products(graph) and not transpose_products(graph)
    verify(graph)
    assert [node.kind for node in graph.nodes()] == expected
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal(v.type.shape) for v in graph.inputs if
              isinstance(v.type, TensorType) and v.type.shape is not None]  # fmt: skip
    for got, want in zip(*(compile_graph(g)(*arrays) for g in (graph, before)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("text", [OTHER_DIMS, READ_TWICE, TWO_BATCH_DIMS, ONE_MATRIX])
def test_left_alone(text: str) -> None:
    graph = parse_graph(text)
    assert not transpose_products(graph) and graph == parse_graph(text)


@pytest.mark.parametrize("fn", [
    lambda x, w: F.linear(x, w).square().sum(),
    lambda x, w: torch.einsum("bi,oi->bo", x, w).tanh().sum(),
    lambda x, w: (w @ x.T).sin().sum(),
])  # fmt: skip
def test_a_linear_layers_gradient_has_its_weights_layout(
    fn: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> None:
    """So that torch can keep it as it is, and no step copies it."""
    torch.manual_seed(1)
    x = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    w = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    compiled = gradof.differentiate(fn)
    got = torch.autograd.grad(compiled(x, w), (x, w))
    assert compiled.cache_info().backward_runs
    for gradient, tensor, want in zip(
        got, (x, w), torch.autograd.grad(fn(x, w), (x, w)), strict=True
    ):
        assert gradient.stride() == tensor.stride()
        torch.testing.assert_close(gradient, want)


@pytest.mark.parametrize("fn", [
    lambda x, w: np.sum(np.swapaxes(x @ w, 1, 2) ** 2),
    lambda x, w: np.sum((x @ np.swapaxes(x @ w, -1, -2)) ** 2),
    lambda x, w: np.sum(np.tanh(np.einsum("bij,jk->bki", x, w))),
    lambda x, w: np.sum((x[:1] @ w).transpose(2, 1, 0) ** 3),
])  # fmt: skip
def test_one_matrix_for_every_batch(fn: Callable[..., object]) -> None:
    """numpy's matmul takes a matrix beside batches."""
    rng = np.random.default_rng(2)
    args = (rng.standard_normal((2, 5, 3)), rng.standard_normal((3, 3)))
    assert check(fn, args, order=2).ok
