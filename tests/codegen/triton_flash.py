"""Attention's kernels compiled to PTX, for any NVIDIA GPU, without one."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from gradof.codegen.triton.attention.blocks import Blocks, blocks_for, padded
from gradof.codegen.triton.attention.emit import PARTS, FlashShape
from gradof.codegen.triton.attention.kernel import compile_flash
from gradof.ir.types import BOOL, F32

SHAPE = FlashShape(
    "attention",
    (("mul", ("s", 0.25)), ("add", ("s", "x0")), ("div", ("s", 5.0)), ("tanh", ("s",)),
     ("mul", ("s", 5.0)), ("where", ("x1", "s", float("-inf")))),
    (F32, BOOL), False, "model.py:7",
)  # fmt: skip
# What an SM of this capability lets a program have of its shared memory, in bytes.
SHARED = {80: 163 << 10, 90: 227 << 10, 100: 227 << 10}
ITEMSIZE = {"fp16": 2, "bf16": 2, "fp32": 4}


def ptx_of_flash(
    part: str, capability: int, dtype: str, head: int, *, shape: FlashShape = SHAPE,
    blocks: Blocks | None = None,
) -> tuple[str, int]:  # fmt: skip
    """PTX of a part, and its shared memory; arguments as at a launch with contiguous tensors."""
    extras = [1 if d == BOOL else d.bits // 8 for d in shape.extras]
    blocks = blocks or blocks_for(
        part, head, head, ITEMSIZE[dtype], SHARED[capability], extras, plain=shape.plain,
        causal=shape.causal is not None, described=capability >= 90,
    )  # fmt: skip
    edges = "de" if padded(head) != head else ""
    kernel = compile_flash(replace(shape, edges=edges, described=blocks.described), part)
    constants: dict[str, Any] = {
        "D": head, "E": head, "PRECISION": "tf32", "INDEX": tl.int32, "TAIL": False,
        **blocks.constants,
    }  # fmt: skip
    options = {k: constants.pop(k) for k in ("num_warps", "num_stages")}
    options["enable_fp_fusion"] = True
    names = kernel.arg_names
    steps_of_one = (
        "q_d", "k_d", "v_e", "o_e", "g_e", "dq_d", "dk_d", "dv_e", "x0_n", "x1_n", "l_m", "delta_m"
    )  # fmt: skip
    constants |= {n: 1 for n in names if n in steps_of_one}
    ahead = blocks.BM if part == "keys" else blocks.BN
    kinds = {
        n: "constexpr" if n in constants else f"*{_pointee(n, dtype)}" if n.endswith("_ptr")
        else f"tensordesc<{dtype}[1,1,{ahead},{blocks.BD}]>" if n.endswith("_tile")
        else "i32" for n in names
    }  # fmt: skip
    even = {
        (k,): [["tt.divisibility", 16]] for k, n in enumerate(names)
        if n not in constants and n != "H" and not n.endswith("_tile")
    }  # fmt: skip
    source = ASTSource(fn=kernel, signature=kinds, constexprs=constants, attrs=even)
    out = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    return out.asm["ptx"], out.metadata.shared


def _pointee(name: str, dtype: str) -> str:
    return {"l_ptr": "fp32", "delta_ptr": "fp32", "x0_ptr": "fp32", "x1_ptr": "i1"}.get(name, dtype)


def cases(heads: tuple[int, ...] = (64,)) -> list[tuple[str, int, str, int]]:
    """Part, capability, dtype, head."""
    return list(itertools.product(PARTS, SHARED, ITEMSIZE, heads))
