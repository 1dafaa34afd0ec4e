"""Kernels compiled to PTX, for any NVIDIA GPU, without one."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from gradof.codegen.gpu.emit_triton import Form
from gradof.codegen.gpu.kernel import _compile
from gradof.codegen.loopnest import LoopNest

_NAMES = {"f32": "fp32", "f64": "fp64", "f16": "fp16", "bool": "i1"}
_PARTS = {"f64": "fp64", "i64": "i64", "i32": "i32"}  # of folds; float32 otherwise


def ptx_of(
    nest: LoopNest, form: Form, capability: int, *, hints: bool = False, index: Any = tl.int32,
    wide: frozenset[str] = frozenset(), **constants: Any,
) -> list[str]:  # fmt: skip
    """PTX of the kernel and of its folds.

    With `hints`, arguments are as triton sees them at a launch with contiguous tensors of sizes
    divisible by 16: strides of the last axis are 1, all else is divisible by 16. `wide` names
    arguments that do not fit into 32 bits; `constants` override the constexprs.
    """
    made = _compile(nest, form)
    values = {"INDEX": index, "BR": 2, "BC": 64, "TILES": 1, "BP": 32, **constants}
    found = []
    for kernel in (made.kernel, *made.folds):
        names = kernel.arg_names
        fixed = {n: values[n] for n in names if n in values}
        if hints:
            fixed |= {n: 1 for n in names if n.endswith(f"_s{len(nest.sizes) - 1}")}
        kinds = {n: "constexpr" if n in fixed else _kind(nest, n, wide) for n in names}
        even = {(k,): [["tt.divisibility", 16]] for k, n in enumerate(names) if n not in fixed}
        source = ASTSource(
            fn=kernel, signature=kinds, constexprs=fixed, attrs=even if hints else {}
        )
        out = triton.compile(source, target=GPUTarget("cuda", capability, 32))
        text: str = out.asm["ptx"]
        assert f".target sm_{capability}" in text
        found.append(text)
    return found


def _kind(nest: LoopNest, name: str, wide: frozenset[str]) -> str:
    for which, buffers in (("in", nest.inputs), ("out", nest.outputs)):
        digits = name.removeprefix(which)
        if name.startswith(which) and digits.isdigit():
            dtype = buffers[int(digits)].dtype
            return "*" + _NAMES.get(dtype.name, dtype.name)
    if name.startswith("fold") or name in ("partial", "out"):
        kinds = {_PARTS[b.dtype.name] for b in nest.outputs if b.dtype.name in _PARTS}
        return "*" + (kinds.pop() if kinds else "fp32")
    return "i64" if name in wide else "i32"
