"""Reductions over the columns of a native kernel, and folds over its rows.

Note [One order of adding]
Vector number v of a row's columns goes to accumulator v % `SUM_STREAMS`. After every BLOCK vectors,
and after the last full group of `SUM_STREAMS`, the accumulators are added in pairs, and that to
the row's result. What is left, the masked rest too, goes to one more and then to the result, whose
lanes are combined in halves. So a sum is the same bits in every kernel, whatever else it computes:
a loss alone, or with its gradients. What differs is where the accumulators are. A short loop waits
for its additions, and one with exponentials for a long chain of instructions; these have a copy of
their body for each accumulator, in a register (`in_registers`; the rest goes to the first, which is
free by then). Any other has them in memory, chosen by an index.

A sum over the rows takes one row after the other, and every ROWS of them what has come together
goes to a total: in one long line of additions, numbers of about one size lose a digit with every
digit of their number.
"""

from __future__ import annotations

from collections.abc import Sequence

from gradof import tuning
from gradof.codegen.llvm.instructions import WORD, identity, kind_of, meets_nan
from gradof.codegen.llvm.memory import Memory
from gradof.codegen.loops.ir import Instr, Operand
from gradof.ir.types import BOOL, DType
from gradof.ops.cost import is_expensive

BLOCK = 128 * tuning.SUM_STREAMS  # vectors whose sum is made before it is added to the row's

ROWS = 256  # whose sum is made before it is added to the total of a chunk


def in_blocks(fold: Instr) -> bool:
    """Whether a fold is a sum that rounds; see Note [One order of adding]."""
    return kind_of(fold) == "sum" and fold.dtype.is_float


