"""Combine the partial results of the chunks of a native kernel, in their order, as LLVM IR.

    fold(out, parts, chunks, width, count)     # out[c] = the sum of parts[k, c] over the chunks k

`parts` has a row of `width` bytes for each chunk, and in it `count` elements, aligned to 64 bytes
and with room for a whole vector. Chunks are added in order, so that a result does not depend on
which thread had which. A sum in float32 of an output of half precision is rounded as it is written.
"""

from __future__ import annotations

import functools

from gradof.codegen.llvm.instructions import WORD
from gradof.codegen.llvm.memory import Memory
from gradof.codegen.lowering.half import HALVES
from gradof.codegen.machine.engine import address_of, vector_bits
from gradof.codegen.machine.llvm_types import ELEMENT
from gradof.ir.types import DType


@functools.cache
def fold_address(kind: str, dtype: DType, written: DType) -> int:
    """The address of `fold` for a kind of reduction in `dtype`; all kernels share these few."""
    text = _Fold(vector_bits() // dtype.bits).text(kind, dtype, written)
    return address_of(text, "fold", "quick")


class _Fold(Memory):
    def __init__(self, lanes: int) -> None:
        super().__init__(lanes, 0, 0)

    def text(self, kind: str, dtype: DType, written: DType) -> str:
        """For each vector of columns, the sum over the chunks, as a dtype that `out` has."""
        v = self.code.vector(dtype)
        emit, line = self.code.emit, self.line
        line("br label %columns")
        self.code.lines.append("columns:")
        column = emit("phi i64 [ 0, %entry ], [ %following, %stored ]")
        more = emit(f"icmp slt i64 {column}, %c1")
        line(f"br i1 {more}, label %first, label %done")
        self.code.lines.append("first:")
        at = emit(f"getelementptr {ELEMENT[dtype]}, ptr %parts, i64 {column}")
        start = emit(f"load {v}, ptr {at}, align 1")
        line("br label %chunks_of_column")
        self.code.lines.append("chunks_of_column:")
        chunk = emit("phi i64 [ 1, %first ], [ %next_chunk, %add ]")
        total = emit(f"phi {v} [ {start}, %first ], [ %total, %add ]")
        left = emit(f"icmp slt i64 {chunk}, %chunks")
        line(f"br i1 {left}, label %add, label %store")
        self.code.lines.append("add:")
        offset = emit(f"mul i64 {chunk}, %width")
        place = emit(f"getelementptr i8, ptr {at}, i64 {offset}")
        part = emit(f"load {v}, ptr {place}, align 1")
        added = self.code.op(WORD[kind], dtype, [total, part], [dtype] * 2, {})
        line(f"%total = bitcast {v} {added} to {v}")
        line(f"%next_chunk = add i64 {chunk}, 1")
        line("br label %chunks_of_column")
        self.code.lines.append("store:")
        if written in HALVES:
            how = {"dtype": written, "any_nan": True}
            total = self.code.op("rounded", dtype, [total], [dtype], how)
        self.store(total, "%out", "one", -1, written, column, self.mask(column))
        line("br label %stored")
        self.code.lines.append("stored:")
        line(f"%following = add i64 {column}, {self.lanes}")
        line("br label %columns")
        declared = "\n".join(self.code.declared.values())
        body = "\n".join(self.code.lines)
        return (
            f"{declared}\n\ndefine void @fold(ptr %out, ptr %parts, i64 %chunks, i64 %width, "
            f"i64 %c1) {{\nentry:\n{body}\ndone:\n  ret void\n}}\n"
        )
