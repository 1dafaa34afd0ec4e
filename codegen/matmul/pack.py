"""Panels of the second operand of a product, copied to scratch, as LLVM IR; see `matmul`.

`pack(b, step, column, k0, k, columns, panel)` copies the rows from `k0` to `k`, whatever their
strides; `turned(b, column, k, columns, panel)` those of an operand that is transposed, in squares
of four by four, and so up to a multiple of four.
"""

from __future__ import annotations

from gradof import tuning
from gradof.codegen.machine.llvm_types import ELEMENT
from gradof.ir.types import DType


def tile_rows(bits: int) -> int:
    """Rows of a tile, for which there are registers: 32 of 512 bits, or 16 of 256."""
    return 8 if bits == 512 else 6


def panel_width(dtype: DType, bits: int) -> int:
    """Columns of a panel."""
    return tuning.PANEL_VECTORS * (bits // dtype.bits)


class Panels:
    """The types and functions for registers of so many bits."""

    def __init__(self, dtype: DType, bits: int) -> None:
        self.rows = tile_rows(bits)
        self.lanes = bits // dtype.bits
        self.size = dtype.itemsize
        self.one = ELEMENT[dtype]
        self.vector = f"<{self.lanes} x {self.one}>"
        self.mask = f"<{self.lanes} x i1>"
        self.name = f"v{self.lanes}f{dtype.bits}"
        self.width = panel_width(dtype, bits)

    def lanes_text(self, name: str, first: int) -> str:
        """A mask: the lanes of a vector at column `first` that are columns."""
        n = self.lanes
        lanes = "<" + ", ".join(f"i64 {first + k}" for k in range(n)) + ">"
        v = f"<{n} x i64>"
        return f"""  %{name}_one = insertelement {v} poison, i64 %columns, i32 0
  %{name}_all = shufflevector {v} %{name}_one, {v} poison, <{n} x i32> zeroinitializer
  %{name} = icmp slt {v} {lanes}, %{name}_all"""

    def pack_text(self) -> str:
        """Copies a panel: by vectors where its columns are neighbours, else by elements."""
        return f"""
define internal void @pack(ptr %b, i64 %step, i64 %b_column, i64 %k0, i64 %k, i64 %columns,
                           ptr %panel) {{
entry:
{self.masks_text()}
  %dense = icmp eq i64 %b_column, {self.size}
  %skip = mul i64 %k0, %step
  %b0 = getelementptr i8, ptr %b, i64 %skip
  %lines = mul i64 %k0, {self.width}
  %line0 = getelementptr {self.one}, ptr %panel, i64 %lines
  br label %next

next:
  %at = phi i64 [ %k0, %entry ], [ %at_next, %following ]
  %row = phi ptr [ %b0, %entry ], [ %row_next, %following ]
  %line = phi ptr [ %line0, %entry ], [ %line_next, %following ]
  %more = icmp slt i64 %at, %k
  br i1 %more, label %copy, label %done

copy:
  br i1 %dense, label %vectors, label %elements

vectors:
{self.vectors_text()}
  br label %following

elements:
  %column = phi i64 [ 0, %copy ], [ %column_next, %elements ]
  %from = phi ptr [ %row, %copy ], [ %from_next, %elements ]
  %element = load {self.one}, ptr %from
  %to = getelementptr {self.one}, ptr %line, i64 %column
  store {self.one} %element, ptr %to
  %column_next = add i64 %column, 1
  %from_next = getelementptr i8, ptr %from, i64 %b_column
  %others = icmp slt i64 %column_next, %columns
  br i1 %others, label %elements, label %following

following:
  %at_next = add i64 %at, 1
  %row_next = getelementptr i8, ptr %row, i64 %step
  %line_next = getelementptr {self.one}, ptr %line, i64 {self.width}
  br label %next

done:
  ret void
}}
"""

    def masks_text(self) -> str:
        """A mask for each vector of a panel."""
        vectors = range(tuning.PANEL_VECTORS)
        return "\n".join(self.lanes_text(f"mask{j}", j * self.lanes) for j in vectors)

    def vectors_text(self) -> str:
        """A row of a panel, read at once."""
        v, m = self.vector, self.mask
        return "\n".join(f"""  %from{j} = getelementptr {v}, ptr %row, i64 {j}
  %v{j} = call {v} @llvm.masked.load.{self.name}.p0(ptr %from{j}, i32 {self.size}, {m} %mask{j},
                                                    {v} zeroinitializer)
  %to{j} = getelementptr {v}, ptr %line, i64 {j}
  store {v} %v{j}, ptr %to{j}, align 64""" for j in range(tuning.PANEL_VECTORS))

    def turned_text(self) -> str:
        """Copies what squares of four fill of a panel whose columns lie in memory as rows do."""
        q = f"<4 x {self.one}>"
        pointers = "\n".join(f"""  %near{j} = call i64 @llvm.smin.i64(i64 {j}, i64 %last)
  %column{j} = add i64 %first, %near{j}
  %skip{j} = mul i64 %column{j}, %b_column
  %from{j} = getelementptr i8, ptr %b, i64 %skip{j}""" for j in range(4))
        loads = "\n".join(f"""  %at{j} = getelementptr {self.one}, ptr %from{j}, i64 %at
  %l{j} = load {q}, ptr %at{j}, align {self.size}""" for j in range(4))
        stores = "\n".join(
            f"  %line{j} = getelementptr {self.one}, ptr %line, i64 {j * self.width}\n"
            f"  store {q} %r{j}, ptr %line{j}, align 16" for j in range(4)
        )
        return f"""
define internal void @turned(ptr %b, i64 %b_column, i64 %k, i64 %columns, ptr %panel) {{
entry:
  br label %group

group:
  %first = phi i64 [ 0, %entry ], [ %first_next, %grouped ]
  %some = icmp slt i64 %first, %columns
  br i1 %some, label %begin, label %done

begin:
  %beyond = sub i64 %columns, %first
  %last = sub i64 %beyond, 1
{pointers}
  %line_first = getelementptr {self.one}, ptr %panel, i64 %first
  br label %next

next:
  %at = phi i64 [ 0, %begin ], [ %at_next, %square ]
  %line = phi ptr [ %line_first, %begin ], [ %line_next, %square ]
  %more = icmp slt i64 %at, %k
  br i1 %more, label %square, label %grouped

square:
{loads}
{self.turns_text()}
{stores}
  %at_next = add i64 %at, 4
  %line_next = getelementptr {self.one}, ptr %line, i64 {4 * self.width}
  br label %next

grouped:
  %first_next = add i64 %first, 4
  br label %group

done:
  ret void
}}
"""

    def turns_text(self) -> str:
        """A square of four vectors, transposed."""
        q = f"<4 x {self.one}>"
        low, high = "<i32 0, i32 4, i32 1, i32 5>", "<i32 2, i32 6, i32 3, i32 7>"
        first, second = "<i32 0, i32 1, i32 4, i32 5>", "<i32 2, i32 3, i32 6, i32 7>"
        return "\n".join(
            f"  %{to} = shufflevector {q} %{x}, {q} %{y}, <4 x i32> {picks}"
            for to, x, y, picks in (
                ("p0", "l0", "l1", low), ("p1", "l2", "l3", low),
                ("p2", "l0", "l1", high), ("p3", "l2", "l3", high),
                ("r0", "p0", "p1", first), ("r1", "p0", "p1", second),
                ("r2", "p2", "p3", first), ("r3", "p2", "p3", second),
            )
        )  # fmt: skip
