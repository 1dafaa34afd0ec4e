"""Arrays put together, written into, gathered from and scattered to."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from gradof.codegen.whole.reductions import Reductions
from gradof.codegen.whole.text import constant
from gradof.codegen.whole.values import Held, Mem, in_registers, rows, shape_of, tensor
from gradof.ir.attrs import to_numpy_dtype
from gradof.ir.core import Node, Value
from gradof.ir.extent import runtime
from gradof.ir.types import BOOL, I32, I64

INTO = frozenset({"slice_scatter", "index_add", "scatter", "scatter_add"})  # the first operand
MOVES = frozenset({"cat", "slice_scatter", "unslice", "pad", "tril", "triu"})


class Indexing(Reductions):
    """Writes what moves elements."""

    dying: frozenset[Value] = frozenset()  # values that nothing reads after this step

    # --- fixed places ----------------------------------------------------------------------------

    def move(self, node: Node) -> None:
        """Elements of the operands, each in its place, and zeros."""
        if in_registers(node):
            self.moved_registers(node)
            return
        shape, dtype = shape_of(node.output), tensor(node.output).dtype
        attrs: Any = node.attrs
        if node.kind in ("tril", "triu"):
            self.triangle(node)
            return
        if node.kind == "slice_scatter":
            made = self.taken(node)
            self.write(node.inputs[1], part(made, **attrs))
        else:
            made = self.room(node.output)
        if node.kind == "cat":
            at = 0
            for v in node.inputs:
                n = shape_of(v)[attrs["dim"]]
                self.write(v, part(made, attrs["dim"], at, at + n, 1))
                at += n
        elif node.kind == "unslice":
            where = {k: attrs[k] for k in ("dim", "start", "stop", "step")}
            if math.prod(shape_of(node.inputs[0])) != math.prod(shape):
                self.fill(constant(0, dtype), made)
            self.write(node.inputs[0], part(made, **where))
        elif node.kind == "pad":
            self.fill(constant(attrs["value"], dtype), made)
            inside = made
            for dim, (low, high) in enumerate(attrs["pads"]):
                inside = part(inside, dim, low, shape[dim] - high, 1)
            self.write(node.inputs[0], inside)
        self.define_mem(node.output, made)

    def moved_registers(self, node: Node) -> None:
        """The same of registers: which of them is where."""
        dtype = tensor(node.output).dtype
        regs: list[str] = []
        places = []
        for v in node.inputs:
            mine = self.numbers(v, dtype)
            places.append(np.arange(len(regs), len(regs) + len(mine)).reshape(shape_of(v)))
            regs += mine
        regs.append(constant(node.attrs.get("value", 0), dtype))  # type: ignore[arg-type]
        where = _MOVES[node.kind](places, len(regs) - 1, node.attrs)
        self.define_regs(node.output, [regs[k] for k in where.ravel().tolist()])

    def triangle(self, node: Node) -> None:
        """A matrix without what is above, or below, a diagonal."""
        shape, dtype = shape_of(node.output), tensor(node.output).dtype
        ones = np.ones(shape[-2:], to_numpy_dtype(dtype))
        mask: Any = _MOVES[node.kind]([ones], 0, node.attrs)
        bits = np.where(mask, -1, 0).astype("i8" if dtype.itemsize == 8 else "i4")
        at = self.constant_at(np.ascontiguousarray(bits).tobytes())
        base = self.text.emit(f"getelementptr i8, ptr %constants, i64 {at}")
        whole = I64 if dtype.itemsize == 8 else I32
        kept = Mem(base, shape[-2:], rows(shape[-2:]), whole)
        made = self.room(node.output)
        zero = self.code(self.lanes([dtype])).constant(0, dtype)

        def cells(code: Any, v: list[str]) -> list[str]:
            none = code.constant(0, whole)
            on = code.emit(f"icmp ne {code.vector(whole)} {v[1]}, {none}")
            return [code.emit(code.select(dtype, on, v[0], zero))]

        source = self.memory(node.inputs[0])
        self.nest(shape, [source, kept], [made], self.lanes([dtype]), cells)
        self.define_mem(node.output, made)

    def taken(self, node: Node) -> Mem:
        """Memory with the elements of the first operand, to be written to: its own where nothing
        else reads it."""
        x, others = node.inputs[0], node.inputs[1:]
        held = self.held[x]
        mem = held.mem
        if (
            mem is not None and mem.buffer is not None and mem.buffer.users == 1
            and mem.is_contiguous and x in self.dying and x not in others
            and math.prod(mem.shape) * mem.dtype.itemsize > 0
        ):  # fmt: skip
            return mem
        made = self.room(node.output)
        self.write(x, made)
        return made

    # --- places that are computed ----------------------------------------------------------------

    def in_range(self, node: Node) -> None:
        """Indices, checked."""
        (index,) = node.inputs
        attrs: Any = node.attrs
        dtype, held = tensor(index).dtype, self.held[index]

        def checked(one: str) -> str:
            kind, size = self.one.vector(dtype), attrs["size"]
            if attrs["wraps"]:
                low = self.text.emit(f"icmp slt {kind} {one}, 0")
                more = self.text.emit(f"add {kind} {one}, {size}")
                one = self.text.emit(f"select i1 {low}, {kind} {more}, {kind} {one}")
            self.text.unless(self.text.emit(f"icmp uge {kind} {one}, {size}"))
            return one

        if held.regs is not None:
            self.define_regs(node.output, [checked(one) for one in held.regs])
            return
        if held.uniform is not None:
            one = checked(held.uniform)
            self.define(node.output, Held(held.shape, dtype, None, None, one))
            return
        source, made = self.contiguous(index), self.room(node.output)

        def element(i: str) -> None:
            one = checked(self.text.load(self.text.at(self.pointer(source), i, dtype), dtype))
            self.text.store(one, self.text.at(made.base, i, dtype), dtype)

        self.text.loop(made.size, element)
        self.define_mem(node.output, made)

    def place(self, index: Mem, i: str, size: int) -> str:
        """Index number i, which is in range, or the function fails."""
        one = self.text.load(self.text.at(self.pointer(index), i, index.dtype), index.dtype)
        if index.dtype is I32:
            one = self.text.emit(f"sext i32 {one} to i64")
        self.text.unless(self.text.emit(f"icmp uge i64 {one}, {size}"))
        return one

    def select_rows(self, node: Node) -> None:
        """`index_select` and `index_add`: one index for each slice along a dim."""
        x, index = node.inputs[:2]
        dim: Any = node.attrs["dim"]
        adds = node.kind == "index_add"
        shape, dtype, text = shape_of(x), tensor(x).dtype, self.text
        count, inner = shape_of(index)[0], math.prod(shape[dim + 1 :])
        places = self.contiguous(index)
        if adds:
            made = self.taken(node)
            source = self.contiguous(node.inputs[2])
        else:
            made, source = self.room(node.output), self.contiguous(x)
        there, here = (made, source) if adds else (source, made)
        bases = self.pointer(there), self.pointer(here)

        def one(i: str) -> None:
            k = self.place(places, i, shape[dim])

            def slice_(o: str) -> None:
                far = text.times(text.plus(text.times(o, shape[dim]), k), inner)
                near = text.times(text.plus(text.times(o, count), i), inner)
                a = Mem(text.at(bases[0], far, dtype), (inner,), (1,), dtype)
                b = Mem(text.at(bases[1], near, dtype), (inner,), (1,), dtype)
                if adds:
                    self.add_to(a, b)
                else:
                    self.copy(a, b)

            text.loop(math.prod(shape[:dim]), slice_)

        text.loop(count, one)
        self.define_mem(node.output, made)

    def add_to(self, target: Mem, source: Mem) -> None:
        """Elements added to those of memory, each once."""
        dtype = target.dtype
        code = self.code(self.lanes([dtype]))
        rest = target.size % code.lanes
        full = target.size - rest

        def add(code: Any, at: str) -> None:
            place = self.text.at(target.base, at, dtype)
            more = code.load(self.text.at(source.base, at, dtype), dtype)
            cells = [code.load(place, dtype), more]
            code.store(code.op("add", dtype, cells, [dtype] * 2, {}), place, dtype)

        self.text.loop(full // code.lanes, lambda i: add(code, self.text.times(i, code.lanes)))
        count = runtime(rest)
        self.text.loop(count, lambda i: add(self.one, self.text.plus(i, full)))

    def partition(self, node: Node) -> None:
        """A stable partition of booleans, and where each was: a mask selects what is there."""
        (x,), (values, places) = node.inputs, node.outputs
        dim: Any = node.attrs["dim"]
        source, text, shape = self.contiguous(x), self.text, shape_of(x)
        size, step = shape[dim], rows(shape)[dim]
        made, order = self.room(values), self.room(places)
        last = not node.attrs["descending"]  # which of both comes last

        def line(a: str, b: str) -> None:
            begin = text.plus(text.times(a, size * step), b)
            start = text.at(self.pointer(source), begin, BOOL)

            def is_last(i: str) -> str:
                cell = text.load(text.at(start, text.times(i, step), BOOL), BOOL)
                return cell if last else text.emit(f"xor i1 {cell}, true")

            def count(i: str, given: list[str]) -> list[str]:
                one = text.emit(f"zext i1 {is_last(i)} to i64")
                return [text.emit(f"sub i64 {given[0]}, {one}")]

            def place(i: str, given: list[str]) -> list[str]:
                low, high = given
                late = is_last(i)
                k = text.emit(f"select i1 {late}, i64 {high}, i64 {low}")
                at = text.plus(begin, text.times(k, step))
                text.store(i, text.at(self.pointer(order), at, I64), I64)
                cell = late if last else text.emit(f"xor i1 {late}, true")
                text.store(cell, text.at(self.pointer(made), at, BOOL), BOOL)
                one = text.emit(f"zext i1 {late} to i64")
                other = text.emit(f"sub i64 1, {one}")
                return [text.plus(low, other), text.plus(high, one)]

            (first,) = text.carried(size, [("i64", str(size))], count)
            text.carried(size, [("i64", "0"), ("i64", first)], place)

        if math.prod(shape) > 0:
            text.loop(math.prod(shape[:dim]), lambda a: text.loop(step, lambda b: line(a, b)))
        self.define_mem(values, made)
        self.define_mem(places, order)

    def pick(self, node: Node) -> None:
        """`gather`, `scatter` and `scatter_add`: an index for each element."""
        x, index = node.inputs[:2]
        dim: Any = node.attrs["dim"]
        dtype, text, shape = tensor(x).dtype, self.text, shape_of(index)
        places = self.contiguous(index)
        if node.kind == "gather":
            far, near = self.memory(x), self.room(node.output)
        else:
            far = self.taken(node)
            near = self.contiguous(node.inputs[2])
        bases = self.pointer(far), self.pointer(near)

        def element(at: str, others: str) -> None:
            k = self.place(places, at, far.shape[dim])
            there = text.plus(text.times(k, far.strides[dim]), others)
            a, b = text.at(bases[0], there, dtype), text.at(bases[1], at, dtype)
            if node.kind == "gather":
                text.store(text.load(a, dtype), b, dtype)
                return
            value = text.load(b, dtype)
            if node.kind == "scatter_add":
                value = self.one.op("add", dtype, [text.load(a, dtype), value], [dtype] * 2, {})
            text.store(value, a, dtype)

        def level(d: int, at: str, others: str) -> None:
            if d == len(shape):
                element(at, others)
                return
            step, across = rows(shape)[d], 0 if d == dim else far.strides[d]
            text.loop(shape[d], lambda i: level(
                d + 1, text.plus(text.times(i, step), at),
                text.plus(text.times(i, across), others),
            ))  # fmt: skip

        level(0, "0", "0")
        self.define_mem(node.output, near if node.kind == "gather" else far)


def part(mem: Mem, dim: int, start: int, stop: int, step: int) -> Mem:
    """A slice of memory along a dim."""
    shape, strides = list(mem.shape), list(mem.strides)
    offset = mem.offset + start * strides[dim]
    shape[dim], strides[dim] = -(-(stop - start) // step), strides[dim] * step
    return replace(mem, shape=tuple(shape), strides=tuple(strides), offset=offset)


def _inside(where: Any, source: Any, attrs: Any) -> Any:
    places = slice(attrs["start"], attrs["stop"], attrs["step"])
    where[(slice(None),) * attrs["dim"] + (places,)] = source
    return where


def _padded(a: Any, zero: int, attrs: Any) -> Any:
    return np.pad(a[0], attrs["pads"], constant_values=zero)


_MOVES: dict[str, Callable[[Any, int, Any], Any]] = {
    "cat": lambda a, zero, attrs: np.concatenate(a, axis=attrs["dim"]),
    "slice_scatter": lambda a, zero, attrs: _inside(a[0].copy(), a[1], attrs),
    "unslice": lambda a, zero, attrs: _inside(np.full(attrs["shape"], zero), a[0], attrs),
    "pad": _padded,
    "tril": lambda a, zero, attrs: np.where(_lower(a[0], attrs["diagonal"]), a[0], zero),
    "triu": lambda a, zero, attrs: np.where(_lower(a[0], attrs["diagonal"] - 1), zero, a[0]),
}  # fmt: skip


def _lower(a: Any, diagonal: int) -> Any:
    return np.tri(a.shape[-2], a.shape[-1], diagonal, dtype=bool)
