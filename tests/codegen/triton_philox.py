"""Masks drawn in kernels, run in triton's interpreter: `python -m tests.codegen.triton_philox run`.

Prints {case: "ok", or what is wrong}.
"""

from __future__ import annotations

import json
import math

import torch

from gradof.codegen.host.torch_emit import emit_torch
from gradof.codegen.lowering.philox import philox_kept
from gradof.ir.parser import parse_graph

SEED, PLACE = -12345678901234567, (3 << 33) << 20 | 2  # 512 threads, so that all take turns
GRAPH = """graph f(%x : {dtype}[{shape}], %s : i64[], %l : i64[]):
  %at : i64[{shape}] = position[shape={dims}, device='cpu']()
  %k : bool[{shape}] = philox_kept[p=0.25, width={width}, cells={cells}](%at, %s, %l)
  %c : {dtype}[{shape}] = cast[dtype={dtype}](%k)
  %y : {dtype}[{shape}] = mul(%x, %c)
  %n : {dtype}[{last}] = sum[dims=(0,), keepdims=False](%y)
  return (%y, %n)"""
CASES = (  # in fours and one by one; rows in tiles, in several dims, and flat
    ((6, 40), 8, "bf16"), ((8, 33), 4, "f32"), ((3, 7, 4), 4, "f32"), ((3, 6000), 8, "bf16"),
)  # fmt: skip


def main() -> None:
    """See the module docstring."""
    found = {}
    for shape, width, dtype in CASES:
        cells = math.prod(shape)
        sizes = {"shape": ",".join(map(str, shape)), "last": ",".join(map(str, shape[1:]))}
        text = GRAPH.format(dtype=dtype, dims=shape, width=width, cells=cells, **sizes)
        run = emit_torch(parse_graph(text))
        x = torch.ones(shape, dtype=torch.bfloat16 if dtype == "bf16" else torch.float32)
        y, n = run(x, torch.tensor(SEED), torch.tensor(PLACE))
        at = torch.arange(cells).reshape(shape)
        want = philox_kept(at, SEED, PLACE, p=0.25, width=width, cells=cells)
        right = torch.equal(y.bool(), want) and torch.equal(n, want.sum(0).to(n.dtype))
        found[f"{dtype}{list(shape)}"] = "ok" if right and len(run.kernels) == 1 else "wrong"
    print(json.dumps(found))


if __name__ == "__main__":
    main()
