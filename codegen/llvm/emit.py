"""Loop nest → LLVM IR.

The kernel is `void kernel(i64* args, i64 r0, i64 r1, i64 c0, i64 c1, i8* scratch, i8* partial)`.
It runs rows r0..r1 and, of each, columns c0..c1, of every segment if there are such. `args` holds
the address of every buffer, inputs first, then per buffer one stride per axis of the nest, in
elements, then the sizes of the axes.
Held cells go to `scratch`, a row each; folds to `partial`, which holds this chunk's part of every
fold: one element per column for cells, one for row values. `combine_partials` adds up the chunks.
Sums over rows are made of the sums of every `ROWS` (Note [One order of adding]).

Every value is a vector (`vectors`), those of rows and of the kernel with equal lanes. The innermost
loop (`columns`) runs over full vectors, and once more, masked, over what is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gradof.codegen.llvm.emit_loops import Columns
from gradof.codegen.llvm.instructions import identity, kind_of
from gradof.codegen.llvm.memory import Stride
from gradof.codegen.llvm.reductions import ROWS, in_blocks
from gradof.codegen.loops.ir import Instr, LoopNest
from gradof.codegen.loops.text import instr_lines
from gradof.codegen.machine.llvm_types import STORED
from gradof.ir.types import F32, F64, I64, DType


@dataclass(frozen=True)
class Code:
    """LLVM IR of a kernel, and the layout of what it is given."""

    text: str
    scratch: tuple[tuple[str, int], ...]  # held cell, bytes of an element
    folds: tuple[tuple[int, str, bool], ...]  # output, kind, whether of cells
    sums: tuple[DType, ...]  # per fold, the dtype in which it is added up


def emit_ir(
    nest: LoopNest, strides: Sequence[Stride], lanes: int, *, notes: bool = False
) -> Code:  # fmt: skip
    """The kernel of a nest with at most one column axis, or two, of which the first are segments;
    `strides` per buffer, of the columns. `notes`: each instruction is a comment before its code,
    for people; machine code is kept by its text, which is to be the same for any line of theirs.
    """
    return (_WithNotes if notes else _Emitter)(nest, strides, lanes).run()


class _Emitter(Columns):
    def __init__(self, nest: LoopNest, strides: Sequence[Stride], lanes: int) -> None:
        super().__init__(nest, strides, lanes)
        self.buffers = [*nest.inputs, *nest.outputs]
        self.scratch: list[tuple[str, int]] = []

    def run(self) -> Code:
        nest = self.nest
        self.scratch = [(n, self.made[n].dtype.itemsize) for n in sorted(nest.held)
                        if n not in self.lent]
        self.scratch += [(f"total{self.folds.index(i)}", i.dtype.itemsize)
                         for i in self.folds if i.level == "cell" and in_blocks(i)]
        for k in range(len(self.buffers)):
            self.argument(f"%base{k}", k)
        for axis in range(self.axes):
            self.argument(f"%size{axis}", len(self.buffers) * (1 + self.axes) + axis)
        columns = f"%size{self.axes - 1}" if self.has_columns else "1"
        segments = f"%size{nest.rows}" if self.segmented else "1"
        self.line(f"%ncols = mul i64 {columns}, {segments}")
        self.scratch_pointers()
        self.partial_pointers()
        for i in nest.once():
            if i.op == "store":  # the same number from every chunk
                k = len(nest.inputs) + i.buffer
                pointer = self.code.emit(f"inttoptr i64 %base{k} to ptr")
                self.store_lane(self.operand(i.args[0], i.dtype), pointer, self.buffers[k].dtype)
            else:
                self.value(i, None, None)
        self.rows()
        streams = "streamed" in self.strides
        if streams:  # whoever sees that this chunk is done is to see what it wrote past the cache
            self.code.declare("sfence", "declare void @llvm.x86.sse.sfence()")
            self.line("call void @llvm.x86.sse.sfence()")
        self.line("ret void")
        declared = "\n".join(self.code.declared.values())
        body = "\n".join([*self.head, *self.code.lines])
        text = (
            f"{declared}\n\ndefine void @kernel(ptr noalias %args, i64 %r0, i64 %r1, i64 %c0, "
            "i64 %c1, ptr noalias %scratch, ptr noalias %partial) alignstack(64) "  # for spills
            f"{{\nentry:\n{body}\n}}\n" + ("\n!0 = !{i32 1}\n" if streams else "")
        )
        return Code(text, tuple(self.scratch), tuple(
            (i.buffer, kind_of(i), i.level == "cell") for i in self.folds
        ), tuple(i.dtype for i in self.folds))  # fmt: skip

    @property
    def has_columns(self) -> bool:
        return self.axes > self.nest.rows

    def argument(self, name: str, index: int) -> None:
        at = self.code.emit(f"getelementptr i64, ptr %args, i64 {index}")
        self.line(f"{name} = load i64, ptr {at}")

    def scratch_pointers(self) -> None:
        at = "0"
        for name, width in self.scratch:
            self.line(f"%held_{name} = getelementptr i8, ptr %scratch, i64 {at}")
            size = self.code.emit(f"mul i64 %ncols, {width}")
            padded = self.code.emit(f"add i64 {size}, {self.lanes * width}")
            at = self.code.emit(f"add i64 {at}, {padded}")

    def partial_pointers(self) -> None:
        """Where each fold of this chunk goes; row folds are kept in registers until the end."""
        at = "0"
        for k, i in enumerate(self.folds):
            self.line(f"%fold{k} = getelementptr i8, ptr %partial, i64 {at}")
            width = i.dtype.itemsize
            count = "%ncols" if i.level == "cell" else "1"
            size = self.code.emit(f"mul i64 {count}, {width}")
            aligned = self.code.emit(f"add i64 {size}, 63")
            rounded = self.code.emit(f"and i64 {aligned}, -64")
            at = self.code.emit(f"add i64 {at}, {rounded}")
            if i.level != "cell":
                none = self.code.constant(identity(kind_of(i), i.dtype), i.dtype)
                for name in (f"%acc{k}", f"%total{k}")[: 1 + in_blocks(i)]:
                    self.slot(name, i.dtype)
                    self.put(name, none, i.dtype)

    # --- rows ------------------------------------------------------------------------------------

    def rows(self) -> None:
        head, body, done = self.label("row"), self.label("row_body"), self.label("row_done")
        self.head += ["  %row_at = alloca i64", "  %stream_at = alloca i64"]
        self.totals("begin")
        self.line("store i64 %r0, ptr %row_at")
        self.line(f"br label %{head}")
        self.block(head)
        row = self.code.emit("load i64, ptr %row_at")
        more = self.code.emit(f"icmp slt i64 {row}, %r1")
        self.line(f"br i1 {more}, label %{body}, label %{done}")
        self.block(body)
        self.pointers = self.row_pointers(row)
        in_block = self.code.emit(f"and i64 {row}, {ROWS - 1}")
        self.ends_block = self.code.emit(f"icmp eq i64 {in_block}, {ROWS - 1}")
        for stage in range(self.last_stage + 1):
            for i in self.nest.between(stage):
                self.row_instr(i)
            if stage < self.nest.stages:
                self.stage(stage)
        self.totals("add")
        following = self.code.emit(f"add i64 {row}, 1")
        self.line(f"store i64 {following}, ptr %row_at")
        self.line(f"br label %{head}")
        self.block(done)
        self.totals("end")
        for k, i in enumerate(self.folds):
            if i.level != "cell":
                value = self.get(f"%acc{k}", i.dtype)
                if in_blocks(i):
                    value = self.both(i, self.get(f"%total{k}", i.dtype), value)
                self.store_lane(value, f"%fold{k}", i.dtype)

    @property
    def last_stage(self) -> int:
        return max(i.stage for i in self.nest.body)

    def row_pointers(self, row: str) -> list[str]:
        """Per buffer, the address of its first element of this row."""
        places = []
        left = row
        for axis in reversed(range(self.nest.rows)):
            if axis == 0:
                places.append((0, left))
            else:
                places.append((axis, self.code.emit(f"srem i64 {left}, %size{axis}")))
                left = self.code.emit(f"sdiv i64 {left}, %size{axis}")
        pointers = []
        for k, buffer in enumerate(self.buffers):
            offset = "0"
            for axis, place in places:
                if buffer.dims[axis] is not None:
                    step = self.code.emit(f"mul i64 {place}, {self.stride(k, axis)}")
                    offset = self.code.emit(f"add i64 {offset}, {step}")
            base = self.code.emit(f"inttoptr i64 %base{k} to ptr")
            stored = STORED[buffer.dtype]
            pointers.append(self.code.emit(f"getelementptr {stored}, ptr {base}, i64 {offset}"))
        return pointers

    def row_instr(self, i: Instr) -> None:
        if i.op == "store":
            k = len(self.nest.inputs) + i.buffer
            value = self.operand(i.args[0], i.dtype)
            self.store_lane(value, self.pointers[k], self.buffers[k].dtype)
        elif i.op == "fold":
            self.fold_row(i)
        elif i.op == "pick":
            self.pick(i)
        else:
            self.value(i, None, None)


def lanes_for(nest: LoopNest, bits: int) -> int:
    """Lanes of a vector register of `bits` bits, by the widest float the nest computes with."""
    dtypes = {i.dtype for i in nest.body}
    wide = F64 in dtypes or (I64 in dtypes and F32 not in dtypes)
    return bits // (64 if wide else 32)


class _WithNotes(_Emitter):
    """The same code, with the instruction of the nest before what was made of it."""

    def value(self, i: Instr, column: str | None, mask: str | None) -> None:
        self.code.lines += [f"  ; {line}" for line in instr_lines(i)]
        super().value(i, column, mask)
