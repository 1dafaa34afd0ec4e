"""Loop nests that Triton runs, each a graph; `python -m tests.codegen.triton_cases PART` runs them.

PART is `interpret`, or a compute capability to compile to PTX for. The last line printed is a JSON
object: the case → "ok", or what is wrong with it.
"""

from __future__ import annotations

import json
import sys
import traceback
from typing import Any

import numpy as np

from gradof.codegen.fusion.fuse import fuse
from gradof.codegen.loops.interpret import run_nest
from gradof.codegen.loops.ir import LoopNest
from gradof.codegen.loops.lower import schedule
from gradof.codegen.loops.passes.expand_sign import with_sign_of_nan
from gradof.codegen.triton.shared_rows import share_rows
from gradof.codegen.triton.split_reductions import take_totals
from gradof.ir.attrs import to_numpy_dtype
from gradof.ir.parser import parse_graph
from gradof.passes.pipeline import CLEAN_UP, run_passes
from tests import sample

_UNARY = ("exp", "expm1", "log1p", "tanh", "sigmoid", "erf", "relu", "sqrt", "rsqrt", "sin", "sign",
          "floor", "trunc", "abs", "neg", "reciprocal", "exp2", "log2", "cos", "ceil")  # fmt: skip
TOTALS = {  # over everything
    "total and mean": """graph mean(%x : f64[300], %y : f64[300]):
      %0 : f64[300] = mul(%x, %y)
      %1 : f64[] = sum[dims=(0,), keepdims=False](%0)
      %n : float = Constant[value=300.0]()
      %2 : f64[] = div(%1, %n)
      return (%1, %2, %0)""",
    "vector softmax": """graph softmax(%x : f64[77]):
      %0 : f64[1] = amax[dims=(0,), keepdims=True](%x)
      %1 : f64[77] = sub(%x, %0)
      %2 : f64[77] = exp(%1)
      %3 : f64[1] = sum[dims=(0,), keepdims=True](%2)
      %4 : f64[77] = div(%2, %3)
      return (%4, %3)""",
    "norm": """graph norm(%x : f64[90], %y : f64[90]):
      %0 : f64[90] = square(%x)
      %1 : f64[1] = sum[dims=(0,), keepdims=True](%0)
      %2 : f64[1] = rsqrt(%1)
      %3 : f64[90] = mul(%x, %2)
      %4 : f64[90] = add(%3, %y)
      return (%4)""",
    "sum alone": """graph whole(%x : f64[300], %y : f64[300]):
      %0 : f64[300] = mul(%x, %y)
      %1 : f64[] = sum[dims=(0,), keepdims=False](%0)
      %2 : f64[] = amin[dims=(0,), keepdims=False](%x)
      return (%1, %0, %2)""",
    "squared error": """graph mse(%x : f64[6,50], %w : f64[50]):
      %0 : f64[6,50] = sub(%x, %w)
      %1 : f64[6,50] = square(%0)
      %2 : f64[] = sum[dims=(0, 1), keepdims=False](%1)
      %3 : f64[] = amax[dims=(0, 1), keepdims=False](%0)
      return (%2, %0, %3)""",
    "stored twice": """graph twice(%x : f64[40]):
      %0 : f64[] = sum[dims=(0,), keepdims=False](%x)
      %1 : f64[] = copy(%0)
      return (%0, %1)""",
}  # fmt: skip
GRAPHS = {
    **TOTALS,
    "rms norm": """graph rms(%x : f32[7,20], %w : f32[20]):
      %0 : f32[7,20] = square(%x)
      %1 : f32[7,1] = sum[dims=(1,), keepdims=True](%0)
      %n : float = Constant[value=20.0]()
      %2 : f32[7,1] = div(%1, %n)
      %e : float = Constant[value=1e-06]()
      %3 : f32[7,1] = add(%2, %e)
      %4 : f32[7,1] = rsqrt(%3)
      %5 : f32[7,20] = mul(%x, %4)
      %y : f32[7,20] = mul(%5, %w)
      return (%y, %4)""",
    "softmax": """graph softmax(%x : f64[5,33]):
      %0 : f64[5,1] = amax[dims=(1,), keepdims=True](%x)
      %1 : f64[5,33] = sub(%x, %0)
      %2 : f64[5,33] = exp(%1)
      %3 : f64[5,1] = sum[dims=(1,), keepdims=True](%2)
      %4 : f64[5,33] = div(%2, %3)
      return (%4, %3)""",
    "softmax of edges": """graph softmax(%edges : f32[6,33], %w : f32[33]):
      %x : f32[6,33] = add(%edges, %w)
      %0 : f32[6,1] = amax[dims=(1,), keepdims=True](%x)
      %1 : f32[6,33] = sub(%x, %0)
      %2 : f32[6,33] = exp(%1)
      %3 : f32[6,1] = sum[dims=(1,), keepdims=True](%2)
      %4 : f32[6,33] = div(%2, %3)
      %5 : f32[6,1] = log(%3)
      %6 : f32[6,1] = add(%5, %0)
      return (%4, %6)""",
    "folds": """graph folds(%x : f32[70,19], %w : f32[19]):
      %0 : f32[70,19] = mul(%x, %w)
      %1 : f32[19] = sum[dims=(0,), keepdims=False](%0)
      %2 : f32[70,1] = amin[dims=(1,), keepdims=True](%0)
      %3 : f32[70,19] = sub(%0, %2)
      %4 : f32[] = sum[dims=(0, 1), keepdims=False](%3)
      %5 : f32[1,19] = amax[dims=(0,), keepdims=True](%0)
      return (%1, %3, %4, %5)""",
    "whole sum": """graph whole(%x : f64[300], %y : f64[300]):
      %0 : f64[300] = mul(%x, %y)
      %1 : f64[] = sum[dims=(0,), keepdims=False](%0)
      return (%1, %0)""",
    "views and masks": """graph views(%x : f32[6,7], %m : bool[6,7], %b : f32[7], %c : f32[6,1]):
      %a : f32[6,7] = clamp[low=-0.5, high=None](%x)
      %z : float = Constant[value=2.5]()
      %d : f32[6,7] = where(%m, %a, %z)
      %e : f32[6,7] = add(%d, %b)
      %f : f32[6,7] = mul(%e, %c)
      %g : bool[6,7] = gt(%f, %a)
      return (%f, %g)""",
    "two numbers": """graph two(%m : bool[61]):
      %a : float = Constant[value=0.1]()
      %b : float = Constant[value=0.7]()
      %x : f64[61] = cast[dtype=f64](%m)
      %n : f64[61] = add(%x, %a)
      %y : f64[61] = where(%m, %a, %n)
      %z : f64[61] = where(%m, %y, %b)
      return (%y, %z)""",
    "no rows": """graph no_rows(%x : f32[0,7], %w : f32[7]):
      %0 : f32[0,7] = mul(%x, %w)
      %1 : f32[7] = sum[dims=(0,), keepdims=False](%0)
      return (%0, %1)""",
    "three axes": """graph three(%x : f32[3,4,5], %w : f32[4,1]):
      %0 : f32[3,4,5] = mul(%x, %w)
      %1 : f32[3,4,1] = sum[dims=(2,), keepdims=True](%0)
      %2 : f32[3,4,5] = div(%0, %1)
      return (%2)""",
    **{
        f"{op} {dt}": f"""graph unary(%x : {dt}[61]):
      %y : {dt}[61] = {op}(%x)
      return (%y)"""
        for op in _UNARY for dt in ("f32", "f64")
    },
    **{
        f"{op} {dt}": f"""graph binary(%x : {dt}[61], %y : {dt}[61]):
      %z : {dt}[61] = {op}(%x, %y)
      return (%z)"""
        for op in ("maximum", "minimum", "sub", "mul") for dt in ("f32", "f64", "i64")
    },
}  # fmt: skip
NAMES = tuple(GRAPHS)
EDGES = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-20, -1e-7, 0.62, 0.63, 20.0, -20.0, 1.0, -1.0)
CUTS = (1 << 14, 8)  # columns a program may hold: persistent, and looped


