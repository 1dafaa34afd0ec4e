"""Products of small matrices as LLVM IR: one kernel for all sizes, strides and batches.

The kernel is called as those of loop nests are (`llvm.emit`); its rows are `work`: a panel of
columns of one matrix of the batch, for a block of its rows. `ARGUMENTS` names what `args` holds;
strides are in bytes, and the result lies without gaps.

Note [A product in registers]
A panel of the second operand is as wide as `PANEL_VECTORS` registers. It is copied, whatever its
strides, to scratch, where its rows lie one behind the other (`pack`). A tile of the result, as many
rows by that panel, stays in registers while one loop runs along the sum: each step loads a row of
the panel, spreads one element of every row of the first operand, and multiplies and adds, rounded
once. After `MATMUL_TERMS` terms the sums are added to those before, so that errors of long sums
stay small. Every element of the result is so added up in one order, wherever it lies in a tile and
whoever computes it: its bits depend on its row and its column alone.

Nothing is padded. Where fewer rows are left than a tile has, the last one takes the places of those
that are missing: it is read again, and computed and stored again, the same. Where columns are, what
is computed of the missing ones is of no meaning: the tile goes to scratch, and its columns from
there to the result.
"""

from __future__ import annotations

from gradof import tuning
from gradof.codegen.matmul.pack import Panels, panel_width, tile_rows
from gradof.ir.types import DType

ARGUMENTS = (
    "a", "b", "c", "m", "n", "k", "inner", "a_outer", "a_inner", "a_row", "a_step",
    "b_outer", "b_inner", "b_step", "b_column", "block", "blocks", "panels",
)  # fmt: skip


def scratch_bytes(k: int, dtype: DType, bits: int) -> int:
    """What a thread needs for a panel and a tile, in bytes."""
    return (k + tile_rows(bits)) * panel_width(dtype, bits) * dtype.itemsize


def emit_product(dtype: DType, bits: int) -> str:
    """The kernel for float32 or float64 and registers of so many bits."""
    return _Product(dtype, bits).text()


