"""Parts of graphs as native functions between library calls, beside the same graphs op by op."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import gradof
from gradof import tuning
from gradof.codegen import compile_graph
from gradof.codegen.machine.engine import vector_bits
from gradof.codegen.whole.function import StretchKernel, WholeExecutable
from gradof.codegen.whole.stretches import gather_stretches
from gradof.ir.parser import parse_graph
from gradof.ir.printer import print_graph
from gradof.ir.types import TensorType
from gradof.ir.verify import verify
from gradof.testing import check

pytestmark = pytest.mark.skipif(not vector_bits(), reason="no native code here")

LARGE = 1 << 18  # cells, more than a native function takes
MIXED = f"""graph f(%x : f32[48,64], %w : f32[64,80], %i : i64[5], %big : f32[{LARGE}]):
  %one : float = Constant[value=1.0]()
  %m : f32[48,80] = mm(%x, %w)
  %t : f32[48,80] = tanh(%m)
  %v : f32[80,48] = permute[dims=(1, 0)](%t)
  %s : f32[80,1] = sum[dims=(1,), keepdims=True](%v)
  %d : f32[80,48] = sub(%v, %s)
  %e : f32[80,48] = exp(%d)
  %a : f32[80,48] = add(%e, %one)
  %b : f32[{LARGE}] = mul(%big, %one)
  %p : f32[5] = index_select[dim=0](%b, %i)
  %q : f32[5] = exp(%p)
  %r : f32[5] = add(%q, %one)
  %u : f32[5] = mul(%r, %r)
  %k : f32[5] = tanh(%u)
  %l : f32[5] = sub(%k, %one)
  %n : f32[5] = neg(%l)
  %z : f32[] = sum[dims=(0,), keepdims=False](%n)
  %y : f32[80,48] = mul(%a, %z)
  return (%y, %v, %n, %b)
"""


def arrays_of(graph: Any) -> list[Any]:
    rng = np.random.default_rng(0)
    found: list[Any] = []
    for value in graph.inputs:
        assert isinstance(value.type, TensorType) and value.type.shape is not None
        if str(value.type.dtype) == "i64":
            found.append(rng.integers(0, LARGE, value.type.shape))
        else:
            found.append(rng.standard_normal(value.type.shape, np.float32) / 4)
    return found


def test_what_large_arrays_part_is_two_functions() -> None:
    graph = parse_graph(MIXED)
    made = gather_stretches(graph, "numpy")
    verify(made)
    kinds = [node.kind for node in made.nodes() if node.kind not in ("Constant", "permute")]
    assert kinds == ["Stretch", "mul", "Stretch"] or kinds == ["mul", "Stretch"], print_graph(made)
    run = compile_graph(graph)
    stretches = [k for k in run.kernels if isinstance(k, StretchKernel)]
    assert stretches, run.source
    arrays = arrays_of(graph)
    expected = compile_graph(graph, backend="numpy")(*arrays)
    wide = [a.astype(np.float64) if a.dtype == np.float32 else a for a in arrays]
    exact = compile_graph(parse_graph(MIXED.replace("f32", "f64")), backend="numpy")(*wide)
    for mine, other, true in zip(run(*arrays), expected, exact, strict=True):
        assert mine.dtype == other.dtype and mine.shape == other.shape
        off = np.abs(other - true).max() + np.finfo(np.float32).eps * np.abs(true).max()
        assert np.abs(mine - true).max() <= 8 * off, "what others lose, eight times over"


def test_arguments_in_another_order_of_memory() -> None:
    graph = parse_graph(MIXED)
    run, arrays = compile_graph(graph), arrays_of(graph)
    expected = run(*arrays)
    turned = [np.asfortranarray(a) for a in arrays]
    for mine, other in zip(run(*turned), expected, strict=True):
        assert np.array_equal(mine, other)
    assert all(np.array_equal(a, b) for a, b in zip(turned, arrays, strict=True))


def test_an_index_that_is_out_of_range_raises_its_error() -> None:
    graph = parse_graph(MIXED)
    run, arrays = compile_graph(graph), arrays_of(graph)
    arrays[2][3] = LARGE
    with pytest.raises(IndexError):
        run(*arrays)


def test_effects_keep_their_order() -> None:
    """A check that waits for nothing comes after one that waits for a large array."""
    graph = parse_graph(f"""graph f(%x : f32[{LARGE}], %i : i64[5], %j : i64[3]):
  %b : f32[{LARGE}] = exp(%x)
  %c : i64[5] = in_range[size=7, wraps=False, error='index'](%i)
  %p : f32[5] = index_select[dim=0](%b, %c)
  %q : f32[5] = exp(%p)
  %r : f32[5] = add(%q, %q)
  %u : f32[5] = mul(%r, %r)
  %k : f32[5] = tanh(%u)
  %l : f32[5] = sub(%k, %q)
  %n : f32[5] = neg(%l)
  %d : i64[3] = in_range[size=3, wraps=False, error='index'](%j)
  %o : f32[3] = index_select[dim=0](%n, %d)
  return (%o)
