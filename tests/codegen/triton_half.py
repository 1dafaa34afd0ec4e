"""Kernels of bfloat16 and float16 in triton's interpreter, judged by float64.

`python -m tests.codegen.triton_half interpret` prints {case: "ok", or what is wrong with it}, and
the same for a compute capability, for which the kernels are compiled to PTX.
"""

from __future__ import annotations

import json
import re
import sys
import traceback
from typing import Any

import numpy as np
import torch

from gradof.codegen import compile_graph
from gradof.codegen.fusion.fuse import fuse
from gradof.codegen.host.emit import emit
from gradof.codegen.loops.lower import schedule
from gradof.codegen.lowering.half import round_bf16
from gradof.codegen.triton.emit import form_of
from gradof.codegen.triton.interpreted import InterpretedKernel, in_triton
from gradof.codegen.triton.kernel import TritonKernel
from gradof.ir.core import Graph
from gradof.ir.parser import parse_graph
from gradof.ir.types import F64, TensorType
from gradof.passes.pipeline import CLEAN_UP, run_passes
from tests import sample
from tests.codegen.triton_ptx import ptx_of

# {h} is the half precision, or f64 for the judge
GRAPHS = {
    "rms norm": """graph rms(%x : {h}[7,40], %w : {h}[40]):
      %0 : {h}[7,40] = square(%x)
      %1 : {h}[7,1] = sum[dims=(1,), keepdims=True](%0)
      %n : float = Constant[value=40.0]()
      %2 : {h}[7,1] = div(%1, %n)
      %4 : {h}[7,1] = rsqrt(%2)
      %5 : {h}[7,40] = mul(%x, %4)
      %y : {h}[7,40] = mul(%5, %w)
      return (%y, %4)""",
    "softmax": """graph soft(%x : {h}[5,33]):
      %y : {h}[5,33] = softmax[dim=1](%x)
      return (%y)""",
    "gelu": """graph act(%x : {h}[6,33], %b : {h}[33]):
      %0 : {h}[6,33] = add(%x, %b)
      %y : {h}[6,33] = gelu[approximate='none'](%0)
      %z : {h}[6,33] = gelu[approximate='tanh'](%0)
      return (%y, %z)""",
    "mixed": """graph mixed(%x : {h}[6,33], %w : f64[33]):
      %0 : f32[6,33] = cast[dtype=f32](%x)
      %1 : f32[33] = cast[dtype=f32](%w)
      %2 : f32[6,33] = mul(%0, %1)
      %3 : f32[6,1] = sum[dims=(1,), keepdims=True](%2)
      %y : {h}[6,1] = cast[dtype={h}](%3)
      %z : {h}[33] = cast[dtype={h}](%w)
      %a : {h}[6,33] = mul(%x, %z)
      return (%y, %a)""",
    "choices": """graph choose(%x : {h}[6,33], %y : {h}[6,33]):
      %z : float = Constant[value=0.3]()
      %c : bool[6,33] = gt(%x, %y)
      %d : bool[6,33] = eq(%x, %z)
      %e : bool[6,33] = logical_or(%c, %d)
      %0 : {h}[6,33] = where(%e, %x, %z)
      %1 : {h}[6,33] = clamp[low=-0.7, high=1.3](%0)
      %2 : {h}[6,33] = maximum(%1, %y)
      %3 : {h}[6,33] = cast[dtype={h}](%c)
      %4 : {h}[6,33] = add(%2, %3)
      %5 : {h}[6,1] = amax[dims=(1,), keepdims=True](%4)
      return (%4, %5)""",
    "folds": """graph folds(%x : {h}[300,19], %w : {h}[19]):
      %0 : {h}[300,19] = mul(%x, %w)
      %1 : {h}[19] = sum[dims=(0,), keepdims=False](%0)
      %2 : {h}[] = sum[dims=(0, 1), keepdims=False](%0)
      %3 : {h}[1,19] = amin[dims=(0,), keepdims=True](%0)
      return (%1, %2, %3)""",
    # in bfloat16 a sum of ones stands still at 256, in float16 at 2048
    "many ones": """graph ones(%x : {h}[2,4096]):
      %0 : {h}[2,1] = sum[dims=(1,), keepdims=True](%x)
      %1 : {h}[] = sum[dims=(0, 1), keepdims=False](%x)
      return (%0, %1)""",
}
HALVES = ("bf16", "f16")
NAMES = tuple(f"{name} {half}" for name in GRAPHS for half in HALVES)


def graph(name: str, dtype: str) -> Graph:
    """The primitives of a case."""
    made = parse_graph(GRAPHS[name].replace("{h}", dtype))
    run_passes(made, ("expand-composites", *CLEAN_UP))
    return made


