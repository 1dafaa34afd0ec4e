"""Sums, products, extremes and running sums.

Note [Sums of small arrays]
A row is added as numpy adds it: eight sums of every eighth number, added in pairs; of more than
128 numbers, halves. So a sum is the same bits whoever computes it. Sums over leading dims take one
row after the other, as numpy does; of more than 256 rows, sums of 128 rows each, as the error of
one running sum grows with their number (2e-5 of 3 000 numbers in float32).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gradof.codegen.llvm.instructions import identity
from gradof.codegen.llvm.vectors import FLOATS
from gradof.codegen.machine.llvm_types import ELEMENT
from gradof.codegen.whole.pairwise import BLOCK, pairwise_text
from gradof.codegen.whole.text import Lanes, constant
from gradof.codegen.whole.values import Mem, is_small, rows, shape_of, tensor
from gradof.codegen.whole.views import Views
from gradof.ir.core import Node
from gradof.ir.extent import Extent, ragged
from gradof.ir.types import BOOL, F32, F64, I64, DType

WORDS = {
    "sum": "add", "prod": "mul", "amax": "maximum", "amin": "minimum", "any": "logical_or",
    "all": "logical_and",
}  # fmt: skip
_RUNNING = {"cumsum": "add", "cumprod": "mul"}
_LIKE = {"amax": "max", "amin": "min"}


class Reductions(Views):
    """Writes reductions."""

    def reduce(self, node: Node) -> None:
        """A reduction over some dims."""
        (x,) = node.inputs
        dims: Any = node.attrs["dims"]
        shape, dtype = shape_of(x), tensor(x).dtype
        if node.kind in ("any", "all") and dtype is not BOOL:
            raise AssertionError("support lets none through")
        keep = [d for d in range(len(shape)) if d not in dims]
        if is_small(shape):
            self.define_regs(node.output, self.of_registers(node, keep, dims))
            return
        made = self.room(node.output)
        self.reduced(node.kind, self.memory(x), list(dims), made)
        self.define_mem(node.output, made)

    def reduced(self, kind: str, mem: Mem, dims: list[int], made: Mem) -> None:
        """Memory reduced over dims, into contiguous memory; Note [Sums of small arrays]."""
        shape = mem.shape
        step = {d: abs(s) for d, s in enumerate(mem.strides) if shape[d] != 1}
        keep = [d for d in range(len(shape)) if d not in dims]
        nearest = min((step[d] for d in keep if d in step), default=math.inf)
        inner = [d for d in dims if step.get(d, 0) < nearest]
        if any(d in step for d in inner) or not _follow(dims):
            inner = inner if any(d in step for d in inner) else dims
            rest = [d for d in dims if d not in inner]
            inner = sorted(inner, key=lambda d: -step.get(d, 0))
            left = sorted([*keep, *rest])
            order = [*left, *inner]
            source = replace(
                mem, shape=tuple(shape[d] for d in order),
                strides=tuple(mem.strides[d] for d in order),
            )  # fmt: skip
            source = source if source.is_contiguous else self.in_rows(source)
            sizes = tuple(shape[d] for d in left)
            part = self.new(sizes, mem.dtype, temporary=True) if rest else made
            count = math.prod(shape[d] for d in inner)
            self.over_columns(kind, source, math.prod(sizes), count, part)
            if rest:
                self.reduced(kind, part, [left.index(d) for d in rest], made)
            return
        source = mem if mem.is_contiguous else self.in_rows(mem)
        first, last = (min(dims), max(dims)) if dims else (0, -1)
        counts = [math.prod(shape[:first]), math.prod(shape[d] for d in dims),
                  math.prod(shape[last + 1 :])]  # fmt: skip
        self.over_rows(kind, source, counts, made)

    def of_registers(self, node: Node, keep: Sequence[int], dims: Sequence[int]) -> list[str]:
        """A reduction of numbers in registers."""
        (x,) = node.inputs
        shape, dtype = shape_of(x), tensor(x).dtype
        steps, regs = rows(shape), self.numbers(x, dtype)
        results = []
        for start in _places([shape[d] for d in keep], [steps[d] for d in keep]):
            inner = _places([shape[d] for d in dims], [steps[d] for d in dims])
            results.append(self.combined(node.kind, [regs[start + k] for k in inner], dtype))
        return results

    def combined(self, kind: str, ones: Sequence[str], dtype: DType) -> str:
        """Numbers combined in numpy's order."""
        if not ones:
            return constant(nothing(kind, dtype), dtype)

        def both(a: str, b: str) -> str:
            return self.one.op(WORDS[kind], dtype, [a, b], [dtype] * 2, {})

        rest = list(ones)
        total = ""
        if kind == "sum" and dtype in FLOATS and len(ones) >= 8:
            parts = rest[:8]
            whole = len(ones) - len(ones) % 8
            for k in range(8, whole):
                parts[k % 8] = both(parts[k % 8], rest[k])
            while len(parts) > 1:
                parts = [both(a, b) for a, b in zip(parts[::2], parts[1::2], strict=True)]
            total, rest = parts[0], rest[whole:]
        for one in rest:
            total = both(total, one) if total else one
        return total

    def over_columns(self, kind: str, source: Mem, count: int, size: int, made: Mem) -> None:
        """Each row of a contiguous array combined."""
        dtype = source.dtype
        start, out = self.pointer(source), self.pointer(made)
        text = self.text

        def row(i: str) -> None:
            at = text.at(start, text.times(i, size), dtype)
            if size == 0:
                found = constant(nothing(kind, dtype), dtype)
            elif kind == "sum" and dtype in FLOATS:
                found = self.pairwise(at, size, dtype)
            else:
                found = self.folded(kind, at, size, dtype)
            text.store(found, text.at(out, i, dtype), dtype)

        text.loop(count, row)

    def pairwise(self, at: str, size: int, dtype: DType) -> str:
        """A row's sum; Note [Sums of small arrays]."""
        name = f"pairwise_{dtype}"
        self.functions[name] = pairwise_text(name, dtype)
        return self.text.emit(f"call {ELEMENT[dtype]} @{name}(ptr {at}, i64 {size})")

    def folded(self, kind: str, at: str, size: int, dtype: DType) -> str:
        """A row combined in any order: extremes, whole numbers, truth; products one by one."""
        text, word = self.text, WORDS[kind]
        code: Lanes = self.code(self.lanes([dtype]))
        one_by_one = kind == "prod" and dtype in FLOATS
        if isinstance(size, Extent) or size < 2 * code.lanes or one_by_one:
            code = self.one
        first = code.load(at, dtype)

        def step(i: str, given: list[str]) -> list[str]:
            place = text.at(at, text.times(text.plus(i, 1), code.lanes), dtype)
            return [code.op(word, dtype, [given[0], code.load(place, dtype)], [dtype] * 2, {})]

        times = size // code.lanes - 1
        found = first
        if times:
            (found,) = text.carried(times, [(code.vector(dtype), first)], step)
        if code is self.one:
            return found
        ones = [text.load(text.at(at, k, dtype), dtype)
                for k in range(size - size % code.lanes, size)]  # fmt: skip
        return self.combined(kind, [self.halved(word, found, code.lanes, dtype), *ones], dtype)

    def halved(self, word: str, vector: str, lanes: int, dtype: DType) -> str:
        """The lanes of a vector combined, one half with the other."""
        while lanes > 2:
            v, lanes = self.code(lanes).vector(dtype), lanes // 2
            parts = [
                self.text.emit(f"shufflevector {v} {vector}, {v} poison, <{lanes} x i32> <"
                               + ", ".join(f"i32 {start + k}" for k in range(lanes)) + ">")
                for start in (0, lanes)
            ]  # fmt: skip
            vector = self.code(lanes).op(word, dtype, parts, [dtype] * 2, {})
        ones = [self.code(2).extract(vector, k, dtype) for k in range(2)]
        return self.one.op(word, dtype, ones, [dtype] * 2, {})

    def over_rows(self, kind: str, source: Mem, sizes: Sequence[int], made: Mem) -> None:
        """Rows combined, one after the other, cell by cell."""
        outer, count, size = sizes
        dtype, text, word = source.dtype, self.text, WORDS[kind]
        code: Lanes = self.code(self.lanes([dtype]))
        code = self.one if size < code.lanes else code
        if 0 in sizes:
            self.fill(constant(nothing(kind, dtype), dtype), made)
            return

        def both(a: str, b: str) -> str:
            return code.op(word, dtype, [a, b], [dtype] * 2, {})

        def run(start: str, at: str, rows: int) -> str:
            """So many rows, the first at `start`, one after the other."""
            first = code.load(text.at(start, at, dtype), dtype)

            def step(i: str, given: list[str]) -> list[str]:
                place = text.plus(text.times(text.plus(i, 1), size), at)
                return [both(given[0], code.load(text.at(start, place, dtype), dtype))]

            if rows == 1:
                return first
            return text.carried(rows - 1, [(code.vector(dtype), first)], step)[0]

        def column(start: str, out: str, at: str) -> None:
            is_long = kind == "sum" and dtype in FLOATS and not isinstance(count, Extent)
            if not is_long or count <= 2 * BLOCK:
                code.store(run(start, at, count), text.at(out, at, dtype), dtype)
                return

            def following(i: str, given: list[str]) -> list[str]:
                place = text.times(text.plus(i, 1), BLOCK * size)
                return [both(given[0], run(text.at(start, place, dtype), at, BLOCK))]

            blocks = (count - 1) // BLOCK  # and a last one of at least a row
            first = run(start, at, BLOCK)
            (found,) = text.carried(blocks - 1, [(code.vector(dtype), first)], following)
            last = text.at(start, str(blocks * BLOCK * size), dtype)
            found = both(found, run(last, at, count - blocks * BLOCK))
            code.store(found, text.at(out, at, dtype), dtype)

        def block(a: str) -> None:
            start = text.at(self.pointer(source), text.times(a, count * size), dtype)
            out = text.at(self.pointer(made), text.times(a, size), dtype)
            self.columns(size, code, lambda at: column(start, out, at))

        text.loop(outer, block)

    def columns(self, size: int, code: Lanes, body: Any) -> None:
        """The body for each vector of a row; the last one begins earlier where it must."""
        text, lanes = self.text, code.lanes

        def vectors(i: str) -> None:
            at = text.times(i, lanes)
            if ragged(size, lanes):
                last = str(size - lanes)
                less = text.emit(f"icmp slt i64 {at}, {last}")
                at = text.emit(f"select i1 {less}, i64 {at}, i64 {last}")
            body(at)

        text.loop(-(-size // lanes), vectors)

    # --- along a dim -----------------------------------------------------------------------------

    def running(self, node: Node) -> None:
        """Running sums or products along a dim; of float32 in float64, as torch's."""
        (x,) = node.inputs
        dim: Any = node.attrs["dim"]
        source = self.contiguous(x)
        shape, dtype, text = shape_of(x), tensor(x).dtype, self.text
        within, word = F64 if dtype is F32 else dtype, _RUNNING[node.kind]
        made = self.room(node.output)
        size, step = shape[dim], rows(shape)[dim]
        if math.prod(shape) == 0:
            return self.define_mem(node.output, made)

        def exact(number: str) -> str:
            return text.emit(f"fpext float {number} to double") if dtype is F32 else number

        def line(a: str, b: str) -> None:
            at = text.plus(text.times(a, size * step), b)
            start, out = text.at(source.base, at, dtype), text.at(made.base, at, dtype)
            start = text.at(start, source.offset, dtype)
            first = text.load(start, dtype)
            text.store(first, out, dtype)

            def add(i: str, given: list[str]) -> list[str]:
                k = text.times(text.plus(i, 1), step)
                cell = exact(text.load(text.at(start, k, dtype), dtype))
                both = self.one.op(word, within, [given[0], cell], [within] * 2, {})
                found = text.emit(f"fptrunc double {both} to float") if dtype is F32 else both
                text.store(found, text.at(out, k, dtype), dtype)
                return [both]

            if size > 1:
                text.carried(size - 1, [(ELEMENT[within], exact(first))], add)

        text.loop(math.prod(shape[:dim]), lambda a: text.loop(step, lambda b: line(a, b)))
        self.define_mem(node.output, made)

    def argextreme(self, node: Node) -> None:
        """The first place of the largest, or smallest, along a dim; nan is either."""
        (x,) = node.inputs
        dim: Any = node.attrs["dim"]
        source, text = self.contiguous(x), self.text
        shape, dtype = shape_of(x), tensor(x).dtype
        size, step = shape[dim], rows(shape)[dim]
        made = self.room(node.output)
        beyond = "gt" if node.kind == "argmax" else "lt"

        def line(a: str, b: str) -> None:
            start = text.at(self.pointer(source), text.plus(text.times(a, size * step), b), dtype)
            first = text.load(start, dtype)

            def look(i: str, given: list[str]) -> list[str]:
                k = text.plus(i, 1)
                cell = text.load(text.at(start, text.times(k, step), dtype), dtype)
                best, at = given
                better = self.one.op(beyond, BOOL, [cell, best], [dtype] * 2, {})
                if dtype in FLOATS:
                    nan = self.one.op("isnan", BOOL, [cell], [dtype], {})
                    none = self.one.op("isnan", BOOL, [best], [dtype], {})
                    better = text.emit(f"or i1 {better}, {nan}")
                    better = text.emit(f"select i1 {none}, i1 false, i1 {better}")
                return [text.emit(self.one.select(dtype, better, cell, best)),
                        text.emit(self.one.select(I64, better, k, at))]  # fmt: skip

            found = ["", "0"]
            if size > 1:
                found = text.carried(size - 1, [(ELEMENT[dtype], first), ("i64", "0")], look)
            place = text.plus(text.times(a, step), b)
            text.store(found[1], text.at(made.base, place, I64), I64)

        text.loop(math.prod(shape[:dim]), lambda a: text.loop(step, lambda b: line(a, b)))
        self.define_mem(node.output, made)


def _places(sizes: Sequence[int], steps: Sequence[int]) -> list[int]:
    found = [0]
    for n, s in zip(sizes, steps, strict=True):
        found = [o + k * s for o in found for k in range(n)]
    return found


def _follow(dims: Sequence[int]) -> bool:
    return not dims or list(dims) == list(range(dims[0], dims[0] + len(dims)))


def nothing(kind: str, dtype: DType) -> float:
    """What a reduction of no elements is."""
    if kind in ("any", "all"):
        return float(kind == "all")
    if kind == "sum" and dtype in FLOATS:
        return 0.0
    return identity(_LIKE.get(kind, kind), dtype)
