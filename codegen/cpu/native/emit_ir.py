"""Loop nest → LLVM IR.

The kernel is `void kernel(i64* args, i64 r0, i64 r1, i64 c0, i64 c1, i8* scratch, i8* partial)`.
It runs rows r0..r1 and, of each, columns c0..c1. `args` holds the address of every buffer, inputs
first, then per buffer one stride per axis of the nest, in elements, then the sizes of the axes.
Held cells go to `scratch`, a row each; folds to `partial`, which holds this chunk's part of every
fold: one element per column for cells, one for row values.

Every value is a vector (`vectors`), those of rows and of the kernel with equal lanes. The innermost
loop runs over full vectors, and once more, masked, over what is left. Sums over columns are added
up in blocks (`BLOCK`), so that no lane adds more than a few hundred numbers in a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gradof.codegen.cpu.native.memory import Memory, Stride
from gradof.codegen.cpu.native.vectors import FLOATS, STORED
from gradof.codegen.loopnest import Instr, LoopNest, Operand
from gradof.errors import CodegenError
from gradof.ir.types import BOOL, F32, F64, I64, DType

BLOCK = 2048  # columns whose sum is made before it is added to the row's
_IDENTITY = {"sum": 0.0, "prod": 1.0, "max": float("-inf"), "min": float("inf")}
_WORD = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum"}


@dataclass(frozen=True)
class Code:
    """LLVM IR of a kernel, and the layout of what it is given."""

    text: str
    scratch: tuple[tuple[str, int], ...]  # held cell, bytes of an element
    folds: tuple[tuple[int, str, bool], ...]  # output, kind, whether of cells


def emit_ir(nest: LoopNest, strides: Sequence[Stride], lanes: int) -> Code:
    """The kernel of a nest with at most one column axis; `strides` per buffer, of the columns."""
    return _Emitter(nest, strides, lanes).run()


class _Emitter(Memory):
    def __init__(self, nest: LoopNest, strides: Sequence[Stride], lanes: int) -> None:
        super().__init__(lanes, len(nest.inputs) + len(nest.outputs), len(nest.sizes))
        self.nest = nest
        self.strides = strides
        self.values: dict[str, str] = {}
        self.made = {i.name: i for i in nest.body if i.name}
        self.buffers = [*nest.inputs, *nest.outputs]
        self.scratch: list[tuple[str, int]] = []
        self.labels = 0
        self.head: list[str] = []  # allocas

    def label(self, what: str) -> str:
        self.labels += 1
        return f"{what}{self.labels}"

    def block(self, label: str) -> None:
        self.code.lines.append(f"{label}:")

    def run(self) -> Code:
        nest = self.nest
        self.folds = [i for i in nest.body if i.op == "fold"]
        self.scratch = [(n, _width(self.made[n].dtype)) for n in sorted(nest.held)]
        for k in range(len(self.buffers)):
            self.argument(f"%base{k}", k)
        for axis in range(self.axes):
            self.argument(f"%size{axis}", len(self.buffers) * (1 + self.axes) + axis)
        self.line("%ncols = " + (f"add i64 %size{self.axes - 1}, 0" if self.has_columns
                                 else "add i64 0, 1"))  # fmt: skip
        self.scratch_pointers()
        self.partial_pointers()
        for i in nest.once():
            if i.op == "store":  # the same number from every chunk
                k = len(nest.inputs) + _index(i)
                pointer = self.code.emit(f"inttoptr i64 %base{k} to ptr")
                self.store_lane(self.operand(i.args[0], i.dtype), pointer, i.dtype)
            else:
                self.value(i, None, None)
        self.rows()
        self.line("ret void")
        declared = "\n".join(self.code.declared.values())
        body = "\n".join([*self.head, *self.code.lines])
        text = (
            f"{declared}\n\ndefine void @kernel(ptr noalias %args, i64 %r0, i64 %r1, i64 %c0, "
            f"i64 %c1, ptr noalias %scratch, ptr noalias %partial) {{\nentry:\n{body}\n}}\n"
        )
        return Code(text, tuple(self.scratch), tuple(
            (_index(i), str(i.attrs["kind"]), i.level == "cell") for i in self.folds
        ))  # fmt: skip

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
                kind = str(i.attrs["kind"])
                self.slot(f"%acc{k}", i.dtype)
                self.put(f"%acc{k}", self.code.constant(_identity(kind, i.dtype), i.dtype), i.dtype)

    def slot(self, name: str, dtype: DType) -> None:
        self.head.append(f"  {name} = alloca {self.code.vector(dtype)}, align 64")

    def put(self, name: str, value: str, dtype: DType) -> None:
        self.line(f"store {self.code.vector(dtype)} {value}, ptr {name}, align 64")

    def get(self, name: str, dtype: DType) -> str:
        return self.code.emit(f"load {self.code.vector(dtype)}, ptr {name}, align 64")

    # --- rows ------------------------------------------------------------------------------------

    def rows(self) -> None:
        head, body, done = self.label("row"), self.label("row_body"), self.label("row_done")
        self.head.append("  %row_at = alloca i64")
        self.line("store i64 %r0, ptr %row_at")
        self.line(f"br label %{head}")
        self.block(head)
        row = self.code.emit("load i64, ptr %row_at")
        more = self.code.emit(f"icmp slt i64 {row}, %r1")
        self.line(f"br i1 {more}, label %{body}, label %{done}")
        self.block(body)
        self.pointers = self.row_pointers(row)
        for stage in range(self.last_stage + 1):
            for i in self.nest.between(stage):
                self.row_instr(i)
            if stage < self.nest.stages:
                self.stage(stage)
        following = self.code.emit(f"add i64 {row}, 1")
        self.line(f"store i64 {following}, ptr %row_at")
        self.line(f"br label %{head}")
        self.block(done)
        for k, i in enumerate(self.folds):
            if i.level != "cell":
                self.store_lane(self.get(f"%acc{k}", i.dtype), f"%fold{k}", i.dtype)

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
            self.store_lane(self.operand(i.args[0], i.dtype), self.pointer(i), i.dtype)
        elif i.op == "fold":
            k = self.folds.index(i)
            both = [self.get(f"%acc{k}", i.dtype), self.operand(i.args[0], i.dtype)]
            kind = _WORD[str(i.attrs["kind"])]
            self.put(f"%acc{k}", self.code.op(kind, i.dtype, both, [i.dtype] * 2, {}), i.dtype)
        else:
            self.value(i, None, None)

    def pointer(self, i: Instr) -> str:
        k = _index(i)
        return self.pointers[k if i.op == "load" else len(self.nest.inputs) + k]

    # --- columns ---------------------------------------------------------------------------------

    def stage(self, stage: int) -> None:
        """One loop over the columns: full vectors, then one masked vector for the rest."""
        body = self.nest.loop(stage)
        if not body:
            return
        reductions = [i for i in body if i.op == "reduce"]
        for i in reductions:
            name = f"%red_{i.name}"
            for each in (name, f"{name}_block"):
                self.slot(each, i.dtype)
            self.put(name, self.code.constant(_identity(_kind(i), i.dtype), i.dtype), i.dtype)
            self.put(f"{name}_block", self.code.constant(_identity(_kind(i), i.dtype), i.dtype),
                     i.dtype)  # fmt: skip
        at = f"%col_at{stage}"
        self.head.append(f"  {at} = alloca i64")
        self.line(f"store i64 %c0, ptr {at}")
        outer, block, inner, tail, rest, done = map(
            self.label, ("block", "block_body", "col", "tail", "rest", "col_done")
        )
        width = self.code.emit("sub i64 %c1, %c0")
        whole = self.code.emit(f"sdiv i64 {width}, {self.lanes}")
        whole = self.code.emit(f"mul i64 {whole}, {self.lanes}")
        end = self.code.emit(f"add i64 %c0, {whole}")
        self.line(f"br label %{outer}")
        self.block(outer)
        start = self.code.emit(f"load i64, ptr {at}")
        more = self.code.emit(f"icmp slt i64 {start}, {end}")
        self.line(f"br i1 {more}, label %{block}, label %{tail}")
        self.block(block)
        far = self.code.emit(f"add i64 {start}, {BLOCK * self.lanes // 16}")
        near = self.code.emit(f"icmp slt i64 {far}, {end}")
        stop = self.code.emit(f"select i1 {near}, i64 {far}, i64 {end}")
        self.line(f"br label %{inner}")
        self.block(inner)
        column = self.code.emit(f"load i64, ptr {at}")
        self.cells(body, stage, column, None)
        following = self.code.emit(f"add i64 {column}, {self.lanes}")
        self.line(f"store i64 {following}, ptr {at}")
        again = self.code.emit(f"icmp slt i64 {following}, {stop}")
        flush = self.label("flush")
        self.line(f"br i1 {again}, label %{inner}, label %{flush}")
        self.block(flush)
        self.flush(reductions)
        self.line(f"br label %{outer}")
        self.block(tail)
        left = self.code.emit(f"icmp slt i64 {end}, %c1")
        self.line(f"br i1 {left}, label %{rest}, label %{done}")
        self.block(rest)
        self.cells(body, stage, end, self.mask(end))
        self.flush(reductions)
        self.line(f"br label %{done}")
        self.block(done)
        for i in reductions:
            self.values[i.name] = self.across(i)

    def flush(self, reductions: Sequence[Instr]) -> None:
        """The block's accumulators into the row's."""
        for i in reductions:
            name, word = f"%red_{i.name}", _WORD[_kind(i)]
            both = [self.get(name, i.dtype), self.get(f"{name}_block", i.dtype)]
            self.put(name, self.code.op(word, i.dtype, both, [i.dtype] * 2, {}), i.dtype)
            self.put(f"{name}_block", self.code.constant(_identity(_kind(i), i.dtype), i.dtype),
                     i.dtype)  # fmt: skip

    def cells(self, body: Sequence[Instr], stage: int, column: str, mask: str | None) -> None:
        outer = dict(self.values)
        self.column, self.masked = column, mask
        for i in body:
            if i.op == "reduce":
                self.accumulate(i, mask)
            elif i.op == "store":
                k = len(self.nest.inputs) + _index(i)
                value = self.operand(i.args[0], i.dtype)
                self.store(value, self.pointers[k], self.strides[k], k, i.dtype, column, mask)
            elif i.op == "fold":
                self.fold_cell(i, column, mask)
            else:
                self.value(i, column, mask)
                if i.name in self.nest.held and i.stage == stage:
                    self.store(self.values[i.name], f"%held_{i.name}", "one", -1, i.dtype, column,
                               mask)  # fmt: skip
        self.values = outer

    def accumulate(self, i: Instr, mask: str | None) -> None:
        slot, dtype = f"%red_{i.name}_block", i.dtype
        value = self.operand(i.args[0], dtype)
        if mask is not None:
            none = self.code.constant(_identity(_kind(i), dtype), dtype)
            value = self.code.op("where", dtype, [mask, value, none], [BOOL, dtype, dtype], {})
        both = [self.get(slot, dtype), value]
        self.put(slot, self.code.op(_WORD[_kind(i)], dtype, both, [dtype] * 2, {}), dtype)

    def across(self, i: Instr) -> str:
        """The lanes of a reduction combined, in halves, in every lane."""
        dtype, value = i.dtype, self.get(f"%red_{i.name}", i.dtype)
        v, step = self.code.vector(dtype), self.lanes // 2
        while step:
            order = ", ".join(f"i32 {k ^ step}" for k in range(self.lanes))
            other = self.code.emit(
                f"shufflevector {v} {value}, {v} poison, <{self.lanes} x i32> <{order}>"
            )
            value = self.code.op(_WORD[_kind(i)], dtype, [value, other], [dtype] * 2, {})
            step //= 2
        return value

    def fold_cell(self, i: Instr, column: str, mask: str | None) -> None:
        at, dtype = f"%fold{self.folds.index(i)}", i.dtype
        old = self.load(at, "one", -1, dtype, column, mask)
        both = [old, self.operand(i.args[0], dtype)]
        new = self.code.op(_WORD[_kind(i)], dtype, both, [dtype] * 2, {})
        self.store(new, at, "one", -1, dtype, column, mask)

    # --- values ----------------------------------------------------------------------------------

    def operand(self, arg: Operand, dtype: DType) -> str:
        if not isinstance(arg, str):
            return self.code.constant(arg, dtype)
        if arg not in self.values:
            self.values[arg] = self.held(arg)
        return self.values[arg]

    def held(self, name: str) -> str:
        assert self.column is not None and name in self.nest.held
        return self.load(
            f"%held_{name}", "one", -1, self.made[name].dtype, self.column, self.masked
        )

    column: str | None = None
    masked: str | None = None

    def value(self, i: Instr, column: str | None, mask: str | None) -> None:
        if i.op == "load":
            self.values[i.name] = self.load_instr(i, column, mask)
        elif i.op == "index":
            self.values[i.name] = self.position(i, column)
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

    def position(self, i: Instr, column: str | None) -> str:
        if column is None:
            raise CodegenError("positions of rows are not native")
        lanes = "<" + ", ".join(f"i64 {k}" for k in range(self.lanes)) + ">"
        return self.code.emit(f"add <{self.lanes} x i64> {lanes}, {self.splat(column, 'i64')}")

    def load_instr(self, i: Instr, column: str | None, mask: str | None) -> str:
        k = _index(i)
        if i.level == "once":
            pointer = self.code.emit(f"inttoptr i64 %base{k} to ptr")
            return self.load_one(pointer, i.dtype)
        if column is None:
            return self.load_one(self.pointers[k], i.dtype)
        return self.load(self.pointers[k], self.strides[k], k, i.dtype, column, mask)


def _index(i: Instr) -> int:
    k = i.attrs["buffer"]
    assert isinstance(k, int)
    return k


def _kind(i: Instr) -> str:
    return str(i.attrs["kind"])


def _width(dtype: DType) -> int:
    return dtype.itemsize


def _identity(kind: str, dtype: DType) -> float:
    if dtype in FLOATS or kind in ("sum", "prod"):
        return _IDENTITY[kind]
    low = -(1 << (dtype.bits - 1))
    return low if kind == "max" else -(low + 1)


def lanes_for(nest: LoopNest, bits: int) -> int:
    """Lanes of a vector register of `bits` bits, by the widest float the nest computes with."""
    dtypes = {i.dtype for i in nest.body}
    wide = F64 in dtypes or (I64 in dtypes and F32 not in dtypes)
    return bits // (64 if wide else 32)
