"""Graphs as a device runs them, rewritten; `python -m tests.codegen.triton_device PART`.

Each stands with the number of kernels that it is to be; nothing is left to torch. PART `interpret`
runs them in triton's interpreter beside numpy, a capability such as `90` compiles them to PTX.
"""

from __future__ import annotations

import json
import sys
import traceback
from typing import Any
from unittest import mock

import numpy as np

from gradof import tuning
from gradof.codegen import compile_graph
from gradof.codegen.host import torch_emit as execute
from gradof.codegen.loops.ir import LoopNest
from gradof.codegen.loops.lower import schedule
from gradof.codegen.targets import choose
from gradof.codegen.targets.choose import ON_DEVICE
from gradof.codegen.targets.passes import run_target
from gradof.codegen.targets.target import Target
from gradof.codegen.triton.emit import form_of
from gradof.codegen.triton.interpreted import in_triton
from gradof.ir.attrs import to_numpy_dtype
from gradof.ir.core import Graph
from gradof.ir.parser import parse_graph
from gradof.ir.types import TensorType
from tests import sample

GRAPHS: dict[str, tuple[int, str]] = {
    # a loss, its statistics, and what its gradient is made of
    "picked of cells": (1, """graph picked(%x : f32[6,23], %t : i64[6]):
      %1 : f32[6,1] = amax[dims=(1,), keepdims=True](%x)
      %2 : f32[6,23] = sub(%x, %1)
      %3 : f32[6,23] = exp(%2)
      %4 : f32[6,1] = sum[dims=(1,), keepdims=True](%3)
      %5 : f32[6,1] = log(%4)
      %6 : f32[6,23] = sub(%2, %5)
      %7 : i64[6] = in_range[size=23, wraps=True, error='index'](%t)
      %8 : i64[6,1] = reshape[shape=(6, 1)](%7)
      %9 : f32[6,1] = gather[dim=1](%6, %8)
      %10 : f32[6] = reshape[shape=(6,)](%9)
      %11 : f32[] = sum[dims=(0,), keepdims=False](%10)
      return (%11, %1, %4)"""),
    "one number a row": (1, """graph one(%x : f32[6,23], %t : i64[6], %d : f32[6,1]):
      %0 : f32[6,23] = full[shape=(6, 23), dtype=f32, value=0.0, device='cpu']()
      %1 : i64[6] = in_range[size=23, wraps=True, error='index'](%t)
      %2 : i64[6,1] = reshape[shape=(6, 1)](%1)
      %3 : f32[6,23] = scatter_add[dim=1](%0, %2, %d)
      %4 : f64[6,23] = cast[dtype=f64](%3)
      %5 : f32[6,23] = cast[dtype=f32](%4)
      %6 : f32[6,1] = sum[dims=(1,), keepdims=True](%5)
      %7 : f32[6,23] = mul(%x, %6)
      %8 : f32[6,23] = sub(%5, %7)
      return (%8)"""),
    "halves turned": (1, """graph rope(%q : f32[3,5,8], %c : f32[5,8], %s : f32[5,8]):
      %0 : f32[3,5,4] = slice[dim=2, start=0, stop=4, step=1](%q)
      %1 : f32[3,5,4] = slice[dim=2, start=4, stop=8, step=1](%q)
      %2 : f32[3,5,8] = mul(%q, %c)
      %3 : f32[3,5,4] = neg(%1)
      %4 : f32[3,5,8] = cat[dim=2](%3, %0)
      %5 : f32[3,5,8] = mul(%4, %s)
      %6 : f32[3,5,8] = add(%2, %5)
      return (%6)"""),
    # the gradient of slices that overlap, of which one is a number's beside zeros
    "slices set into zeros": (1, """graph set(%d : f32[3,5,8], %s : f32[5,1]):
      %0 : f32[3,5,5] = slice[dim=2, start=0, stop=5, step=1](%d)
      %1 : f32[3,5,5] = exp(%0)
      %2 : f32[3,5,5] = mul(%1, %s)
      %3 : f32[3,5,9] = unslice[shape=(3, 5, 9), dim=2, start=2, stop=7, step=1](%2)
      %4 : f32[3,5,9] = unslice[shape=(3, 5, 9), dim=2, start=4, stop=9, step=1](%0)
      %5 : f32[3,5,9] = add(%3, %4)
      %6 : f32[3,5,1] = sum[dims=(2,), keepdims=True](%5)
      return (%5, %6)"""),
    "one row set into zeros": (1, """graph row(%x : f32[3,4], %d : f32[4]):
      %0 : f32[2,4] = expand[shape=(2, 4)](%d)
      %1 : f32[3,4] = unslice[shape=(3, 4), dim=0, start=0, stop=2, step=1](%0)
      %2 : f32[3,4] = add(%x, %1)
      return (%2)"""),
    "rows put together": (1, """
      graph rows(%x : f32[3,7], %y : i64[2,7], %z : f32[1,7], %b : f32[7]):
      %0 : f32[2,7] = cast[dtype=f32](%y)
      %1 : f32[6,7] = cat[dim=0](%x, %0, %z)
      %2 : f32[6,7] = add(%1, %b)
      %3 : f32[8,7] = pad[pads=((1, 1), (0, 0)), value=-inf](%2)
      %4 : f32[1,7] = neg(%z)
      %5 : f32[8,7] = slice_scatter[dim=0, start=7, stop=8, step=1](%3, %4)
      return (%5)"""),
    # heads taken apart, a wide computation, heads in another order
    "views of casts": (1, """graph heads(%x : f32[4,24]):
      %0 : f64[4,24] = cast[dtype=f64](%x)
      %1 : f64[4,3,8] = reshape[shape=(4, 3, 8)](%0)
      %2 : f64[4,3,8] = exp(%1)
      %3 : f64[4,3,1] = sum[dims=(2,), keepdims=True](%2)
      %4 : f64[4,3,8] = div(%2, %3)
      %5 : f32[4,3,8] = cast[dtype=f32](%4)
      %6 : f32[3,4,8] = permute[dims=(1, 0, 2)](%5)
      %7 : f32[3,32] = reshape[shape=(3, 32)](%6)
      return (%7)"""),
    # the gradient of a gated unit, whose halves are one array
    "halves stored": (1, """graph gated(%g : f32[2,5,6], %u : f32[2,5,6], %d : f32[2,5,6]):
      %0 : f32[2,5,6] = sigmoid(%g)
      %1 : f32[2,5,6] = mul(%g, %0)
      %2 : f32[2,5,6] = mul(%1, %u)
      %3 : f32[2,5,6] = mul(%d, %1)
      %4 : f32[2,5,6] = mul(%d, %u)
      %5 : f32[2,5,6] = mul(%4, %0)
      %6 : f32[2,10,6] = cat[dim=1](%5, %3)
      %7 : f32[20,6] = reshape[shape=(20, 6)](%6)
      %8 : f32[20] = sum[dims=(1,), keepdims=False](%7)
      return (%2, %7)"""),
    # maps of two convolutions put together, of channels that are rows of the loop
    "channels stored": (1, """
      graph fire(%x : f32[8,6,4,5], %b : f32[6,1,1], %y : f32[8,6,4,5], %c : f32[6,1,1]):
      %0 : f32[8,6,4,5] = add(%x, %b)
      %1 : f32[8,6,4,5] = relu(%0)
      %2 : f32[8,6,4,5] = add(%y, %c)
      %3 : f32[8,6,4,5] = relu(%2)
      %4 : f32[8,12,4,5] = cat[dim=1](%1, %3)
      return (%4, %1, %3)"""),
    # norm of groups of three channels, scaled by channel; heads that are normed by themselves
    "reshapes inside": (1, """graph groups(%x : f32[2,6,4,5], %w : f32[6], %b : f32[6]):
      %n : float = Constant[value=60.0]()
      %0 : f32[2,2,60] = reshape[shape=(2, 2, 60)](%x)
      %1 : f32[2,2,1] = sum[dims=(2,), keepdims=True](%0)
      %2 : f32[2,2,1] = div(%1, %n)
      %3 : f32[2,2,60] = sub(%0, %2)
      %4 : f32[2,2,60] = square(%3)
      %5 : f32[2,2] = sum[dims=(2,), keepdims=False](%4)
      %6 : f32[2,2,1] = reshape[shape=(2, 2, 1)](%5)
      %7 : f32[2,2,60] = mul(%3, %6)
      %8 : f32[2,6,4,5] = reshape[shape=(2, 6, 4, 5)](%7)
      %9 : f32[6,1,1] = reshape[shape=(6, 1, 1)](%w)
      %10 : f32[2,6,4,5] = mul(%8, %9)
      %11 : f32[1,6,1,1] = reshape[shape=(1, 6, 1, 1)](%b)
      %12 : f32[2,6,4,5] = add(%10, %11)
      return (%12, %6)"""),
    "heads normed": (1, """graph heads(%x : f32[4,24], %w : f32[8], %b : f32[24]):
      %0 : f32[4,24] = add(%x, %b)
      %1 : f32[4,3,8] = reshape[shape=(4, 3, 8)](%0)
      %2 : f32[4,3,8] = square(%1)
      %3 : f32[4,3,1] = sum[dims=(2,), keepdims=True](%2)
      %4 : f32[4,3,8] = div(%1, %3)
      %5 : f32[4,3,8] = mul(%4, %w)
      %6 : f32[4,24] = reshape[shape=(4, 24)](%5)
      %7 : f32[4,24] = mul(%6, %x)
      return (%7)"""),
    # a number that is made within the loop, beside a reshape of it
    "a number inside": (2, """graph inside(%x : f32[4,6], %k : f32[]):
      %0 : f32[] = exp(%k)
      %1 : f32[4,6] = mul(%x, %0)
      %2 : f32[4,2,3] = reshape[shape=(4, 2, 3)](%1)
      %3 : f32[4,2,1] = sum[dims=(2,), keepdims=True](%2)
      %4 : f32[4,2,3] = div(%2, %3)
      %5 : f32[] = mul(%0, %k)
      %6 : f32[1] = reshape[shape=(1,)](%5)
      %7 : f32[1] = tanh(%6)
      return (%4, %7)"""),
    "reshapes that do not fit": (2, """graph odd(%x : f32[6,4]):
      %0 : f32[6,4] = exp(%x)
      %1 : f32[6,1] = sum[dims=(1,), keepdims=True](%0)
      %2 : f32[6,4] = mul(%0, %1)
      %3 : f32[3,8] = reshape[shape=(3, 8)](%2)
      %4 : f32[3,8] = tanh(%3)
      %5 : f32[4,6] = reshape[shape=(4, 6)](%4)
      %6 : f32[4,6] = exp(%5)
      %7 : f32[4,1] = sum[dims=(1,), keepdims=True](%6)
      %8 : f32[4,6] = mul(%6, %7)
      return (%8)"""),
    # sums over rows, of which one is also returned as it is
    "folds cast": (1, """graph folds(%x : f32[7,6], %d : f32[7,6]):
      %0 : f64[7,6] = cast[dtype=f64](%x)
      %1 : f64[7,6] = exp(%0)
      %2 : f64[1,6] = sum[dims=(0,), keepdims=True](%1)
      %3 : f64[6] = reshape[shape=(6,)](%2)
      %4 : f32[6] = cast[dtype=f32](%3)
      %5 : f32[7,6] = mul(%x, %d)
      %6 : f32[6] = sum[dims=(0,), keepdims=False](%5)
      return (%4, %6)"""),
    "a number from totals": (2, """graph number(%x : f32[7,6], %k : f32[]):
      %n : float = Constant[value=42.0]()
      %0 : f32[7,6] = square(%x)
      %1 : f32[] = sum[dims=(0, 1), keepdims=False](%0)
      %2 : f32[] = div(%1, %n)
      %3 : f32[] = sqrt(%2)
      %4 : f32[] = mul(%3, %k)
      return (%4)"""),
    "there and back": (0, """graph back(%x : f32[4,24]):
      %0 : f64[4,24] = cast[dtype=f64](%x)
      %1 : f64[4,8] = slice[dim=1, start=8, stop=16, step=1](%0)
      %2 : f32[4,8] = cast[dtype=f32](%1)
      return (%2)"""),
}  # fmt: skip
CUTS = (1 << 14, 8)  # columns a program may hold: persistent, and looped