""")
    made = gather_stretches(graph, "numpy")
    verify(made)
    checks = [n.output.type for n in made.walk() if n.kind == "in_range"]
    assert [t.shape for t in checks if isinstance(t, TensorType)] == [(5,), (3,)]
    assert any(n.kind == "Stretch" for n in made.nodes())
    assert "in_range" not in [n.kind for n in made.nodes()], "a function checks, too"


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize(
    ("a", "b"), [("40,70", "70,50"), ("3,40,33", "3,33,50"), ("3,2,40,33", "3,2,33,50")]
)
def test_products_that_are_calls(a: str, b: str, dtype: str, monkeypatch: Any) -> None:
    """By the kernel for all sizes, with transposed and broadcast operands, beside float64."""
    monkeypatch.setattr(tuning, "WHOLE_LEAST", 0)
    first, second = ([int(n) for n in text.split(",")] for text in (a, b))
    kind = "mm" if len(first) == 2 else "bmm"
    shape = ",".join(map(str, [*first[:-1], second[-1]]))
    turn = (*range(len(first) - 2), len(first) - 1, len(first) - 2)
    back = ",".join(map(str, [first[k] for k in turn]))
    graph = parse_graph(f"""graph f(%a : {dtype}[{a}], %b : {dtype}[{b}], %c : {dtype}[{back}]):
  %t : {dtype}[{a}] = permute[dims={turn}](%c)
  %x : {dtype}[{shape}] = {kind}(%a, %b)
  %y : {dtype}[{shape}] = {kind}(%t, %b)
  return (%x, %y)
""")
    rng = np.random.default_rng(1)
    numpy = np.dtype({"f32": "f4", "f64": "f8"}[dtype])
    arrays = [rng.standard_normal(v.type.shape).astype(numpy) for v in graph.inputs]  # type: ignore[union-attr]
    run = compile_graph(graph)
    assert isinstance(run, WholeExecutable) and "@gradof_product_" in run.source
    x, y, z = (v.astype(np.float64) for v in arrays)
    for mine, other in zip(run(*arrays), (x @ y, z.swapaxes(-1, -2) @ y), strict=True):
        assert mine.dtype == numpy and mine.shape == other.shape
        bound = 4 * np.finfo(numpy).eps * math.sqrt(first[-1]) * np.abs(other).max()
        assert np.abs(mine - other).max() <= bound


def _patches(image: Any, w: Any, b: Any, scale: Any) -> Any:
    """A convolution, and around it what is small: patches, their norm, attention among them."""
    x = F.conv2d(torch.tanh(image) * 0.5 + 1, w, b, stride=4).flatten(2).transpose(1, 2)
    x = F.layer_norm(F.gelu(x), x.shape[-1:], scale, b)
    scores = (x @ x.transpose(-1, -2) / math.sqrt(x.shape[-1])).softmax(-1)
    return (scores @ x).square().mean()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
def test_gradients_around_a_convolution(dtype: Any, order: Any, monkeypatch: Any) -> None:
    """First and second derivatives, in both orders of memory, beside eager and float64."""
    ran: list[str] = []
    call = StretchKernel.__call__

    def counted(self: StretchKernel, *arrays: Any) -> Any:
        ran.append(self.nest.name)
        return call(self, *arrays)

    monkeypatch.setattr(StretchKernel, "__call__", counted)
    torch.manual_seed(2)
    image = torch.randn(2, 3, 16, 16).to(dtype).to(memory_format=order)
    w = (torch.randn(8, 3, 4, 4) / 7).to(dtype).to(memory_format=order)
    given = [t.requires_grad_() for t in (image, w, torch.randn(8).to(dtype),
                                          torch.randn(8).to(dtype))]  # fmt: skip
    assert check(_patches, tuple(given), order=1 if dtype is torch.bfloat16 else 2).ok
    assert ran or dtype is torch.bfloat16


def test_a_loop_beside_a_library_call_is_a_function() -> None:
    def filtered(x: Any) -> Any:
        y, before = np.zeros(64), 0.0
        for n in range(64):
            before = 0.5 * before + x[0] * np.sin(x[1] * n)
            y[n] = before
        return np.sum(np.abs(np.fft.rfft(y)))  # which no native function computes

    compiled, x = gradof.value_and_grad(filtered), np.array([0.7, 0.3])
    value, slope = compiled(x)
    np.testing.assert_allclose(value, filtered(x))
    steps = [(filtered(x + e) - filtered(x - e)) / 2e-6 for e in np.eye(2) * 1e-6]
    np.testing.assert_allclose(slope, steps, rtol=1e-6)
    run = compile_graph(gradof.differentiate(filtered).trace(x))
    assert [type(kernel) for kernel in run.kernels] == [StretchKernel]
