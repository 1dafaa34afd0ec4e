"""Lines of LLVM IR: instructions, blocks and loops, for vectors and for single numbers.

    text = Text()
    code = Lanes(text, 4)                       # vectors of four
    one = Single(text)                          # numbers
    y = one.op("mul", F64, [x, x], [F64, F64], {})
    text.loop(10, lambda i: ...)                # ten times, i the name of the counter

A number on its own has glibc's functions, one that is an element of an array those of libmvec,
whether or not it is computed in a vector: what an element is follows from the size of its array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradof.codegen.llvm.vectors import LIBMVEC, Vectors
from gradof.codegen.machine.llvm_types import ELEMENT, STORED, Instructions
from gradof.ir.extent import Amount, Extent
from gradof.ir.types import BOOL, F32, F64, I32, I64, DType

Body = Callable[[str], None]


class Text(Instructions):
    """Instructions of one function, in order; `block` is the label of the current block."""

    def __init__(self) -> None:
        super().__init__()
        self.block = "entry"

    def label(self, stem: str) -> str:
        """A new label."""
        self.counter += 1
        return f"{stem}{self.counter}"

    def start(self, label: str) -> None:
        """Begin a block."""
        self.lines.append(f"{label}:")
        self.block = label

    def loop(self, count: int | str, body: Body) -> None:
        """The body `count` times; a known count of 0 or 1 is no loop."""
        if count == 0:
            return
        if not isinstance(count, Extent) and count == 1:
            body("0")
            return

        def step(i: str, given: list[str]) -> list[str]:
            body(i)
            return given

        self.carried(count, [], step)

    def carried(
        self, count: int | str, begin: Sequence[tuple[str, str]],
        body: Callable[[str, list[str]], Sequence[str]], going: int | None = None,
    ) -> list[str]:  # fmt: skip
        """The body `count` times, with values in registers that it is given and returns.

        `begin`: type and first value of each. A count that is not known may be 0, and so may one of
        steps that run while the value `going` is true.
        """
        head, done = self.label("loop"), self.label("done")
        before = self.block
        known = isinstance(count, int) and count > 0 and going is None
        self.line(f"br label %{head}")
        self.start(head)
        i, place = self.fresh(), len(self.lines)
        names = [self.fresh() for _ in begin]
        self.lines += [""] * (1 + len(names))
        if not known:
            inside = self.label("inside")
            some = self.emit(f"icmp slt i64 {i}, {count}")
            if going is not None:
                some = self.emit(f"and i1 {some}, {names[going]}")
            self.line(f"br i1 {some}, label %{inside}, label %{done}")
            self.start(inside)
        results = body(i, names)
        following = self.emit(f"add nuw nsw i64 {i}, 1")
        self.lines[place] = f"  {i} = phi i64 [ 0, %{before} ], [ {following}, %{self.block} ]"
        for k, ((kind, first), name, last) in enumerate(zip(begin, names, results, strict=True)):
            self.lines[place + 1 + k] = (
                f"  {name} = phi {kind} [ {first}, %{before} ], [ {last}, %{self.block} ]"
            )
        if known:
            more = self.emit(f"icmp slt i64 {following}, {count}")
            self.line(f"br i1 {more}, label %{head}, label %{done}")
        else:
            self.line(f"br label %{head}")
        self.start(done)
        return list(results) if known else names

    def unless(self, wrong: str, target: str = "fail") -> None:
        """Go to the block where the function fails if a condition holds."""
        on = self.label("on")
        self.line(f"br i1 {wrong}, label %{target}, label %{on}, !prof !0")
        self.start(on)

    def load(self, pointer: str, dtype: DType) -> str:
        """One element."""
        value = self.emit(f"load {STORED[dtype]}, ptr {pointer}")
        return self.emit(f"icmp ne i8 {value}, 0") if dtype is BOOL else value

    def store(self, value: str, pointer: str, dtype: DType) -> None:
        """One element."""
        if dtype is BOOL:
            value = self.emit(f"zext i1 {value} to i8")
        self.line(f"store {STORED[dtype]} {value}, ptr {pointer}")

    def at(self, pointer: str, offset: int | str, dtype: DType) -> str:
        """The address of an element."""
        if offset in (0, "0"):
            return pointer
        return self.emit(f"getelementptr {STORED[dtype]}, ptr {pointer}, i64 {offset}")

    def times(self, i: str, factor: int) -> str:
        """i * factor."""
        if i == "0" or factor == 0:
            return "0"
        return i if factor == 1 else self.emit(f"mul i64 {i}, {factor}")

    def plus(self, a: str, b: str | int) -> str:
        """a + b."""
        if b in (0, "0"):
            return a
        return str(b) if a == "0" else self.emit(f"add i64 {a}, {b}")


class Lanes(Vectors):
    """Vectors that write into a text."""

    def __init__(self, text: Text, lanes: int) -> None:
        super().__init__(lanes)
        self.text, self.lines, self.declared = text, text.lines, text.declared

    def fresh(self) -> str:
        """A new name."""
        return self.text.fresh()

    def constant(self, value: float, dtype: DType) -> str:
        """A vector of one number."""
        if isinstance(value, Amount | Extent):
            return self.splat(constant(value, dtype), dtype)
        return super().constant(value, dtype)

    def splat(self, one: str, dtype: DType) -> str:
        """A vector of one number."""
        v = self.vector(dtype)
        first = self.emit(f"insertelement {v} poison, {ELEMENT[dtype]} {one}, i32 0")
        zeros = f"<{self.lanes} x i32> zeroinitializer"
        return self.emit(f"shufflevector {v} {first}, {v} poison, {zeros}")

    def pack(self, ones: Sequence[str], dtype: DType) -> str:
        """A vector of numbers; lanes that are left have the last one."""
        v, made = self.vector(dtype), "poison"
        for k in range(self.lanes):
            one = ones[min(k, len(ones) - 1)]
            made = self.emit(f"insertelement {v} {made}, {ELEMENT[dtype]} {one}, i32 {k}")
        return made

    def extract(self, vector: str, k: int, dtype: DType) -> str:
        """One lane."""
        return self.emit(f"extractelement {self.vector(dtype)} {vector}, i32 {k}")

    def load(self, pointer: str, dtype: DType) -> str:
        """Elements that follow one another in memory."""
        v = self.vector(dtype, stored=True)
        value = self.emit(f"load {v}, ptr {pointer}, align {dtype.itemsize}")
        return self.emit(f"icmp ne {v} {value}, zeroinitializer") if dtype is BOOL else value

    def store(self, value: str, pointer: str, dtype: DType) -> None:
        """Elements that follow one another in memory."""
        v = self.vector(dtype, stored=True)
        if dtype is BOOL:
            value = self.emit(f"zext {self.vector(BOOL)} {value} to {v}")
        self.text.line(f"store {v} {value}, ptr {pointer}, align {dtype.itemsize}")

    def is_inline(self, op: str, dtype: DType) -> bool:
        """Never: code beside a call is as quick here, and takes longer to compile."""
        return False


class Single(Lanes):
    """Numbers on their own."""

    def __init__(self, text: Text) -> None:
        super().__init__(text, 1)

    def vector(self, dtype: DType, stored: bool = False) -> str:
        """The type of a number."""
        return (STORED if stored else ELEMENT)[dtype]

    def constant(self, value: float, dtype: DType) -> str:
        """A number."""
        return constant(value, dtype)

    def intrinsic(self, name: str, dtype: DType, args: Sequence[str]) -> str:
        """An intrinsic of LLVM."""
        kind = {F32: "f32", F64: "f64", I64: "i64", I32: "i32"}[dtype]
        return self.call(f"llvm.{name}.{kind}", dtype, args)

    def select(self, dtype: DType, mask: str, a: str, b: str) -> str:
        """The text of a choice."""
        v = self.vector(dtype)
        return f"select i1 {mask}, {v} {a}, {v} {b}"

    def library(self, kind: str, dtype: DType, args: Sequence[str]) -> str:
        """A function of glibc."""
        name, _ = LIBMVEC[kind]
        return self.call(name + ("f" if dtype is F32 else ""), dtype, args)

    def splat(self, one: str, dtype: DType) -> str:
        """The number."""
        return one

    def _fmod(self, own: DType, dtype: DType, args: Sequence[str], *_: Any) -> str:
        return self.binary("frem", own, args)


def constant(value: float, dtype: DType) -> str:
    """A number as LLVM writes it, or its name where it follows from lengths."""
    if isinstance(value, Amount) or (isinstance(value, Extent) and dtype.is_float):
        return value.lengths.name(value.form, ELEMENT[dtype])
    if isinstance(value, Extent) and dtype is I64:
        return str(value)
    text = Vectors(1).constant(value, dtype)
    return text[1:-1].split(" ", 1)[1]

