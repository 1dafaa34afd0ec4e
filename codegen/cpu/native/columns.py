"""The loops over the columns of a native kernel, and the values of its instructions.

    stage 0:   for each block of columns, `streams` vectors at a time, then one by one
                   cells; accumulators of each stream += cells
               once more, masked, over what is left
               value of the row = accumulators, their lanes combined

A loop that reduces and is cheap has several streams, because one addition waits for the last: four
sums of every 4th vector take a quarter of the time. Sums are added up in blocks (`BLOCK`), so that
no lane adds more than a few hundred numbers in a row.
"""

from __future__ import annotations

from collections.abc import Sequence

from gradof.codegen.cpu.native.instructions import (
    WORD,
    identity,
    index_of,
    kind_of,
    last_reads,
    lent_outputs,
    meets_nan,
)
from gradof.codegen.cpu.native.memory import Memory, Stride
from gradof.codegen.cpu.native.vectors import CALLS, ELEMENT, FLOATS
from gradof.codegen.loopnest import Instr, LoopNest, Operand
from gradof.errors import CodegenError
from gradof.ir.types import BOOL, I64, DType

BLOCK = 2048  # columns whose sum is made before it is added to the row's
STREAMS = 4
CHEAP = 16  # instructions of a loop that has several streams


class Columns(Memory):
    """Emits the loops of a nest with at most one column axis; `strides` per buffer, of columns."""

    def __init__(self, nest: LoopNest, strides: Sequence[Stride], lanes: int) -> None:
        super().__init__(lanes, len(nest.inputs) + len(nest.outputs), len(nest.sizes))
        self.nest = nest
        self.strides = strides
        self.values: dict[str, str] = {}
        self.made = {i.name: i for i in nest.body if i.name}
        self.made.update((j.name, j) for i in nest.body for j in i.body)
        self.labels = 0
        self.head: list[str] = []  # allocas
        self.pointers: list[str] = []  # per buffer, of this row
        self.folds = [i for i in nest.body if i.op == "fold"]
        self.last_read = last_reads(nest)
        self.lent = lent_outputs(nest, strides, self.last_read)
        self.column: str | None = None
        self.masked: str | None = None

    def label(self, what: str) -> str:
        """A new label."""
        self.labels += 1
        return f"{what}{self.labels}"

    def block(self, label: str) -> None:
        """The beginning of a basic block."""
        self.code.lines.append(f"{label}:")

    def slot(self, name: str, dtype: DType) -> None:
        """A variable that holds a vector."""
        self.head.append(f"  {name} = alloca {self.code.vector(dtype)}, align 64")

    def put(self, name: str, value: str, dtype: DType) -> None:
        """Write a variable."""
        self.line(f"store {self.code.vector(dtype)} {value}, ptr {name}, align 64")

    def get(self, name: str, dtype: DType) -> str:
        """Read a variable."""
        return self.code.emit(f"load {self.code.vector(dtype)}, ptr {name}, align 64")

    # --- loops -----------------------------------------------------------------------------------

    def stage(self, stage: int) -> None:
        """One loop over the columns: full vectors, then one masked vector for the rest."""
        body = self.nest.loop(stage)
        if not body:
            return
        reductions = [i for i in body if i.op == "reduce"]
        streams = STREAMS if self.is_cheap(body) else 1
        for i in reductions:
            self.slot(f"%red_{i.name}", i.dtype)
            self.reset(f"%red_{i.name}", i)
            for k in range(streams):
                self.accumulator(i, k)
        at = f"%col_at{stage}"
        self.head.append(f"  {at} = alloca i64")
        self.line(f"store i64 %c0, ptr {at}")
        width = self.code.emit("sub i64 %c1, %c0")
        end = ""
        for count in dict.fromkeys((streams, 1)):
            end = self.code.emit(f"sdiv i64 {width}, {self.lanes * count}")
            end = self.code.emit(f"mul i64 {end}, {self.lanes * count}")
            end = self.code.emit(f"add i64 %c0, {end}")
            self.vectors(body, stage, at, end, count)
        rest, done = self.label("rest"), self.label("col_done")
        left = self.code.emit(f"icmp slt i64 {end}, %c1")
        self.line(f"br i1 {left}, label %{rest}, label %{done}")
        self.block(rest)
        self.cells(body, stage, end, self.mask(end), 0)
        self.flush(reductions, 1)
        self.line(f"br label %{done}")
        self.block(done)
        for i in reductions:
            self.values[i.name] = self.across(i)

    def is_cheap(self, body: Sequence[Instr]) -> bool:
        """Whether additions wait for one another, and not for what is added."""
        calls = any(i.op in CALLS and not self.code.is_inline(i.op, i.dtype) for i in body)
        return any(i.op == "reduce" for i in body) and len(body) <= CHEAP and not calls

    def vectors(
        self, body: Sequence[Instr], stage: int, at: str, end: str, streams: int
    ) -> None:
        """The columns up to `end`, `streams` vectors at a time, in blocks."""
        reductions = [i for i in body if i.op == "reduce"]
        outer, block, inner, flush, done = map(
            self.label, ("block", "block_body", "col", "flush", "vectors_done")
        )
        self.line(f"br label %{outer}")
        self.block(outer)
        start = self.code.emit(f"load i64, ptr {at}")
        more = self.code.emit(f"icmp slt i64 {start}, {end}")
        self.line(f"br i1 {more}, label %{block}, label %{done}")
        self.block(block)
        far = self.code.emit(f"add i64 {start}, {BLOCK * self.lanes // 16 * streams}")
        near = self.code.emit(f"icmp slt i64 {far}, {end}")
        stop = self.code.emit(f"select i1 {near}, i64 {far}, i64 {end}")
        self.line(f"br label %{inner}")
        self.block(inner)
        column = self.code.emit(f"load i64, ptr {at}")
        for k in range(streams):
            place = self.code.emit(f"add i64 {column}, {k * self.lanes}") if k else column
            self.cells(body, stage, place, None, k)
        following = self.code.emit(f"add i64 {column}, {streams * self.lanes}")
        self.line(f"store i64 {following}, ptr {at}")
        again = self.code.emit(f"icmp slt i64 {following}, {stop}")
        self.line(f"br i1 {again}, label %{inner}, label %{flush}")
        self.block(flush)
        self.flush(reductions, streams)
        self.line(f"br label %{outer}")
        self.block(done)

    def cells(
        self, body: Sequence[Instr], stage: int, column: str, mask: str | None, stream: int
    ) -> None:
        """One vector of columns."""
        outer = dict(self.values)
        self.column, self.masked = column, mask
        for name, last in self.last_read.items():
            if last == stage and name in self.lent:  # before its place is written
                self.values[name] = self.held(name)
        for i in body:
            if i.op == "reduce":
                self.accumulate(i, mask, stream)
            elif i.op == "store":
                k = len(self.nest.inputs) + index_of(i)
                dtype = self.nest.outputs[index_of(i)].dtype  # that of the memory
                value = self.operand(i.args[0], i.dtype)
                self.store(value, self.pointers[k], self.strides[k], k, dtype, column, mask)
            elif i.op == "fold":
                self.fold_cell(i, column, mask)
            else:
                self.value(i, column, mask)
                if i.name in self.nest.held and i.stage == stage:
                    place = self.held_place(i.name)
                    self.store(self.values[i.name], place, "one", -1, i.dtype, column, mask)
        self.values = outer

    # --- reductions ------------------------------------------------------------------------------

    def reset(self, name: str, i: Instr) -> None:
        """A variable to the identity of a reduction."""
        self.put(name, self.code.constant(identity(kind_of(i), i.dtype), i.dtype), i.dtype)

    def accumulator(self, i: Instr, stream: int) -> None:
        """What one stream of a block adds up, and whether a maximum has met nan."""
        name = f"%red{stream}_{i.name}"
        self.slot(name, i.dtype)
        self.reset(name, i)
        if meets_nan(i):
            self.slot(f"{name}_nan", BOOL)
            self.put(f"{name}_nan", self.code.constant(False, BOOL), BOOL)

    def accumulate(self, i: Instr, mask: str | None, stream: int) -> None:
        """One vector into the accumulator of its stream."""
        slot, dtype, kind = f"%red{stream}_{i.name}", i.dtype, kind_of(i)
        value = self.operand(i.args[0], dtype)
        if mask is not None:
            none = self.code.constant(identity(kind, dtype), dtype)
            value = self.code.op("where", dtype, [mask, value, none], [BOOL, dtype, dtype], {})
        old = self.get(slot, dtype)
        if not meets_nan(i):
            self.put(slot, self.code.op(WORD[kind], dtype, [old, value], [dtype] * 2, {}), dtype)
            return
        better = self.code.op("gt" if kind == "max" else "lt", BOOL, [value, old], [dtype] * 2, {})
        chosen = self.code.op("where", dtype, [better, value, old], [BOOL, dtype, dtype], {})
        self.put(slot, chosen, dtype)
        nan = self.code.op("isnan", BOOL, [value], [dtype], {})
        both = [self.get(f"{slot}_nan", BOOL), nan]
        self.put(f"{slot}_nan", self.code.op("logical_or", BOOL, both, [BOOL] * 2, {}), BOOL)

    def flush(self, reductions: Sequence[Instr], streams: int) -> None:
        """The block's accumulators into the row's."""
        for i in reductions:
            word, dtype = WORD[kind_of(i)], i.dtype
            parts = [self.block_result(i, k) for k in range(streams)]
            while len(parts) > 1:
                pairs = zip(parts[::2], parts[1::2], strict=True)
                parts = [self.code.op(word, dtype, pair, [dtype] * 2, {}) for pair in pairs]
            both = [self.get(f"%red_{i.name}", dtype), parts[0]]
            self.put(f"%red_{i.name}", self.code.op(word, dtype, both, [dtype] * 2, {}), dtype)
            for k in range(streams):
                self.reset(f"%red{k}_{i.name}", i)

    def block_result(self, i: Instr, stream: int) -> str:
        """The accumulator of a stream; nan where it has met one."""
        name, dtype = f"%red{stream}_{i.name}", i.dtype
        value = self.get(name, dtype)
        if not meets_nan(i):
            return value
        nan = self.code.constant(float("nan"), dtype)
        args = [self.get(f"{name}_nan", BOOL), nan, value]
        return self.code.op("where", dtype, args, [BOOL, dtype, dtype], {})

    def across(self, i: Instr) -> str:
        """The lanes of a reduction combined, in halves, in every lane."""
        dtype, value = i.dtype, self.get(f"%red_{i.name}", i.dtype)
        v, step = self.code.vector(dtype), self.lanes // 2
        while step:
            order = ", ".join(f"i32 {k ^ step}" for k in range(self.lanes))
            other = self.code.emit(
                f"shufflevector {v} {value}, {v} poison, <{self.lanes} x i32> <{order}>"
            )
            value = self.code.op(WORD[kind_of(i)], dtype, [value, other], [dtype] * 2, {})
            step //= 2
        return value

    def fold_cell(self, i: Instr, column: str, mask: str | None) -> None:
        """One vector into this chunk's sum over the rows."""
        at, dtype = f"%fold{self.folds.index(i)}", i.dtype
        old = self.load(at, "one", -1, dtype, column, mask)
        both = [old, self.operand(i.args[0], dtype)]
        new = self.code.op(WORD[kind_of(i)], dtype, both, [dtype] * 2, {})
        self.store(new, at, "one", -1, dtype, column, mask)

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
        return f"%held_{name}"

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
        k = index_of(i)
        dtype = self.nest.inputs[k].dtype
        if i.level == "once":
            pointer = self.code.emit(f"inttoptr i64 %base{k} to ptr")
            return self.load_one(pointer, dtype)
        if column is None or i.level == "row":
            return self.load_one(self.pointers[k], dtype)
        return self.load(self.pointers[k], self.strides[k], k, dtype, column, mask)