class _Product(Panels):
    def text(self) -> str:
        v, m = self.vector, self.mask
        return f"""declare i64 @llvm.smin.i64(i64, i64)
declare {v} @llvm.fma.{self.name}({v}, {v}, {v})
declare {v} @llvm.masked.load.{self.name}.p0(ptr, i32, {m}, {v})
declare void @llvm.masked.store.{self.name}.p0({v}, ptr, i32, {m})
{self.pack_text()}{self.turned_text()}{self.part_text()}{self.tiles_text()}{self.kernel_text()}"""

    # --- the whole --------------------------------------------------------------------------------

    def kernel_text(self) -> str:
        """One piece of work after the other; so seldom that it is not optimised."""
        loads = "\n".join(
            f"  %{name}_at = getelementptr i64, ptr %args, i64 {k}\n"
            f"  %{name}{'_int' if name in 'abc' else ''} = load i64, ptr %{name}_at"
            for k, name in enumerate(ARGUMENTS)
        )
        pointers = "\n".join(f"  %{name} = inttoptr i64 %{name}_int to ptr" for name in "abc")
        return f"""
define void @kernel(ptr noalias %args, i64 %r0, i64 %r1, i64 %c0, i64 %c1, ptr noalias %scratch,
                    ptr noalias %partial) noinline optnone alignstack(64) {{
entry:
{loads}
{pointers}
  %c_row = mul i64 %n, {self.size}
  %c_matrix = mul i64 %c_row, %m
  %each = mul i64 %blocks, %panels
  %packed = getelementptr i8, ptr %scratch, i64 {self.rows * self.width * self.size}
  br label %next

next:
  %item = phi i64 [ %r0, %entry ], [ %item_next, %following ]
  %left = icmp slt i64 %item, %r1
  br i1 %left, label %work, label %done

work:
{self.places_text()}
  %is_turned = icmp eq i64 %b_step, {self.size}
  br i1 %is_turned, label %turn, label %copy

turn:
  %squares = and i64 %k, -4
  call void @turned(ptr %b_panel, i64 %b_column, i64 %squares, i64 %columns, ptr %packed)
  br label %copy

copy:
  %copied = phi i64 [ 0, %work ], [ %squares, %turn ]
  call void @pack(ptr %b_panel, i64 %b_step, i64 %b_column, i64 %copied, i64 %k, i64 %columns,
                  ptr %packed)
  call void @tiles(ptr %a_block, i64 %a_row, i64 %a_step, ptr %packed, i64 %k, ptr %c_block,
                   i64 %c_row, i64 %rows, i64 %columns, ptr %scratch)
  br label %following

following:
  %item_next = add i64 %item, 1
  br label %next

done:
  ret void
}}
"""

    def places_text(self) -> str:
        """Where a piece of work is in every operand, and how much of it there is."""
        return f"""  %matrix = sdiv i64 %item, %each
  %place = srem i64 %item, %each
  %nth = sdiv i64 %place, %panels
  %panel = srem i64 %place, %panels
  %outer = sdiv i64 %matrix, %inner
  %within = srem i64 %matrix, %inner
  %row0 = mul i64 %nth, %block
  %rows_left = sub i64 %m, %row0
  %rows = call i64 @llvm.smin.i64(i64 %block, i64 %rows_left)
  %column0 = mul i64 %panel, {self.width}
  %columns_left = sub i64 %n, %column0
  %columns = call i64 @llvm.smin.i64(i64 {self.width}, i64 %columns_left)
  %a1 = mul i64 %outer, %a_outer
  %a2 = mul i64 %within, %a_inner
  %a3 = mul i64 %row0, %a_row
  %a12 = add i64 %a1, %a2
  %a123 = add i64 %a12, %a3
  %a_block = getelementptr i8, ptr %a, i64 %a123
  %b1 = mul i64 %outer, %b_outer
  %b2 = mul i64 %within, %b_inner
  %b3 = mul i64 %column0, %b_column
  %b12 = add i64 %b1, %b2
  %b123 = add i64 %b12, %b3
  %b_panel = getelementptr i8, ptr %b, i64 %b123
  %c1_ = mul i64 %matrix, %c_matrix
  %c2 = mul i64 %row0, %c_row
  %c3 = mul i64 %column0, {self.size}
  %c12 = add i64 %c1_, %c2
  %c123 = add i64 %c12, %c3
  %c_block = getelementptr i8, ptr %c, i64 %c123"""

    # --- tiles ------------------------------------------------------------------------------------

    def tiles_text(self) -> str:
        """All tiles of a panel, from the first row to the last.

        Where a panel is not full, they go to `spare`, and from there what there is of them.
        """
        return f"""
define internal void @tiles(ptr %a, i64 %a_row, i64 %a_step, ptr %panel, i64 %k, ptr %c, i64 %c_row,
                            i64 %m, i64 %columns, ptr %spare) alignstack(64) {{
entry:
  %whole = icmp sge i64 %columns, {self.width}
  %to_row = select i1 %whole, i64 %c_row, i64 {self.width * self.size}
  br label %next

next:
  %first = phi i64 [ 0, %entry ], [ %first_next, %following ]
  %left = sub i64 %m, %first
  %some = icmp sgt i64 %left, 0
  br i1 %some, label %tile, label %done

tile:
  %last = sub i64 %left, 1
{self.rows_text()}
  %c_skip = mul i64 %first, %c_row
  %c_tile = getelementptr i8, ptr %c, i64 %c_skip
  %to = select i1 %whole, ptr %c_tile, ptr %spare
  br label %begin

{self.along_text()}
summed:
{self.targets()}
  %again = icmp sgt i64 %from, 0
  br i1 %again, label %add, label %store

add:
{self.adds()}
  br label %store

store:
{self.stores()}
  %rest = icmp slt i64 %till, %k
  br i1 %rest, label %begin, label %finished

finished:
  br i1 %whole, label %following, label %part

part:
  call void @part(ptr %spare, ptr %c_tile, i64 %c_row, i64 %left, i64 %columns)
  br label %following

following:
  %first_next = add i64 %first, {self.rows}
  br label %next

done:
  ret void
}}
"""

    def along_text(self) -> str:
        """The sums of a tile, over the next `MATMUL_TERMS` terms."""
        return f"""begin:
  %from = phi i64 [ 0, %tile ], [ %till, %store ]
  %far = add i64 %from, {tuning.MATMUL_TERMS}
  %till = call i64 @llvm.smin.i64(i64 %far, i64 %k)
  %a_from = mul i64 %from, %a_step
  %skipped = mul i64 %from, {self.width}
  %line_from = getelementptr {self.one}, ptr %panel, i64 %skipped
  br label %along

along:
  %at = phi i64 [ %from, %begin ], [ %at_next, %sum ]
  %a_at = phi i64 [ %a_from, %begin ], [ %a_next, %sum ]
  %line = phi ptr [ %line_from, %begin ], [ %line_next, %sum ]
{self.sums()}
  %more = icmp slt i64 %at, %till
  br i1 %more, label %sum, label %summed

sum:
{self.step()}
  %at_next = add i64 %at, 1
  %a_next = add i64 %a_at, %a_step
  %line_next = getelementptr {self.one}, ptr %line, i64 {self.width}
  br label %along
"""

    def part_text(self) -> str:
        """Copies the columns there are of a tile that is not full."""
        v, m = self.vector, self.mask
        copies = "\n".join(f"""  %from{j} = getelementptr {v}, ptr %line, i64 {j}
  %v{j} = load {v}, ptr %from{j}, align 64
  %to{j} = getelementptr {v}, ptr %row, i64 {j}
  call void @llvm.masked.store.{self.name}.p0({v} %v{j}, ptr %to{j}, i32 {self.size},
                                              {m} %mask{j})""" for j in range(tuning.PANEL_VECTORS))
        return f"""
define internal void @part(ptr %spare, ptr %c, i64 %c_row, i64 %left, i64 %columns) {{
entry:
{self.masks_text()}
  %rows = call i64 @llvm.smin.i64(i64 %left, i64 {self.rows})
  br label %next

next:
  %at = phi i64 [ 0, %entry ], [ %at_next, %next ]
  %line = phi ptr [ %spare, %entry ], [ %line_next, %next ]
  %row = phi ptr [ %c, %entry ], [ %row_next, %next ]
{copies}
  %at_next = add i64 %at, 1
  %line_next = getelementptr {self.one}, ptr %line, i64 {self.width}
  %row_next = getelementptr i8, ptr %row, i64 %c_row
  %more = icmp slt i64 %at_next, %rows
  br i1 %more, label %next, label %done

done:
  ret void
}}
"""

    def rows_text(self) -> str:
        """The rows of the first operand that a tile reads, the last one for those beyond it."""
        return "\n".join(f"""  %near{i} = call i64 @llvm.smin.i64(i64 {i}, i64 %last)
  %row{i} = add i64 %first, %near{i}
  %a_skip{i} = mul i64 %row{i}, %a_row
  %a{i} = getelementptr i8, ptr %a, i64 %a_skip{i}""" for i in range(self.rows))

    def sums(self) -> str:
        """What is added up so far of every element of a tile."""
        return "\n".join(
            f"  %s{i}_{j} = phi {self.vector} [ zeroinitializer, %begin ], [ %t{i}_{j}, %sum ]"
            for i in range(self.rows) for j in range(tuning.PANEL_VECTORS)
        )  # fmt: skip

    def step(self) -> str:
        """One term of every sum of a tile."""
        v, w = self.vector, self.lanes
        lines = []
        for j in range(tuning.PANEL_VECTORS):
            lines += [f"  %b_at{j} = getelementptr {v}, ptr %line, i64 {j}",
                      f"  %b{j} = load {v}, ptr %b_at{j}, align 64"]  # fmt: skip
        for i in range(self.rows):
            lines += [
                f"  %a_of{i} = getelementptr i8, ptr %a{i}, i64 %a_at",
                f"  %x{i} = load {self.one}, ptr %a_of{i}, align {self.size}",
                f"  %y{i} = insertelement {v} poison, {self.one} %x{i}, i32 0",
                f"  %z{i} = shufflevector {v} %y{i}, {v} poison, <{w} x i32> zeroinitializer",
                *(f"  %t{i}_{j} = call {v} @llvm.fma.{self.name}({v} %z{i}, {v} %b{j}, "
                  f"{v} %s{i}_{j})" for j in range(tuning.PANEL_VECTORS)),
            ]  # fmt: skip
        return "\n".join(lines)

    def targets(self) -> str:
        """Where the vectors of a tile go, its last row also in place of those that are missing."""
        lines = []
        for i in range(self.rows):
            lines += [f"  %to_skip{i} = mul i64 %near{i}, %to_row",
                      f"  %to{i} = getelementptr i8, ptr %to, i64 %to_skip{i}"]  # fmt: skip
            lines += [f"  %to{i}_{j} = getelementptr {self.vector}, ptr %to{i}, i64 {j}"
                      for j in range(tuning.PANEL_VECTORS)]  # fmt: skip
        return "\n".join(lines)

    def adds(self) -> str:
        """The sums so far, of which all are read before one is written: rows may be the same."""
        v = self.vector
        return "\n".join(
            f"  %o{i}_{j} = load {v}, ptr %to{i}_{j}, align {self.size}\n"
            f"  %u{i}_{j} = fadd {v} %o{i}_{j}, %s{i}_{j}"
            for i in range(self.rows) for j in range(tuning.PANEL_VECTORS)
        )  # fmt: skip

    def stores(self) -> str:
        """A tile to its place."""
        v, across = self.vector, range(tuning.PANEL_VECTORS)
        cells = [(i, j) for i in range(self.rows) for j in across]
        return "\n".join([
            *(f"  %w{i}_{j} = phi {v} [ %s{i}_{j}, %summed ], [ %u{i}_{j}, %add ]"
              for i, j in cells),
            *(f"  store {v} %w{i}_{j}, ptr %to{i}_{j}, align {self.size}" for i, j in cells),
        ])  # fmt: skip
