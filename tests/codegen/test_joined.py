"""Kernels that write into the parts of an array that is put together from their results."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from gradof.codegen import Executable, compile_graph
from gradof.codegen.machine.engine import status
from gradof.ir.parser import parse_graph
from gradof.ir.types import TensorType
from gradof.testing import check

pytestmark = pytest.mark.skipif(not status()[0], reason=status()[1])

TWO = """graph f(%x : f64[200,300], %y : f64[200,200]):
 %a : f64[200,300] = tanh(%x)
 %p : f64[200,300] = exp(%a)
 %b : f64[200,200] = sin(%y)
 %q : f64[200,200] = cos(%b)
 %c : f64[200,500] = cat[dim=1](%p, %q)
 %d : f64[200,500] = mul(%c, %c)
 return (%d, %c)"""
ROWS = """graph f(%x : f64[200,300]):
 %a : f64[200,300] = tanh(%x)
 %p : f64[200,300] = exp(%a)
 %q : f64[200,300] = sin(%a)
 %c : f64[400,300] = cat[dim=0](%q, %p)
 return (%c)"""
# an input is no kernel's, and is copied to its places; the sum is no part
MIXED = """graph f(%x : f64[200,300], %y : f64[200,100]):
 %a : f64[200,300] = tanh(%x)
 %p : f64[200,300] = exp(%a)
 %s : f64[300] = sum[dims=(0,), keepdims=False](%p)
 %c : f64[200,500] = cat[dim=1](%y, %p, %y)
 %m : f64[500,500] = mm(%t, %c)
 return (%m, %s)""".replace(" %m :", " %t : f64[500,200] = permute[dims=(1, 0)](%c)\n %m :")
DEEP = """graph f(%x : f64[40,30,40], %y : f64[40,30,50]):
 %p : f64[40,30,40] = tanh(%x)
 %q : f64[40,30,50] = tanh(%y)
 %c : f64[40,30,90] = cat[dim=2](%q, %p)
 return (%c)"""
# nothing to gain: read elsewhere, twice a part, returned by itself
TWICE = ROWS.replace("cat[dim=0](%q, %p)", "cat[dim=0](%p, %p)").replace(
    "%q : f64[200,300] = sin(%a)", "%q : f64[200,300] = sin(%p)").replace("(%c)", "(%c, %q)")
RETURNED = ROWS.replace("return (%c)", "return (%c, %p, %q)")


def _run(text: str, strided: bool = False) -> tuple[Executable, list[Any]]:
    """The native code of a graph, whose results are those of whole arrays."""
    graph = parse_graph(text)
    rng = np.random.default_rng(3)
    types = [v.type for v in graph.inputs if isinstance(v.type, TensorType)]
    arrays = [rng.standard_normal(t.shape or ()) for t in types]
    if strided:
        arrays = [np.asfortranarray(a) for a in arrays]
    made = compile_graph(graph, backend="native")
    results = made(*arrays)
    for got, want in zip(results, compile_graph(graph, backend="numpy")(*arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-13)
    return made, list(results)


@pytest.mark.parametrize("strided", [False, True])
@pytest.mark.parametrize("text, joined", [(TWO, 2), (ROWS, 2), (MIXED, 1), (DEEP, 2)])
def test_written_in_place(text: str, joined: int, strided: bool) -> None:
    made, results = _run(text, strided)
    assert "np.concatenate" not in made.source
    calls = [line for line in made.source.splitlines() if "into=" in line]
    assert sum(len(re.findall(r"\(\d, \w+\[", line)) for line in calls) == joined
    assert all(r.flags.writeable for r in results)
    again = made(*[np.zeros(a.shape) for a in _inputs(text)])
    assert not any(np.shares_memory(a, b) for a in results for b in again)


def _inputs(text: str) -> list[Any]:
    types = [v.type for v in parse_graph(text).inputs if isinstance(v.type, TensorType)]
    return [np.empty(t.shape or ()) for t in types]


@pytest.mark.parametrize("text", [TWICE, RETURNED])
def test_left_alone(text: str) -> None:
    made, _ = _run(text)
    assert "into=" not in made.source and "np.concatenate" in made.source


def _gated(x: Any, w: Any, b: Any) -> Any:
    gate, up = F.linear(x, w, b).chunk(2, -1)
    return (F.silu(gate) * up).square().mean()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_gated_unit(dtype: torch.dtype) -> None:
    """Its gradient is put together from those of the gate and of what it gates."""
    torch.manual_seed(1)
    x = torch.randn(96, 32, dtype=dtype, requires_grad=True)
    w, b = torch.randn(512, 32, dtype=dtype) / 6.0, torch.randn(512, dtype=dtype)
    assert check(_gated, (x, w.requires_grad_(), b.requires_grad_()), order=2).ok