class Reductions(Memory):
    """The accumulators of the loop that is emitted, and what is done with them."""

    def __init__(self, lanes: int, buffers: int, axes: int) -> None:
        super().__init__(lanes, buffers, axes)
        self.head: list[str] = []  # before the rows: allocas, and what is the same for all of them
        self.folds: list[Instr] = []
        self.in_registers = False
        self.labels = 0
        self.segmented = False
        self.ends_block = ""  # whether this row is the last of ROWS

    def label(self, what: str) -> str:
        """A new label."""
        self.labels += 1
        return f"{what}{self.labels}"

    def block(self, label: str) -> None:
        """The beginning of a basic block."""
        self.code.lines.append(f"{label}:")

    def operand(self, arg: Operand, dtype: DType) -> str:
        """The vector of an operand."""
        raise NotImplementedError

    def slot(self, name: str, dtype: DType, count: int = 1) -> None:
        """A variable that holds a vector, or several."""
        v = self.code.vector(dtype)
        self.head.append(f"  {name} = alloca {v if count == 1 else f'[{count} x {v}]'}, align 64")

    def put(self, name: str, value: str, dtype: DType) -> None:
        """Write a variable."""
        v = self.code.vector(dtype)
        self.line(f"store {v} {value}, ptr {name}, align {self.alignment(dtype)}")

    def get(self, name: str, dtype: DType) -> str:
        """Read a variable."""
        v = self.code.vector(dtype)
        return self.code.emit(f"load {v}, ptr {name}, align {self.alignment(dtype)}")

    def alignment(self, dtype: DType) -> int:
        """Bytes: one of several variables is aligned to its own size."""
        return 64 if dtype is BOOL else min(64, self.lanes * dtype.itemsize)

    def is_copied(self, body: Sequence[Instr]) -> bool:
        """Whether a loop has a copy of its body for each accumulator."""
        if any(is_expensive(i.op) and not self.code.is_inline(i.op, i.dtype) for i in body):
            return False
        reductions = sum(i.op == "reduce" for i in body)
        straight = sum(is_expensive(i.op) for i in body)
        if not straight:
            return len(body) <= tuning.UNROLL_SHORT * reductions
        vectors = sum(i.op in ("load", "store") and i.level == "cell" for i in body)
        work = len(body) + tuning.UNROLL_INLINE * straight
        return tuning.UNROLL_WORK * vectors <= work <= tuning.UNROLL_LONG

    def begin(self, reductions: Sequence[Instr], copied: bool) -> None:
        """The variables of a loop's reductions."""
        self.in_registers = copied
        streams = range(tuning.SUM_STREAMS if copied else 1)
        for i in reductions:
            for name in (f"%red_{i.name}", *(f"%part{k}_{i.name}" for k in streams)):
                self.slot(name, i.dtype)
            self.reset(f"%red_{i.name}", i)
            self.reset(f"%part0_{i.name}", i)
            if not copied:
                self.slot(f"%parts_{i.name}", i.dtype, tuning.SUM_STREAMS)
            if meets_nan(i):
                for k in streams:
                    self.slot(f"%nan{k}_{i.name}", BOOL)
                    self.put(f"%nan{k}_{i.name}", self.code.constant(False, BOOL), BOOL)

    def begin_block(self, reductions: Sequence[Instr]) -> None:
        """All accumulators to the identity."""
        for i in reductions:
            if self.in_registers:
                for k in range(tuning.SUM_STREAMS):
                    self.reset(f"%part{k}_{i.name}", i)
            else:
                v = self.code.vector(i.dtype)
                one = f"{v} {self.code.constant(identity(kind_of(i), i.dtype), i.dtype)}"
                every = ", ".join([one] * tuning.SUM_STREAMS)
                array = f"[{tuning.SUM_STREAMS} x {v}]"
                self.line(f"store {array} [{every}], ptr %parts_{i.name}, align 64")

    def accumulators(self, i: Instr) -> list[str]:
        """The addresses of the accumulators of groups."""
        if self.in_registers:
            return [f"%part{k}_{i.name}" for k in range(tuning.SUM_STREAMS)]
        v = self.code.vector(i.dtype)
        more = range(1, tuning.SUM_STREAMS)
        others = [self.code.emit(f"getelementptr {v}, ptr %parts_{i.name}, i64 {k}") for k in more]
        return [f"%parts_{i.name}", *others]

    def chosen(self, i: Instr, place: str) -> str:
        """The address of the accumulator in memory of a vector, so many columns from the first."""
        width = self.lanes * i.dtype.itemsize
        offset = self.code.emit(f"mul i64 {place}, {i.dtype.itemsize}")
        offset = self.code.emit(f"and i64 {offset}, {tuning.SUM_STREAMS * width - 1}")
        return self.code.emit(f"getelementptr i8, ptr %parts_{i.name}, i64 {offset}")

    def reset(self, name: str, i: Instr) -> None:
        """A variable to the identity of a reduction."""
        self.put(name, self.code.constant(identity(kind_of(i), i.dtype), i.dtype), i.dtype)

    def accumulate(self, i: Instr, mask: str | None, stream: int) -> None:
        """One vector into an accumulator that has a name."""
        value = self.operand(i.args[0], i.dtype)
        if mask is not None:
            none = self.code.constant(identity(kind_of(i), i.dtype), i.dtype)
            value = self.code.op("where", i.dtype, [mask, value, none], [BOOL, *[i.dtype] * 2], {})
        self.note_nan(i, stream, value)
        self.add_to(i, f"%part{stream}_{i.name}", value)

    def accumulate_by_index(
        self, reductions: Sequence[Instr], column: str, grouped: str
    ) -> None:
        """One vector into an accumulator in memory, where it is in a group."""
        values = [self.operand(i.args[0], i.dtype) for i in reductions]
        for i, value in zip(reductions, values, strict=True):
            self.note_nan(i, 0, value)
        group, single, done = map(self.label, ("group", "single", "accumulated"))
        self.line(f"br i1 {grouped}, label %{group}, label %{single}")
        self.block(group)
        place = self.code.emit(f"sub i64 {column}, %c0")
        for i, value in zip(reductions, values, strict=True):
            self.add_to(i, self.chosen(i, place), value)
        self.line(f"br label %{done}")
        self.block(single)
        for i, value in zip(reductions, values, strict=True):
            self.add_to(i, f"%part0_{i.name}", value)
        self.line(f"br label %{done}")
        self.block(done)

    def add_to(self, i: Instr, name: str, value: str) -> None:
        """A vector to what an accumulator holds."""
        old = self.get(name, i.dtype)
        if meets_nan(i):
            word = "gt" if kind_of(i) == "max" else "lt"
            better = self.code.op(word, BOOL, [value, old], [i.dtype] * 2, {})
            new = self.code.op("where", i.dtype, [better, value, old], [BOOL, *[i.dtype] * 2], {})
        else:
            new = self.both(i, old, value)
        self.put(name, new, i.dtype)

    def note_nan(self, i: Instr, stream: int, value: str) -> None:
        """That a maximum or minimum meets nan in some lanes."""
        if meets_nan(i):
            flags = f"%nan{stream}_{i.name}"
            nan = self.code.op("isnan", BOOL, [value], [i.dtype], {})
            met = self.code.op("logical_or", BOOL, [self.get(flags, BOOL), nan], [BOOL] * 2, {})
            self.put(flags, met, BOOL)

    def flush_groups(self, reductions: Sequence[Instr]) -> None:
        """All accumulators into the row's results, in pairs."""
        for i in reductions:
            places = self.accumulators(i)
            parts = [self.get(at, i.dtype) for at in places]
            if self.in_registers:
                parts = [self.with_nan(i, k, part) for k, part in enumerate(parts)]
            while len(parts) > 1:
                parts = [self.both(i, *pair) for pair in zip(parts[::2], parts[1::2], strict=True)]
            self.add_to_result(i, parts[0])
            self.reset(f"%part0_{i.name}", i)

    def flush_rest(self, reductions: Sequence[Instr]) -> None:
        """What was left after the groups into the row's results."""
        for i in reductions:
            self.add_to_result(i, self.with_nan(i, 0, self.get(f"%part0_{i.name}", i.dtype)))

    def add_to_result(self, i: Instr, value: str) -> None:
        """A part of a row into its result."""
        name = f"%red_{i.name}"
        self.put(name, self.both(i, self.get(name, i.dtype), value), i.dtype)

    def both(self, i: Instr, a: str, b: str) -> str:
        """Two parts of a reduction together."""
        return self.code.op(WORD[kind_of(i)], i.dtype, [a, b], [i.dtype] * 2, {})

    def with_nan(self, i: Instr, stream: int, value: str) -> str:
        """What an accumulator holds, nan where one has been met."""
        if not meets_nan(i):
            return value
        nan = self.code.constant(float("nan"), i.dtype)
        args = [self.get(f"%nan{stream}_{i.name}", BOOL), nan, value]
        return self.code.op("where", i.dtype, args, [BOOL, i.dtype, i.dtype], {})

    def across(self, i: Instr) -> str:
        """The lanes of a reduction combined, in halves, in every lane."""
        dtype, value = i.dtype, self.get(f"%red_{i.name}", i.dtype)
        v, step = self.code.vector(dtype), self.lanes // 2
        while step:
            order = ", ".join(f"i32 {k ^ step}" for k in range(self.lanes))
            other = self.code.emit(
                f"shufflevector {v} {value}, {v} poison, <{self.lanes} x i32> <{order}>"
            )
            value = self.both(i, value, other)
            step //= 2
        return value

    def fold_cell(self, i: Instr, column: str, mask: str | None) -> None:
        """One vector into this chunk's sum over the rows."""
        at, dtype = f"%fold{self.folds.index(i)}", i.dtype
        old = self.load(at, "one", -1, dtype, column, mask)
        new = self.both(i, old, self.operand(i.args[0], dtype))
        self.store(new, at, "one", -1, dtype, column, mask)

    def fold_row(self, i: Instr) -> None:
        """The value of a row into this chunk's sum, by way of that of its block."""
        k = self.folds.index(i)
        new = self.both(i, self.get(f"%acc{k}", i.dtype), self.operand(i.args[0], i.dtype))
        if in_blocks(i):
            v, total = self.code.vector(i.dtype), self.get(f"%total{k}", i.dtype)
            none, ends = self.code.constant(0.0, i.dtype), f"select i1 {self.ends_block}"
            with_block = self.both(i, total, new)
            kept = self.code.emit(f"{ends}, {v} {with_block}, {v} {total}")
            self.put(f"%total{k}", kept, i.dtype)
            new = self.code.emit(f"{ends}, {v} {none}, {v} {new}")
        self.put(f"%acc{k}", new, i.dtype)

    def totals(self, what: str) -> None:
        """The totals of folds of cells: to zero, with a block added to them, and to the folds."""
        folds = [i for i in self.folds if i.level == "cell" and in_blocks(i)]
        if not folds:
            return
        first, last = ("0", "%ncols") if self.segmented else ("%c0", "%c1")
        # none of these may be the name of a variable when it has its number: %total4 is one
        names = ("to_total", "total_of", "total_body", "total_done")
        start, head, body, done = map(self.label, names)
        self.head.append(f"  %at_{start} = alloca i64")
        self.line(f"br i1 {self.ends_block}, label %{start}, label %{done}" if what == "add"
                  else f"br label %{start}")  # fmt: skip
        self.block(start)
        self.line(f"store i64 {first}, ptr %at_{start}")
        self.line(f"br label %{head}")
        self.block(head)
        column = self.code.emit(f"load i64, ptr %at_{start}")
        more = self.code.emit(f"icmp slt i64 {column}, {last}")
        self.line(f"br i1 {more}, label %{body}, label %{done}")
        self.block(body)
        mask = self.mask(column, last)
        for i in folds:
            self._total(i, what, column, mask)
        following = self.code.emit(f"add i64 {column}, {self.lanes}")
        self.line(f"store i64 {following}, ptr %at_{start}")
        self.line(f"br label %{head}")
        self.block(done)

    def _total(self, i: Instr, what: str, column: str, mask: str) -> None:
        k, none = self.folds.index(i), self.code.constant(0.0, i.dtype)
        fold, total = f"%fold{k}", f"%held_total{k}"
        if what == "begin":
            self.store(none, total, "one", -1, i.dtype, column, mask)
            return
        parts = [self.load(at, "one", -1, i.dtype, column, mask) for at in (total, fold)]
        to, emptied = (total, fold) if what == "add" else (fold, total)
        self.store(self.both(i, parts[0], parts[1]), to, "one", -1, i.dtype, column, mask)
        self.store(none, emptied, "one", -1, i.dtype, column, mask)