def everywhere() -> Any:
    """Let kernels check indices, as they do on a device."""
    return mock.patch.object(choose, "_in_kernel", lambda node, device: in_triton(node))


def grouped(name: str) -> tuple[Graph, list[LoopNest]]:
    """The graph with kernels, and their nests; all of it is kernels, as many as it says."""
    count, text = GRAPHS[name]
    graph = run_target(
        parse_graph(text), Target("triton", "torch", ON_DEVICE, in_triton, device=True)
    )
    nodes = [n for n in graph.nodes() if n.kind == "FusionGroup"]
    others = {n.kind for n in graph.nodes() if n not in nodes}
    views = {"reshape", "permute", "expand", "slice", "again"}
    assert others <= {"Constant", "full", *views}, others
    assert len(nodes) == count, f"{len(nodes)} kernels"
    return graph, [schedule(n) for n in nodes]


def inputs(graph: Graph) -> list[Any]:
    rng = np.random.default_rng(0)
    found = []
    for v in graph.inputs:
        assert isinstance(v.type, TensorType) and v.type.shape is not None
        if v.type.dtype.kind == "int":
            found.append(rng.integers(-6, 6, v.type.shape))
        else:
            made = rng.standard_normal(v.type.shape)
            found.append(made.astype(to_numpy_dtype(v.type.dtype)))
    return found


