"""Products that share an operand, and sums of products, merged: where it pays, and the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from gradof import tuning
from gradof.codegen import compile_graph
from gradof.codegen.lowering import products
from gradof.ir.clone import clone_graph
from gradof.ir.core import Graph
from gradof.ir.parser import parse_graph
from gradof.ir.types import TensorType
from gradof.ir.verify import verify
from gradof.passes.merge_matmuls import merge_matmuls
from gradof.testing import check

SHARED = """graph f(%x : f32[512,64], %a : f32[64,64], %b : f32[64,32], %c : f32[64,64]):
 %p : f32[512,64] = mm(%x, %a)
 %s : f32[512,64] = tanh(%p)
 %q : f32[512,32] = mm(%x, %b)
 %t : f32[512,32] = exp(%q)
 %r : f32[512,64] = mm(%x, %c)
 return (%s, %t, %r)"""
# the second operand of the last is there late, and the results are read later still
LATE = """graph f(%x : f32[512,64], %a : f32[64,64], %b : f32[64,64]):
 %p : f32[512,64] = mm(%x, %a)
 %t : f32[64,64] = tanh(%b)
 %q : f32[512,64] = mm(%x, %t)
 %s : f32[512,64] = sub(%p, %q)
 return (%s)"""
SUM = """graph f(%x : f32[512,64], %y : f32[512,32], %z : f32[512,64], %a : f32[64,64], \
%b : f32[32,64], %c : f32[64,64]):
 %p : f32[512,64] = mm(%x, %a)
 %q : f32[512,64] = mm(%y, %b)
 %r : f32[512,64] = mm(%z, %c)
 %s : f32[512,64] = add(%q, %r)
 %t : f32[512,64] = add(%p, %s)
 %u : f32[512,64] = tanh(%t)
 return (%u)"""
TRANSPOSED = """graph f(%x : f32[512,64], %y : f32[512,64], %a : f32[64,64], %b : f32[64,64]):
 %at : f32[64,64] = permute[dims=(1, 0)](%a)
 %bt : f32[64,64] = permute[dims=(1, 0)](%b)
 %p : f32[512,64] = mm(%x, %at)
 %q : f32[512,64] = mm(%y, %bt)
 %s : f32[512,64] = add(%p, %q)
 return (%s)"""
# the second product reads the first
CHAIN = """graph f(%x : f32[64,64], %a : f32[64,512], %b : f32[512,64]):
 %p : f32[64,512] = mm(%x, %a)
 %m : f32[512,64] = permute[dims=(1, 0)](%p)
 %n : f32[512,64] = add(%m, %b)
 %k : f32[64,512] = permute[dims=(1, 0)](%n)
 %q : f32[64,512] = mm(%x, %k)
 return (%q)"""
# the third operand is there later, of the first two's results: they are one all the same
LATER = """graph f(%x : f32[512,64], %a : f32[64,64], %b : f32[64,64]):
 %p : f32[512,64] = mm(%x, %a)
 %q : f32[512,64] = mm(%x, %b)
 %s : f32[512,64] = mul(%p, %q)
 %t : f32[64,512] = permute[dims=(1, 0)](%s)
 %u : f32[64,64] = mm(%t, %x)
 %r : f32[512,64] = mm(%x, %u)
 return (%r)"""
# the weights are put together by the user, later
BESIDE = """graph f(%x : f32[512,64], %a : f32[64,64], %b : f32[64,64]):
 %p : f32[512,64] = mm(%x, %a)
 %q : f32[512,64] = mm(%x, %b)
 %s : f32[512,64] = mul(%p, %q)
 %w : f32[64,128] = cat[dim=1](%a, %b)
 return (%s, %w)"""
# the inner sum is read by itself, and is one product; the outer one stays
READ_TWICE = SUM.replace("return (%u)", "return (%u, %s)")
SMALL = SHARED.replace("512", "32")
DOUBLE = LATE.replace("f32", "f64")


def _arrays(graph: Graph) -> list[Any]:
    rng = np.random.default_rng(3)
    types = [v.type for v in graph.inputs]
    return [rng.standard_normal(t.shape).astype(np.float32) for t in types
            if isinstance(t, TensorType) and t.shape is not None]  # fmt: skip


@pytest.mark.parametrize("text, expected", [
    (SHARED, ["cat", "mm", "slice", "slice", "slice", "copy", "tanh", "exp"]),
    (LATE, ["tanh", "cat", "mm", "slice", "slice", "sub"]),
    (SUM, ["cat", "cat", "mm", "tanh"]),
    (READ_TWICE, ["cat", "cat", "mm", "mm", "add", "tanh"]),
    (BESIDE, ["cat", "mm", "slice", "slice", "mul", "cat"]),
    (LATER, ["cat", "mm", "slice", "slice", "mul", "permute", "mm", "mm"]),
    (TRANSPOSED, ["cat", "cat", "permute", "mm"]),
])  # fmt: skip
def test_merged(text: str, expected: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "has_native", lambda: False)  # both sides by the same library
    graph = parse_graph(text)
    merged = clone_graph(graph)
    assert merge_matmuls(merged)
    verify(merged)
    assert [node.kind for node in merged.nodes()] == expected
    arrays = _arrays(graph)
    for got, want in zip(
        compile_graph(merged, library="torch")(*arrays),
        compile_graph(graph, library="torch", backend="numpy")(*arrays), strict=True,
    ):  # fmt: skip
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)
        assert (got.flags.writeable and got.base is None) or got.flags.c_contiguous


@pytest.mark.parametrize("text", [CHAIN, SMALL, DOUBLE])
def test_left_alone(text: str) -> None:
    graph = parse_graph(text)
    assert not merge_matmuls(graph) and graph == parse_graph(text)


def _attention(x: Any, wq: Any, wk: Any, wv: Any) -> Any:
    q, k, v = x @ wq, x @ wk, x @ wv
    return torch.softmax(q @ k.mT / 8.0, -1) @ v


def test_queries_keys_and_values_and_their_gradients() -> None:
    torch.manual_seed(1)
    x = torch.randn(4, 128, 64)
    weights = [torch.randn(64, 64) / 8.0 for _ in range(3)]
    assert 512 * 64 * 64 > tuning.MERGED_LEAST
    assert check(lambda *args: _attention(*args).square().mean(), (x, *weights)).ok


@pytest.mark.parametrize("create_graph", [False, True])
def test_second_derivatives(create_graph: bool) -> None:
    import gradof

    torch.manual_seed(2)
    x = torch.randn(512, 64, requires_grad=True)
    a, b = (torch.randn(64, 64, requires_grad=True) for _ in range(2))

    def fn(x: Any, a: Any, b: Any) -> Any:
        return (torch.tanh((x @ a) / 8.0) * (x @ b) / 8.0).sum()

    results = []
    for f in (gradof.differentiate(fn), fn):
        first = torch.autograd.grad(f(x, a, b), (x, a, b), create_graph=create_graph)
        if create_graph:
            total = torch.stack([(g * g).sum() for g in first]).sum()
            first = torch.autograd.grad(total, (x, a, b))
        results.append(first)
    for got, want in zip(*results, strict=True):
        torch.testing.assert_close(got, want, rtol=2e-4, atol=2e-3)
