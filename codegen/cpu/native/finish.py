"""The sum of what the chunks of a native kernel have folded, as LLVM IR.

    finish(args, parts, chunks, width, columns)     # writes the folds' outputs

Each chunk has a row of `width` bytes in `parts`: every fold 64 bytes aligned, one element per
column for cells, one for row values. Chunks are added in order, so that a result does not depend
on which thread had which.
"""

from __future__ import annotations

from collections.abc import Sequence

from gradof.codegen.cpu.native.columns import WORD
from gradof.codegen.cpu.native.memory import Memory
from gradof.codegen.cpu.native.vectors import ELEMENT
from gradof.ir.types import DType


def finish_text(
    folds: Sequence[tuple[int, str, DType, bool]], lanes: int
) -> tuple[str, dict[str, str]]:
    """`finish` for folds (buffer, kind, dtype, whether of cells), and what it declares."""
    declared: dict[str, str] = {}
    functions, calls, at = [], [], "0"
    for n, (buffer, kind, dtype, of_cells) in enumerate(folds):
        one = _Finish(lanes)
        functions.append(one.function(n, kind, dtype))
        declared |= one.code.declared
        count = "%columns" if of_cells else "1"
        calls.append(f"""  %at{n} = getelementptr i8, ptr %parts, i64 {at}
  %place{n} = getelementptr i64, ptr %args, i64 {buffer}
  %address{n} = load i64, ptr %place{n}
  %out{n} = inttoptr i64 %address{n} to ptr
  call void @fold{n}(ptr %out{n}, ptr %at{n}, i64 %chunks, i64 %width, i64 {count})
  %size{n} = mul i64 {count}, {dtype.itemsize}
  %more{n} = add i64 %size{n}, 63
  %whole{n} = and i64 %more{n}, -64
  %end{n} = add i64 {at}, %whole{n}""")
        at = f"%end{n}"
    body = "\n".join(calls)
    functions.append(
        "define void @finish(ptr %args, ptr %parts, i64 %chunks, i64 %width, i64 %columns) {\n"
        f"{body}\n  ret void\n}}\n"
    )
    return "\n".join(functions), declared


class _Finish(Memory):
    def __init__(self, lanes: int) -> None:
        super().__init__(lanes, 0, 0)

    def function(self, n: int, kind: str, dtype: DType) -> str:
        """One fold: for each vector of columns, the sum over the chunks."""
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
        self.store(total, "%out", "one", -1, dtype, column, self.mask(column))
        line("br label %stored")
        self.code.lines.append("stored:")
        line(f"%following = add i64 {column}, {self.lanes}")
        line("br label %columns")
        body = "\n".join(self.code.lines)
        return (
            f"define internal void @fold{n}(ptr %out, ptr %parts, i64 %chunks, i64 %width, "
            f"i64 %c1) {{\nentry:\n{body}\ndone:\n  ret void\n}}\n"
        )