def interpret(name: str) -> str:
    """Beside numpy: rows in one block and in several."""
    import torch

    graph = parse_graph(GRAPHS[name][1])
    given = inputs(graph)
    want = compile_graph(graph, backend="numpy")(*given)
    grouped(name)
    for cut in CUTS:
        with mock.patch.object(tuning, "ROW_BLOCK", cut), everywhere():
            run = execute.emit_torch(graph)
            have = run(*map(torch.from_numpy, given))
        for a, b in zip(have, want, strict=True):
            np.testing.assert_allclose(a.numpy(), b, rtol=2e-6, atol=2e-6)
            assert a.numpy().dtype == b.dtype
    return "ok"


def ptx(name: str, capability: int) -> str:
    """Both forms of every nest; where there are indices, they are looked at."""
    from tests.codegen.triton_ptx import ptx_of

    for nest in grouped(name)[1]:
        form = form_of(nest)
        for each in (form,) if form == "pointwise" else (form, "looped"):
            text = ptx_of(nest, each, capability)[0]
            assert ("assertfail" in text) == any(i.op == "in_range" for i in nest.body)
    return "ok"


def main(part: str) -> None:
    """Run a part and print what came of it."""
    found = {}
    for name in sample.part(GRAPHS):
        try:
            found[name] = interpret(name) if part == "interpret" else ptx(name, int(part))
        except Exception:  # what went wrong is the result
            found[name] = traceback.format_exc()
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
