"""Kernels compiled to PTX, for any NVIDIA GPU, without one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from gradof.codegen.loops.ir import Instr, LoopNest
from gradof.codegen.triton.emit import Form
from gradof.codegen.triton.fold_source import fold_groups, folds_of
from gradof.codegen.triton.kernel import _compile
from gradof.codegen.triton.named import wide as wide_dtype

_NAMES = {"f32": "fp32", "f64": "fp64", "f16": "fp16", "bool": "i1"}


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
    groups = [[folds_of(nest)[k] for k in group] for group in fold_groups(nest)]
    kernels = [(made.kernel, folds_of(nest)), *zip(made.folds, groups, strict=True)]
    for kernel, folds in kernels:
        names = kernel.arg_names
        fixed = {n: values[n] for n in names if n in values}
        if hints:
            fixed |= {n: 1 for n in names if n.endswith(f"_s{len(nest.sizes) - 1}")}
        kinds = {
            n: "constexpr" if n in fixed else _kind(nest, n, wide, folds, kernel is not made.kernel)
            for n in names
        }
        even = {(k,): [["tt.divisibility", 16]] for k, n in enumerate(names) if n not in fixed}
        source = ASTSource(
            fn=kernel, signature=kinds, constexprs=fixed, attrs=even if hints else {}
        )
        options = {"debug": True, "sanitize_overflow": False} if kernel.debug else {}
        out = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
        text: str = out.asm["ptx"]
        assert f".target sm_{capability}" in text
        found.append(text)
    return found


def _kind(
    nest: LoopNest, name: str, wide: frozenset[str], folds: Sequence[Instr], adds: bool
) -> str:
    """The type of an argument, of the nest's own kernel or of one that adds partial results."""
    found = re.fullmatch(r"(in|out|fold|partial)(\d*)", name)
    if found is None:
        return "i64" if name in wide else "i32"
    which, k = found[1], int(found[2] or 0)
    if which in ("fold", "partial"):
        dtype = wide_dtype(folds[k].dtype)
    elif adds:
        dtype = nest.outputs[folds[k].buffer].dtype
    else:
        dtype = (nest.inputs if which == "in" else nest.outputs)[k].dtype
    return "*" + _NAMES.get(dtype.name, dtype.name)