def nests(name: str) -> list[LoopNest]:
    """The nests of a graph."""
    graph = parse_graph(GRAPHS[name])
    run_passes(graph, ("expand-composites", *CLEAN_UP))
    together = fuse(graph, lambda node: True, lambda group: True)
    return [schedule(n) for n in together.nodes() if n.kind == "FusionGroup"]


def arrays(nest: LoopNest, strided: bool) -> list[Any]:
    """Random operands, edge cases in vectors of 61 and where the name says so; maybe strided."""
    rng = np.random.default_rng(0)
    found = []
    for buffer in nest.inputs:
        wide = tuple(2 * n if strided else n for n in buffer.shape)
        array = (3.0 * rng.standard_normal(wide)).astype(to_numpy_dtype(buffer.dtype))
        if buffer.dtype.is_float and buffer.shape == (61,):
            array[:: 2 if strided else 1][rng.permutation(len(EDGES))] = EDGES
        if buffer.name == "edges":
            array[0], array[1, 4], array[2, 22], array[3, :40] = -np.inf, np.inf, np.nan, -np.inf
        found.append(array[tuple(slice(None, None, 2) for _ in wide)] if strided else array)
    return found


def interpret(name: str) -> str:
    """Kernels against the reference: contiguous and strided, rows in one block and in several."""
    import torch

    from gradof.codegen.triton import kernel as kernel_module
    from gradof.codegen.triton.blocks import multiprocessors
    from gradof.codegen.triton.kernel import TritonKernel

    names = vars(kernel_module)
    for nest in nests(name):
        for cut in CUTS:
            for strided in (False, True):
                # of one multiprocessor, so that programs that fold have many tiles
                names["multiprocessors"] = (lambda device: 1) if strided else multiprocessors
                given = arrays(nest, strided)
                want = run_nest(with_sign_of_nan(nest), given)
                kernel = TritonKernel(nest, cut)
                have = kernel(*map(torch.from_numpy, given))
                taken = take_totals(nest) or (None if strided else share_rows(nest))
                long = nest.n_columns > cut
                assert any(kernel._parts.values()) == (long and taken is not None)
                for a, b in zip(have, want, strict=True):
                    mine = a.numpy()
                    if mine.dtype != b.dtype or mine.shape != b.shape:
                        return f"{mine.dtype}{mine.shape} is not {b.dtype}{b.shape}"
                    eps = np.finfo(b.dtype).eps if b.dtype.kind == "f" else 0
                    # sums of up to 1330 terms may cancel; one op may not lose 64 ulps
                    known = np.abs(b[np.isfinite(b)], dtype=np.float64)
                    whole = 64 * eps * np.max(known, initial=0.0) if b.shape != (61,) else 0
                    np.testing.assert_allclose(mine, b, rtol=64 * eps, atol=whole)
    return "ok"


def ptx(name: str, capability: int) -> str:
    """Every form of every nest compiled, its folds too."""
    from gradof.codegen.triton.emit import form_of
    from tests.codegen.triton_ptx import ptx_of

    todo = nests(name)
    for nest in todo:
        parts = take_totals(nest) or share_rows(nest)
        if parts is not None:
            todo += [parts.first, *([] if parts.second is None else [parts.second])]
        form = form_of(nest)
        for each in (form,) if form == "pointwise" else (form, "looped"):
            assert ptx_of(nest, each, capability)
    return "ok"


def main(part: str) -> None:
    """Run a part and print what came of it."""
    found = {}
    np.seterr(all="ignore")
    for name in sample.part(NAMES):
        try:
            found[name] = interpret(name) if part == "interpret" else ptx(name, int(part))
        except Exception:  # what went wrong is the result
            found[name] = traceback.format_exc()
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
