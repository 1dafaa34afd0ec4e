"""The loops over the columns of a native kernel, and the values of its instructions.

    stage 0:   for each block of columns, one vector at a time, or `SUM_STREAMS`
                   cells; accumulators += cells
               once more, masked, over what is left
               value of the row = accumulators, their lanes combined

Sums are added up in several accumulators and in blocks, always in the same order (Note [One order
of adding] in `reductions`), so that no lane adds more than a few hundred numbers in a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gradof import tuning
from gradof.codegen.llvm.instructions import last_reads, lent_outputs
from gradof.codegen.llvm.memory import Stride
from gradof.codegen.llvm.reductions import BLOCK, Reductions
from gradof.codegen.llvm.vectors import FLOATS
from gradof.codegen.loops.ir import Instr, LoopNest, Operand
from gradof.codegen.machine.llvm_types import ELEMENT, STORED
from gradof.errors import CodegenError
from gradof.ir.types import BOOL, I64, DType


class Columns(Reductions):
    """Emits the loops of a nest with at most one column axis, or two: columns in segments.

    `strides` per buffer, of columns.
    """

    def __init__(self, nest: LoopNest, strides: Sequence[Stride], lanes: int) -> None:
        super().__init__(lanes, len(nest.inputs) + len(nest.outputs), len(nest.sizes))
        self.nest = nest
        self.strides = strides
        self.values: dict[str, str] = {}
        self.made = {i.name: i for i in nest.body if i.name}
        self.made.update((j.name, j) for i in nest.body for j in i.body)
        self.pointers: list[str] = []  # per buffer, of this row
        self.folds = [i for i in nest.body if i.op == "fold"]
        self.last_read = last_reads(nest)
        self.lent = lent_outputs(nest, strides, self.last_read)
        self.same: dict[str, str] = {}  # see `once`
        self.segmented = len(nest.sizes) == nest.rows + 2
        self.segment: str | None = None  # the columns before those of the segment
        self.column: str | None = None
        self.masked: str | None = None

    # --- loops -----------------------------------------------------------------------------------

    def stage(self, stage: int) -> None:
        """One loop over the columns: full vectors, then one masked vector for the rest."""
        body = self.nest.loop(stage)
        if not body:
            return
        reductions = [i for i in body if i.op == "reduce"]
        copied = self.is_copied(body)
        self.begin(reductions, copied)
        if self.segmented:
            self.segments(body, stage, reductions, copied)
        else:
            self.columns_of(body, stage, reductions, copied)
            self.flush_rest(reductions)
        for i in reductions:
            self.values[i.name] = self.across(i)

    def segments(
        self, body: Sequence[Instr], stage: int, reductions: Sequence[Instr], copied: bool
    ) -> None:
        """The loop over the segments of a row, each with its own addresses."""
        axis, at = self.nest.rows, f"%segment_at{stage}"
        head, inside, done = map(self.label, ("segment", "segment_body", "segments_done"))
        self.head.append(f"  {at} = alloca i64")
        self.line(f"store i64 0, ptr {at}")
        self.line(f"br label %{head}")
        self.block(head)
        segment = self.code.emit(f"load i64, ptr {at}")
        more = self.code.emit(f"icmp slt i64 {segment}, %size{axis}")
        self.line(f"br i1 {more}, label %{inside}, label %{done}")
        self.block(inside)
        row = self.pointers
        buffers = [*self.nest.inputs, *self.nest.outputs]
        self.pointers = [
            self.moved(pointer, STORED[buffer.dtype], segment, self.stride(k, axis))
            if buffer.dims[axis] is not None else pointer
            for k, (pointer, buffer) in enumerate(zip(row, buffers, strict=True))
        ]  # fmt: skip
        self.segment = segment
        self.columns_of(body, stage, reductions, copied)
        self.flush_rest(reductions)
        for i in reductions:
            self.reset(f"%part0_{i.name}", i)
        self.pointers, self.segment = row, None
        following = self.code.emit(f"add i64 {segment}, 1")
        self.line(f"store i64 {following}, ptr {at}")
        self.line(f"br label %{head}")
        self.block(done)

    def moved(self, pointer: str, kind: str, count: str, step: str) -> str:
        """An address so many steps further."""
        offset = self.code.emit(f"mul i64 {count}, {step}")
        return self.code.emit(f"getelementptr {kind}, ptr {pointer}, i64 {offset}")

    def columns_of(
        self, body: Sequence[Instr], stage: int, reductions: Sequence[Instr], copied: bool
    ) -> None:
        """The columns of a row, or of one of its segments."""
        at = f"%col_at{stage}"
        self.head.append(f"  {at} = alloca i64")
        self.line(f"store i64 %c0, ptr {at}")
        end = self.full(self.lanes)
        if reductions or copied:
            groups = self.full(self.lanes * tuning.SUM_STREAMS)
            self.blocks(body, stage, at, (groups, groups if copied else end))
        if copied or not reductions:
            some, none = self.label("some"), self.label("none")
            start = self.code.emit(f"load i64, ptr {at}")
            more = self.code.emit(f"icmp slt i64 {start}, {end}")
            self.line(f"br i1 {more}, label %{some}, label %{none}")
            self.block(some)
            self.vectors(body, stage, at, end, 1)
            self.line(f"br label %{none}")
            self.block(none)
        rest, done = self.label("rest"), self.label("col_done")
        left = self.code.emit(f"icmp slt i64 {end}, %c1")
        self.line(f"br i1 {left}, label %{rest}, label %{done}")
        self.block(rest)
        self.cells(body, stage, end, self.once("rest", lambda: self.mask(end)), 0)
        self.line(f"br label %{done}")
        self.block(done)

    def full(self, columns: int) -> str:
        """Where the last full group of so many columns ends."""

        def end() -> str:
            width = self.code.emit("sub i64 %c1, %c0")
            count = self.code.emit(f"sdiv i64 {width}, {columns}")
            return self.code.emit(f"add i64 %c0, {self.code.emit(f'mul i64 {count}, {columns}')}")

        return self.once(f"full {columns}", end)

    def stride(self, k: int, axis: int) -> str:
        """The stride of a buffer along an axis, in elements."""
        stride = super().stride
        return self.once(f"stride {k} {axis}", lambda: stride(k, axis))

    def once(self, what: str, make: Callable[[], str]) -> str:
        """A value that is the same for all rows, computed before them."""
        if what not in self.same:
            lines, self.code.lines = self.code.lines, self.head
            try:
                self.same[what] = make()
            finally:
                self.code.lines = lines
        return self.same[what]

    def blocks(
        self, body: Sequence[Instr], stage: int, at: str, ends: tuple[str, str]
    ) -> None:
        """The groups in blocks, after each of which accumulators are flushed, then vectors.

        `ends` is where groups end, and vectors.
        """
        groups, end = ends
        reductions = [i for i in body if i.op == "reduce"]
        outer, block, flush, done = map(
            self.label, ("block", "block_body", "flush", "blocks_done")
        )
        self.line(f"br label %{outer}")
        self.block(outer)
        start = self.code.emit(f"load i64, ptr {at}")
        more = self.code.emit(f"icmp slt i64 {start}, {end}")
        self.line(f"br i1 {more}, label %{block}, label %{done}")
        self.block(block)
        grouped = self.code.emit(f"icmp slt i64 {start}, {groups}")
        last = self.code.emit(f"select i1 {grouped}, i64 {groups}, i64 {end}")
        far = self.code.emit(f"add i64 {start}, {BLOCK * self.lanes}")
        near = self.code.emit(f"icmp slt i64 {far}, {last}")
        stop = self.code.emit(f"select i1 {near}, i64 {far}, i64 {last}")
        self.begin_block(reductions)
        if self.in_registers:
            self.vectors(body, stage, at, stop, tuning.SUM_STREAMS)
        else:
            self.vectors(body, stage, at, stop, 1, grouped)
        self.line(f"br i1 {grouped}, label %{flush}, label %{done}")
        self.block(flush)
        self.flush_groups(reductions)
        self.line(f"br label %{outer}")
        self.block(done)

    def vectors(
        self, body: Sequence[Instr], stage: int, at: str, end: str, streams: int,
        grouped: str | None = None,
    ) -> None:  # fmt: skip
        """The columns up to `end`, of which there are some, so many vectors at a time.

        `grouped` says whether one is to be chosen by the column; see `accumulate_by_index`.
        """
        inner, done = self.label("col"), self.label("vectors_done")
        self.line(f"br label %{inner}")
        self.block(inner)
        column = self.code.emit(f"load i64, ptr {at}")
        if streams == 1:
            self.cells(body, stage, column, None, 0, grouped)
        else:
            self.copies(body, stage, column, streams)
        following = self.code.emit(f"add i64 {column}, {streams * self.lanes}")
        self.line(f"store i64 {following}, ptr {at}")
        again = self.code.emit(f"icmp slt i64 {following}, {end}")
        self.line(f"br i1 {again}, label %{inner}, label %{done}")
        self.block(done)

    def copies(self, body: Sequence[Instr], stage: int, column: str, streams: int) -> None:
        """So many vectors of columns, an instruction of each in turn.

        What waits for a result is then among others that do not, which a processor that looks
        a hundred instructions ahead would not find behind all of one vector's.
        """
        every, before = [], self.code.lines
        for k in range(streams):
            self.code.lines = []
            place = self.code.emit(f"add i64 {column}, {k * self.lanes}")
            self.cells(body, stage, place, None, k)
            every.append(self.code.lines)
        self.code.lines = before
        for lines in zip(*every, strict=True):
            self.code.lines += lines

    def cells(
        self, body: Sequence[Instr], stage: int, column: str, mask: str | None,
        stream: int, grouped: str | None = None,
    ) -> None:  # fmt: skip
        """One vector of columns."""
        outer = dict(self.values)
        self.column, self.masked = column, mask
        for name, last in self.last_read.items():
            if last == stage and name in self.lent:  # before its place is written
                self.values[name] = self.held(name)
        for i in body:
            if i.op == "reduce":
                if grouped is None:
                    self.accumulate(i, mask, stream)
            elif i.op == "store":
                k = len(self.nest.inputs) + i.buffer
                dtype = self.nest.outputs[i.buffer].dtype  # that of the memory
                value = self.operand(i.args[0], i.dtype)
                self.store(value, self.pointers[k], self.strides[k], k, dtype, column, mask)
            elif i.op == "fold":
                self.fold_cell(i, column, mask)
            else:
                self.value(i, column, mask)
                if i.name in self.nest.held and i.stage == stage:
                    place = self.held_place(i.name)
                    self.store(self.values[i.name], place, "one", -1, i.dtype, column, mask)
        if grouped is not None:
            self.accumulate_by_index([i for i in body if i.op == "reduce"], column, grouped)
        self.values = outer

    def pick(self, i: Instr) -> None:
        """The value of one cell of the row, 0 where there is no such cell; see `sparse`."""
        dtype = i.dtype
        place = self.first_lane(self.operand(i.args[0], I64), I64)
        low = self.code.emit(f"icmp sge i64 {place}, %c0")
        high = self.code.emit(f"icmp slt i64 {place}, %c1")
        inside = self.code.emit(f"and i1 {low}, {high}")
        column = self.code.emit(f"select i1 {inside}, i64 {place}, i64 %c0")
        m = f"<{self.lanes} x i1>"
        mask = self.code.emit(f"insertelement {m} zeroinitializer, i1 {inside}, i32 0")
        outer = dict(self.values)
        self.column, self.masked = column, mask
        for j in i.body:
            self.value(j, column, mask)
        value = self.first_lane(self.values[i.body[-1].name], dtype)
        self.values = outer
        kind = ELEMENT[dtype]
        zero = "0.0" if dtype in FLOATS else "0"
        chosen = self.code.emit(f"select i1 {inside}, {kind} {value}, {kind} {zero}")
        self.values[i.name] = self.splat(chosen, kind)

    # --- values ----------------------------------------------------------------------------------

    def operand(self, arg: Operand, dtype: DType) -> str:
        """The vector of an operand."""
        if not isinstance(arg, str):
            return self.code.constant(arg, dtype)
        if arg not in self.values:
            self.values[arg] = self.held(arg)
        return self.values[arg]

    def held(self, name: str) -> str:
        """A cell of an earlier loop, from scratch."""
        assert self.column is not None and name in self.nest.held
        place, dtype = self.held_place(name), self.made[name].dtype
        return self.load(place, "one", -1, dtype, self.column, self.masked)

    def held_place(self, name: str) -> str:
        """Where this row's cells of a held name are."""
        if name in self.lent:
            return self.pointers[len(self.nest.inputs) + self.lent[name]]
        if self.segment is None:
            return f"%held_{name}"
        dtype = self.made[name].dtype
        return self.moved(f"%held_{name}", STORED[dtype], self.segment, f"%size{self.axes - 1}")

    def value(self, i: Instr, column: str | None, mask: str | None) -> None:
        """Compute an instruction."""
        if i.op == "load":
            self.values[i.name] = self.load_instr(i, column, mask)
        elif i.op == "index":
            self.values[i.name] = self.position(column)
        elif column is not None and self.is_hit(i):
            self.values[i.name] = self.hit(i, column)
        else:
            given = [self.dtype(a, i, k) for k, a in enumerate(i.args)]
            args = [self.operand(a, d) for a, d in zip(i.args, given, strict=True)]
            self.values[i.name] = self.code.op(i.op, i.dtype, args, given, i.attrs)

    def dtype(self, arg: Operand, i: Instr, k: int) -> DType:
        """The dtype of an operand; a number has that of the operands beside it."""
        if isinstance(arg, str):
            return self.made[arg].dtype
        if i.op == "where":
            return i.dtype if k else BOOL
        others = [self.made[a].dtype for a in i.args if isinstance(a, str)]
        return others[0] if others else i.dtype

    def position(self, column: str | None) -> str:
        """The columns of the lanes."""
        if column is None:
            raise CodegenError("positions of rows are not native")
        lanes = "<" + ", ".join(f"i64 {k}" for k in range(self.lanes)) + ">"
        return self.code.emit(f"add <{self.lanes} x i64> {lanes}, {self.splat(column, 'i64')}")

    def is_hit(self, i: Instr) -> bool:
        """Whether an instruction compares the column with a number of the row's."""
        if i.op != "eq" or not all(isinstance(a, str) for a in i.args):
            return False
        position, place = (self.made[str(a)] for a in i.args)
        return position.op == "index" and place.level != "cell" and place.dtype is I64

    def hit(self, i: Instr, column: str) -> str:
        """The lane, if any, whose column is the row's number, in 32 bits a lane."""
        place = self.first_lane(self.operand(i.args[1], I64), I64)
        ahead = self.code.emit(f"sub i64 {place}, {column}")
        inside = self.code.emit(f"icmp ult i64 {ahead}, {self.lanes}")
        short = self.code.emit(f"trunc i64 {ahead} to i32")
        lane = self.code.emit(f"select i1 {inside}, i32 {short}, i32 -1")
        lanes = "<" + ", ".join(f"i32 {k}" for k in range(self.lanes)) + ">"
        return self.code.emit(f"icmp eq <{self.lanes} x i32> {self.splat(lane, 'i32')}, {lanes}")

    def first_lane(self, value: str, dtype: DType) -> str:
        """The number of a vector whose lanes are equal."""
        return self.code.emit(f"extractelement {self.code.vector(dtype)} {value}, i32 0")

    def load_instr(self, i: Instr, column: str | None, mask: str | None) -> str:
        """One element, or one vector of columns, of an input."""
        k = i.buffer
        dtype = self.nest.inputs[k].dtype
        if i.level == "once":
            pointer = self.code.emit(f"inttoptr i64 %base{k} to ptr")
            return self.load_one(pointer, dtype)
        if column is None or i.level == "row":
            return self.load_one(self.pointers[k], dtype)
        return self.load(self.pointers[k], self.strides[k], k, dtype, column, mask)
