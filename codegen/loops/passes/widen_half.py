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

import math
from dataclasses import replace

from gradof.codegen.loops.ir import Instr, LoopNest, Operand
from gradof.codegen.loops.lower import held_cells
from gradof.codegen.lowering.half import HALVES, WEAK, round_number
from gradof.ir.attrs import Attr
from gradof.ir.types import BF16, BOOL, F32

EXACT = frozenset(
    {"load", "copy", "alias", "detach", "where", "maximum", "minimum", "neg", "abs", "relu", "sign",
     "floor", "ceil", "trunc", "round"}
)  # fmt: skip
_PROCESSORS = EXACT | {
    "add", "sub", "mul", "div", "square", "reciprocal", "sqrt", "rsqrt", "clamp", "cast", "reduce",
}  # fmt: skip


def has_halves(nest: LoopNest) -> bool:
    """Whether anything in the nest is of bfloat16 or float16."""
    return any(i.dtype in HALVES for i in nest.body)


def in_float32(nest: LoopNest, torch: bool = False) -> LoopNest:
    """The nest with roundings; itself where it has no half precision.

    `torch` says whose numbers those beside float16 are; see `WEAK` in `half`.
    """
    if not has_halves(nest):
        return nest
    widening = _Widening(nest, torch)
    result = replace(nest, body=tuple(widening.run()), held=frozenset())
    return replace(result, held=held_cells(result))


class _Widening:
    def __init__(self, nest: LoopNest, torch: bool) -> None:
        self.nest = nest
        self.torch = torch
        self.dtypes = {i.name: i.dtype for i in nest.body if i.name}
        self.names = set(self.dtypes)
        self.plain: set[str] = set()  # values whose nan, if any, has no low bits

    def run(self) -> list[Instr]:
        return [made for i in self.nest.body for made in self.widened(i)]

    def widened(self, i: Instr) -> list[Instr]:
        args = tuple(self.operand(a, i) for a in i.args)
        is_plain = i.dtype in HALVES if i.op == "load" else self.is_plain(i)
        if is_plain or i.dtype in HALVES:
            self.plain.add(i.name)
        if i.dtype not in HALVES:
            return [replace(i, args=args)]
        attrs = {"dtype": F32} if i.op == "cast" else i.attrs
        wide = replace(i, args=args, dtype=F32, attrs=attrs)
        if i.op in ("store", "fold") or self.is_exact(i) or self.is_weak(i):
            return [wide]
        exact = f"{i.name}_exact"
        while exact in self.names:
            exact += "_"
        self.names.add(exact)
        how: dict[str, Attr] = {"dtype": i.dtype, "any_nan": not is_plain}
        rounded = Instr(i.name, "rounded", (exact,), F32, i.level, i.stage, how, i.loc)
        return [replace(wide, name=exact), rounded]

    def is_exact(self, i: Instr) -> bool:
        """Whether what an instruction gives has its dtype already."""
        numbers = [a for a in i.args if not isinstance(a, str)]
        if i.op == "reduce":
            return i.attrs["kind"] in ("max", "min")
        if i.op == "cast":
            (arg,) = i.args
            return isinstance(arg, str) and self.dtypes[arg] in (i.dtype, BOOL)
        if i.op == "mul" and i.dtype == BF16 and numbers:  # with float32's range
            return math.frexp(numbers[0])[0] in (0.5, -0.5) and abs(numbers[0]) >= 1
        return i.op in EXACT and not numbers

    def is_plain(self, i: Instr) -> bool:
        """Whether the processor makes nan here of plain ones only: it sets or keeps high bits."""
        is_float = i.dtype.is_float
        return not is_float or (i.op in _PROCESSORS and all(
            a in self.plain for a in i.args if isinstance(a, str)
        ))  # fmt: skip

    def operand(self, arg: Operand, i: Instr) -> Operand:
        """The operand; a number beside half precision is rounded where its library does so."""
        others = [i.dtype, *(self.dtypes[a] for a in i.args if isinstance(a, str))]
        halves = [d for d in others if d in HALVES]
        if isinstance(arg, str | bool) or not halves or (self.torch and i.op in WEAK):
            return arg
        return round_number(arg, halves[0])

    def is_weak(self, i: Instr) -> bool:
        """Whether an instruction converts a number at run time that is then read as it is."""
        if not self.torch or "weak" not in i.attrs:
            return False
        return all(j.op in WEAK for j in self.nest.body if i.name in j.args)
