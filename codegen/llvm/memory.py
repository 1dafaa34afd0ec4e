"""Loads and stores of a native kernel: vectors, single elements, gathers, masks.

    x = self.load(pointer, "one", 0, F32, column, mask=None)     # 16 columns from `column` on

Note [Strides of columns]
The one column axis has stride 1 (a vector load), 0 (one element for all lanes) or any other (a
gather); which is known per buffer when the code is made (`Stride`). A `streamed` output has
stride 1, and is written past the cache (Note [Stores past the cache] in `streaming`).

What has half precision in memory is a vector of float32 here: loads widen it, stores narrow it.
"""

from __future__ import annotations

from typing import Literal

from gradof.codegen.llvm.vectors import Vectors
from gradof.codegen.lowering.half import HALVES
from gradof.codegen.machine.llvm_types import ELEMENT, STORED
from gradof.ir.types import BOOL, DType

Stride = Literal["one", "zero", "any", "streamed"]


class Memory:
    """What a kernel reads and writes; the layout of `%args` is told in `emit`."""

    def __init__(self, lanes: int, buffers: int, axes: int) -> None:
        self.lanes = lanes
        self.code = Vectors(lanes)
        self.n_buffers = buffers
        self.axes = axes

    def line(self, text: str) -> None:
        """An instruction without a result."""
        self.code.lines.append(f"  {text}")

    def stride(self, k: int, axis: int) -> str:
        """The stride of a buffer along an axis, in elements."""
        index = self.n_buffers + k * self.axes + axis
        at = self.code.emit(f"getelementptr i64, ptr %args, i64 {index}")
        return self.code.emit(f"load i64, ptr {at}")

    def store_lane(self, value: str, pointer: str, dtype: DType) -> None:
        """One element of a vector whose lanes are equal."""
        if dtype in HALVES:
            bits = self.code.narrowed(value, dtype)
            half = self.code.emit(f"extractelement <{self.lanes} x i16> {bits}, i32 0")
            self.line(f"store i16 {half}, ptr {pointer}")
            return
        lane = self.code.emit(f"extractelement {self.code.vector(dtype)} {value}, i32 0")
        if dtype is BOOL:
            lane = self.code.emit(f"zext i1 {lane} to i8")
        self.line(f"store {STORED[dtype]} {lane}, ptr {pointer}")

    def mask(self, column: str, end: str = "%c1") -> str:
        """Lanes that are columns."""
        left = self.code.emit(f"sub i64 {end}, {column}")
        lanes = "<" + ", ".join(f"i64 {k}" for k in range(self.lanes)) + ">"
        limit = self.splat(left, "i64")
        return self.code.emit(f"icmp slt <{self.lanes} x i64> {lanes}, {limit}")

    def splat(self, scalar: str, kind: str) -> str:
        """A vector of one scalar."""
        v = f"<{self.lanes} x {kind}>"
        one = self.code.emit(f"insertelement {v} poison, {kind} {scalar}, i32 0")
        zeros = f"<{self.lanes} x i32> zeroinitializer"
        return self.code.emit(f"shufflevector {v} {one}, {v} poison, {zeros}")

    def load_one(self, pointer: str, dtype: DType) -> str:
        """One element for all lanes."""
        one = self.code.emit(f"load {STORED[dtype]}, ptr {pointer}")
        if dtype is BOOL:
            one = self.code.emit(f"icmp ne i8 {one}, 0")
        if dtype in HALVES:
            return self.code.widened(self.splat(one, "i16"), dtype)
        return self.splat(one, ELEMENT[dtype])

    def load(
        self, pointer: str, stride: Stride, k: int, dtype: DType, column: str, mask: str | None
    ) -> str:
        """One vector of columns."""
        if stride == "zero":
            return self.load_one(pointer, dtype)
        v, stored = self.code.vector(dtype, stored=True), STORED[dtype]
        if stride == "one":
            at = self.code.emit(f"getelementptr {stored}, ptr {pointer}, i64 {column}")
            if mask is None:
                value = self.code.emit(f"load {v}, ptr {at}, align {dtype.itemsize}")
            else:
                value = self.masked_load(v, at, mask, dtype)
        else:
            places = self.places(pointer, k, stored, column)
            name = f"llvm.masked.gather.{_overload(self.lanes, stored)}.v{self.lanes}p0"
            p, m = f"<{self.lanes} x ptr>", f"<{self.lanes} x i1>"
            self.code.declare(name, f"declare {v} @{name}({p}, i32, {m}, {v})")
            value = self.code.emit(
                f"call {v} @{name}({p} {places}, i32 {dtype.itemsize}, {m} {self.all_or(mask)}, "
                f"{v} zeroinitializer)"
            )
        if dtype is BOOL:
            return self.code.emit(f"icmp ne {v} {value}, zeroinitializer")
        return self.code.widened(value, dtype) if dtype in HALVES else value

    def masked_load(self, v: str, at: str, mask: str, dtype: DType) -> str:
        """A vector of which only some lanes are read."""
        name = f"llvm.masked.load.{_overload(self.lanes, STORED[dtype])}.p0"
        m = f"<{self.lanes} x i1>"
        self.code.declare(name, f"declare {v} @{name}(ptr, i32, {m}, {v})")
        return self.code.emit(
            f"call {v} @{name}(ptr {at}, i32 {dtype.itemsize}, {m} {mask}, {v} zeroinitializer)"
        )

    def all_or(self, mask: str | None) -> str:
        """A mask, of all lanes if there is none."""
        return mask or "<" + ", ".join(["i1 true"] * self.lanes) + ">"

    def places(self, pointer: str, k: int, stored: str, column: str) -> str:
        """The addresses of the lanes."""
        lanes = "<" + ", ".join(f"i64 {n}" for n in range(self.lanes)) + ">"
        v = f"<{self.lanes} x i64>"
        at = self.code.emit(f"add {v} {lanes}, {self.splat(column, 'i64')}")
        step = self.splat(self.stride(k, self.axes - 1), "i64")
        offsets = self.code.emit(f"mul {v} {at}, {step}")
        return self.code.emit(f"getelementptr {stored}, ptr {pointer}, {v} {offsets}")

    def store(
        self, value: str, pointer: str, stride: Stride, k: int, dtype: DType, column: str,
        mask: str | None,
    ) -> None:  # fmt: skip
        """One vector of columns."""
        v, stored = self.code.vector(dtype, stored=True), STORED[dtype]
        if dtype is BOOL:
            value = self.code.emit(f"zext {self.code.vector(BOOL)} {value} to {v}")
        elif dtype in HALVES:
            value = self.code.narrowed(value, dtype)
        if stride in ("one", "streamed"):
            at = self.code.emit(f"getelementptr {stored}, ptr {pointer}, i64 {column}")
            if mask is None and stride == "streamed":
                size = self.lanes * dtype.itemsize
                self.line(f"store {v} {value}, ptr {at}, align {size}, !nontemporal !0")
                return
            if mask is None:
                self.line(f"store {v} {value}, ptr {at}, align {dtype.itemsize}")
                return
            name = f"llvm.masked.store.{_overload(self.lanes, stored)}.p0"
            m = f"<{self.lanes} x i1>"
            self.code.declare(name, f"declare void @{name}({v}, ptr, i32, {m})")
            self.line(f"call void @{name}({v} {value}, ptr {at}, i32 {dtype.itemsize}, {m} {mask})")
            return
        places = self.places(pointer, k, stored, column)
        name = f"llvm.masked.scatter.{_overload(self.lanes, stored)}.v{self.lanes}p0"
        p, m = f"<{self.lanes} x ptr>", f"<{self.lanes} x i1>"
        self.code.declare(name, f"declare void @{name}({v}, {p}, i32, {m})")
        self.line(f"call void @{name}({v} {value}, {p} {places}, i32 {dtype.itemsize}, "
                  f"{m} {self.all_or(mask)})")  # fmt: skip


def _overload(lanes: int, stored: str) -> str:
    return f"v{lanes}{ {'float': 'f32', 'double': 'f64'}.get(stored, stored) }"
