"""Kernels of exported files compiled to PTX; `python -m tests.codegen.triton_exported CAPABILITY`.

The files run with a launch that compiles the kernel for the arguments it is given, and leaves
results as they are. Prints {workload and dtype: number of kernels} as JSON.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from gradof.cli.export import derive
from gradof.cli.export_triton import triton_module
from gradof.cli.target import load_target
from tests.runtime.triton_workloads import WORKLOADS

DTYPES = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16}
_KINDS = {torch.float32: "fp32", torch.float64: "fp64", torch.bfloat16: "bf16",
          torch.int64: "i64", torch.bool: "i1"}  # fmt: skip


def compiled_for(capability: int, kernel: Any, given: dict[str, Any]) -> None:
    """Compile a kernel for its arguments by name."""
    kinds, fixed = {}, {}
    for parameter in kernel.params:
        value = given[parameter.name]
        if parameter.is_constexpr:
            kinds[parameter.name] = "constexpr"
            fixed[parameter.name] = value
        else:
            kinds[parameter.name] = "*" + _KINDS[value.dtype] if torch.is_tensor(value) else "i32"
    source = ASTSource(fn=kernel, signature=kinds, constexprs=fixed)
    out = triton.compile(source, target=GPUTarget("cuda", capability, 32))
    assert f".target sm_{capability}" in out.asm["ptx"]


def main(capability: int) -> None:
    """Export, load, run and differentiate every workload."""
    count = 0

    def launch(kernel: Any, *args: Any, grid: Any, warmup: bool, **named: Any) -> None:
        nonlocal count
        count += 1
        compiled_for(capability, kernel, dict(zip(kernel.arg_names, args, strict=False)) | named)

    JITFunction.run = launch
    torch.Tensor.new_empty = torch.Tensor.new_zeros  # type: ignore[method-assign]  # indices are read
    found: dict[str, int] = {}
    for name, fn in WORKLOADS.items():
        for label, dtype in DTYPES.items():
            args = tuple(torch.ones(s, dtype=dtype, requires_grad=True) for s in ((6, 9), (9,)))
            public, text = triton_module(derive(fn, args, {}), args, {})
            before = count
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, f"exported_{len(found)}.py")
                path.write_text(text)
                exported, _ = load_target(f"{path}:{public}")
                results = exported(*args)
                results = results if isinstance(results, tuple) else (results,)
                torch.autograd.grad(sum(t.sum() for t in results), args, allow_unused=True)
            found[f"{name} {label}"] = count - before
    print(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]))