def arrays(name: str, half: str) -> list[Any]:
    """Operands as numpy holds them; a bfloat16 number is a float32 one."""
    rng = np.random.default_rng(0)
    found = []
    for value in graph(name, half).inputs:
        assert isinstance(value.type, TensorType) and value.type.shape is not None
        shape = value.type.shape
        array = np.ones(shape) if name == "many ones" else 3.0 * rng.standard_normal(shape)
        if value.type.dtype == F64:
            found.append(array)
        elif half == "bf16":
            found.append(round_bf16(array.astype(np.float32)))
        else:
            found.append(array.astype(np.float16))
    return found


def in_kernels(source: Graph, max_block: int) -> tuple[Any, list[TritonKernel]]:
    """The graph run by Triton kernels, and those, filled as they are made."""
    kernels: list[TritonKernel] = []

    def make(nest: Any) -> InterpretedKernel:
        made = InterpretedKernel(nest)
        made.kernel = TritonKernel(nest, max_block)
        kernels.append(made.kernel)
        return made

    together = fuse(source, in_triton, lambda group: True)
    return emit(together, "numpy", None, make_kernel=make), kernels


def interpret(name: str, half: str) -> str:
    """Kernels against float64, beside whole numpy arrays that round after every op as eager does.

    Numpy's distance is allowed, and half a rounding of the largest number: sums have another order.
    """
    given = arrays(name, half)
    exact = compile_graph(graph(name, "f64"), backend="numpy")(
        *(a.astype(np.float64) for a in given)
    )
    theirs = compile_graph(graph(name, half), backend="numpy")(*given)
    eps = 2.0**-7 if half == "bf16" else 2.0**-10
    for block in (1 << 14, 8):
        run, kernels = in_kernels(graph(name, half), block)
        mine = run(*given)
        assert kernels
        for a, b, c in zip(mine, theirs, exact, strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape, (a.dtype, a.shape)
            scale = np.max(np.abs(c))
            allowed = np.max(np.abs(b.astype(np.float64) - c)) + eps * scale / 4
            off = np.max(np.abs(a.astype(np.float64) - c))
            if not off <= allowed:
                return f"off by {off}, allowed {allowed}"
            if name == "many ones" and not np.array_equal(a, c):
                return f"{a} is not {c}"
    return "ok"


def rounding() -> str:
    """Casts to half precision in a kernel against torch's own, edge cases and ties among them."""
    edges = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, 3.0e38, 3.4e38, 65519.0, 65520.0, 1.99999,
             1.00390625, 1.01171875, 1.0 + 2.0**-11, 1e-41, 6e-8, 2.9e-8]  # fmt: skip
    random = np.random.default_rng(1).standard_normal(500) * 10.0 ** np.arange(-10, 40, 0.1)
    x = np.concatenate([edges, random]).astype(np.float32)
    for half, dtype in (("bf16", torch.bfloat16), ("f16", torch.float16)):
        for wide in ("f32", "f64", "i64", "bool"):
            given = torch.from_numpy(np.nan_to_num(x, posinf=9e9, neginf=-9e9).clip(-9e9, 9e9))
            given = {"f32": torch.from_numpy(x), "f64": torch.from_numpy(x).double(),
                     "i64": given.long(), "bool": given > 0}[wide]  # fmt: skip
            source = parse_graph(
                f"graph c(%x : {wide}[{len(x)}]):\n %y : {half}[{len(x)}] = cast[dtype={half}](%x)"
                f"\n %z : f32[{len(x)}] = cast[dtype=f32](%y)\n return (%y, %z)"
            )
            (node,) = fuse(source, in_triton, lambda group: True).nodes()
            y, z = TritonKernel(schedule(node))(given)
            torch.testing.assert_close(y, given.to(dtype), rtol=0, atol=0, equal_nan=True)
            torch.testing.assert_close(z, given.to(dtype).float(), rtol=0, atol=0, equal_nan=True)
    return "ok"


def ptx(name: str, half: str, capability: int) -> str:
    """Compiled in every form; nothing is summed up in half precision.

    Single ops may be: rounded to half precision, one op computed in float32 is the same number.
    """
    for node in fuse(graph(name, half), in_triton, lambda group: True).nodes():
        if node.kind == "FusionGroup":
            nest = schedule(node)
            form = form_of(nest)
            for each in (form,) if form == "pointwise" else (form, "looped"):
                for text in ptx_of(nest, each, capability):
                    found = re.findall(r"(?:add|sub|mul|fma)(?:\.rn|\.ftz)*\.b?f16\S*", text)
                    if found and name == "many ones":
                        return f"{each}: {found}"
    return "ok"


def main(part: str) -> None:
    """Run all cases and print what came of them."""
    np.seterr(all="ignore")
    found = {}
    for name in sample.part((*NAMES, "rounding") if part == "interpret" else NAMES):
        try:
            case, half = name.rsplit(" ", 1) if name != "rounding" else (name, "")
            if part != "interpret":
                found[name] = ptx(case, half, int(part))
            else:
                found[name] = rounding() if name == "rounding" else interpret(case, half)
        except Exception:  # what went wrong is the result
            found[name] = traceback.format_exc()
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
