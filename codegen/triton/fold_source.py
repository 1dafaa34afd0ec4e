"""Folds: what they start from, how two results become one, and the kernel that adds them all.

    @triton.jit
    def kernel_fold0(partial, out, parts, n, BP: tl.constexpr, BC: tl.constexpr):
        ...                      # out[c] = the sum of partial[p, c] over p, BP of them at once
"""

from __future__ import annotations

from collections.abc import Sequence

from gradof.codegen.loops.ir import Instr, LoopNest
from gradof.codegen.triton.named import wide
from gradof.codegen.triton.ops import NAMES
from gradof.ir.types import DType

FOLD_BODY = '''acc = tl.full((BP, BC), {identity}, tl.{dtype})
for start in range(0, parts, BP):
    p = start + tl.arange(0, BP)[:, None]
    value = tl.load({partial} + p.to(tl.int64) * n + c, mask=(p < parts) & (c < n), other=0)
    acc = tl.where(p < parts, {combine}, acc)
tl.store({out} + c, {reduced}, mask=c < n)
'''


def identity(kind: str, dtype: DType) -> str:
    """What a reduction starts from."""
    if kind in ("sum", "prod"):
        return "0" if kind == "sum" else "1"
    if dtype.is_float:
        return f'float("{"-inf" if kind == "max" else "inf"}")'
    bits = dtype.bits - 1
    return f"({-(1 << bits)})" if kind == "max" else str((1 << bits) - 1)


def combine(kind: str, dtype: DType, a: str, b: str) -> str:
    """Two partial results as one."""
    if kind in ("sum", "prod"):
        return f"{a} {'+' if kind == 'sum' else '*'} {b}"
    nan = ", propagate_nan=tl.PropagateNan.ALL" if dtype.is_float else ""
    return f"tl.{kind}imum({a}, {b}{nan})"


def reduced(kind: str, dtype: DType, text: str, axis: int) -> str:
    """A tile reduced along an axis, which stays."""
    if kind == "sum" or (kind != "prod" and not dtype.is_float):
        return f"tl.{kind}({text}, axis={axis}, keep_dims=True)"
    return f"tl.reduce({text}, {axis}, _{kind}, keep_dims=True)"


def folds_of(nest: LoopNest) -> list[Instr]:
    """The folds of a nest, in order: one partial buffer each."""
    return [i for i in nest.body if i.op == "fold"]


def fold_groups(nest: LoopNest) -> list[list[int]]:
    """Numbers of the folds whose partial results have one shape: one kernel adds them all."""
    levels = [f.level for f in folds_of(nest)]
    return [[k for k, f in enumerate(levels) if f == level] for level in dict.fromkeys(levels)]


def fold_source(name: str, folds: Sequence[Instr]) -> str:
    """The kernel that adds the partial results of folds, each by programs of its own."""
    numbers = [""] if len(folds) == 1 else [str(k) for k in range(len(folds))]
    parameters = [f"{which}{k}" for which in ("partial", "out") for k in numbers]
    lines = [
        "@triton.jit",
        f"def {name}({', '.join(parameters)}, parts, n, BP: tl.constexpr, BC: tl.constexpr):",
        "    c = tl.program_id(0).to(tl.int64) * BC + tl.arange(0, BC)[None, :]",
    ]
    for k, fold in zip(numbers, folds, strict=True):
        kind, dtype = str(fold.attrs["kind"]), wide(fold.dtype)
        body = FOLD_BODY.format(
            identity=identity(kind, dtype), dtype=NAMES[dtype], partial=f"partial{k}",
            combine=combine(kind, dtype, "acc", "value"), reduced=reduced(kind, dtype, "acc", 0),
            out=f"out{k}",
        )  # fmt: skip
        lines += [f"    if tl.program_id(1) == {k}:"] if k else []
        lines += [" " * (8 if k else 4) + line for line in body.splitlines()]
    return "\n".join(lines) + "\n"
