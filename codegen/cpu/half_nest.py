"""A loop nest of bfloat16 and float16 as one that computes in float32 and rounds after each op.

    x = load[0]           bf16          x = load[0]                     f32     # widened
    y = exp x             bf16    →     y_exact = exp x                 f32
    store[0] y                          y = rounded[dtype=bf16] y_exact f32
                                        store[0] y                      f32     # narrowed

The buffers keep their dtypes: loads widen, stores narrow. Reductions add up in float32 and are
rounded once, at their end; folds are rounded as they are stored. What only picks among numbers that
are rounded (`EXACT`) is not rounded again.
"""

from __future__ import annotations

from dataclasses import replace

from gradof.codegen.cpu.half import HALVES, round_f16
from gradof.codegen.loopnest import Instr, LoopNest, Operand
from gradof.codegen.schedule import held_cells
from gradof.ir.types import BOOL, F16, F32, DType

EXACT = frozenset(
    {"load", "copy", "alias", "detach", "where", "maximum", "minimum", "neg", "abs", "relu", "sign",
     "floor", "ceil", "trunc", "round"}
)  # fmt: skip


def has_halves(nest: LoopNest) -> bool:
    """Whether anything in the nest is of bfloat16 or float16."""
    return any(i.dtype in HALVES for i in nest.body)


def in_float32(nest: LoopNest) -> LoopNest:
    """The nest with roundings; itself where it has no half precision."""
    if not has_halves(nest):
        return nest
    dtypes = {i.name: i.dtype for i in nest.body if i.name}
    names = set(dtypes)
    body: list[Instr] = []
    for i in nest.body:
        body += _widened(i, dtypes, names)
    result = replace(nest, body=tuple(body), held=frozenset())
    return replace(result, held=held_cells(result))


def _widened(i: Instr, dtypes: dict[str, DType], names: set[str]) -> list[Instr]:
    args = tuple(_number(a, i, dtypes) for a in i.args)
    if i.dtype not in HALVES:
        return [replace(i, args=args)]
    attrs = {**i.attrs, "dtype": F32} if i.op == "cast" else i.attrs
    wide = replace(i, args=args, dtype=F32, attrs=attrs)
    if i.op in ("store", "fold") or _is_exact(i, dtypes):
        return [wide]
    exact = f"{i.name}_exact"
    while exact in names:
        exact += "_"
    names.add(exact)
    rounded = Instr(i.name, "rounded", (exact,), F32, i.level, i.stage, {"dtype": i.dtype}, i.loc)
    return [replace(wide, name=exact), rounded]


def _is_exact(i: Instr, dtypes: dict[str, DType]) -> bool:
    """Whether what an instruction gives has its dtype already."""
    if i.op == "reduce":
        return i.attrs["kind"] in ("max", "min")
    numbers = [a for a in i.args if not isinstance(a, str)]
    if i.op == "cast":
        (arg,) = i.args
        return isinstance(arg, str) and dtypes[arg] in (i.dtype, BOOL)
    return i.op in EXACT and not numbers


def _number(arg: Operand, i: Instr, dtypes: dict[str, DType]) -> Operand:
    """A number beside float16 is of float16, as numpy has it; beside bfloat16 it is of float32."""
    others = [dtypes[a] for a in i.args if isinstance(a, str)]
    if isinstance(arg, str | bool) or F16 not in (i.dtype, *others):
        return arg
    return float(round_f16(arg))
