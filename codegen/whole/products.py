"""Products of matrices, small ones above all.

Each element is added in the order of the terms, by fused multiply-adds, in registers or in memory;
where neither the result nor the second matrix has a full vector of columns, rows are multiplied
with columns in vectors, whose lanes are added at the end. Products that are worth a copy of the
second matrix are a call of the kernel of `matmul`, and large ones of the library's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from gradof import tuning
from gradof.codegen.machine.llvm_types import ELEMENT
from gradof.codegen.matmul.emit import ARGUMENTS
from gradof.codegen.matmul.products import linked, work_of
from gradof.codegen.whole.library_products import LibraryProducts, is_large
from gradof.codegen.whole.nests import aligned
from gradof.codegen.whole.text import Lanes, constant
from gradof.codegen.whole.values import Mem, as_array, in_registers, shape_of, tensor
from gradof.ir.core import Node, Value
from gradof.ir.extent import Extent, ragged, runtime
from gradof.ir.types import I64

_ROWS, _VECTORS = 4, 2  # of the result, in registers at once


class Products(LibraryProducts):
    """Writes products of matrices."""

    def product(self, node: Node) -> None:
        """`mm` and `bmm`; leading dims broadcast."""
        a, b = node.inputs
        shape, dtype = shape_of(node.output), tensor(node.output).dtype
        if in_registers(node):
            self.small_product(node)
            return
        made = self.room(node.output)
        if shape_of(a)[-1] == 0:
            self.fill(constant(0, dtype), made)
            return self.define_mem(node.output, made)
        x, y = self.memory(a), self.memory(b)
        if is_large(a, b):
            self.library_product(x, y, made)
            return self.define_mem(node.output, made)
        if is_called(a, b) and self.call_product(x, y, made):
            return self.define_mem(node.output, made)
        batch = shape[:-2]
        steps = [aligned(replace(m, shape=m.shape[:-2], strides=m.strides[:-2]), batch)
                 for m in (x, y, made)]  # fmt: skip

        def level(d: int, places: Sequence[str]) -> None:
            if d == len(batch):
                self.matrices(*(
                    Mem(p, m.shape[-2:], m.strides[-2:], dtype)
                    for p, m in zip(places, (x, y, made), strict=True)
                ))  # fmt: skip
                return
            self.text.loop(batch[d], lambda i: level(d + 1, [
                self.text.at(p, self.text.times(i, s[d]), dtype)
                for p, s in zip(places, steps, strict=True)
            ]))  # fmt: skip

        if math.prod(shape):
            level(0, [self.pointer(m) for m in (x, y, made)])
        self.define_mem(node.output, made)

    def call_product(self, a: Mem, b: Mem, c: Mem) -> bool:
        """c = a b by the kernel; False where the leading dims are too many for it."""
        work = work_of(as_array(a), as_array(b), self.bits)
        if work is None:
            return False
        text, dtype = self.text, a.dtype
        values: dict[str, int | str] = dict(work.values)
        for name, mem in zip("abc", (a, b, c), strict=True):
            values[name] = text.emit(f"ptrtoint ptr {self.pointer(mem)} to i64")
        arguments = self.new((len(ARGUMENTS),), I64, temporary=True)
        scratch = self.new((-(-work.scratch // dtype.itemsize),), dtype, temporary=True)
        for k, name in enumerate(ARGUMENTS):
            text.store(str(values[name]), text.at(arguments.base, k, I64), I64)
        kernel = linked(dtype, self.bits)
        text.declare(kernel, f"declare void @{kernel}(ptr, i64, i64, i64, i64, ptr, ptr)")
        text.line(f"call void @{kernel}(ptr {arguments.base}, i64 0, i64 {work.pieces}, i64 0, "
                  f"i64 0, ptr {scratch.base}, ptr {scratch.base})")  # fmt: skip
        return True

    def small_product(self, node: Node) -> None:
        """Of numbers in registers."""
        a, b = node.inputs
        (m, n), dtype = shape_of(node.output)[-2:], tensor(node.output).dtype
        inner = shape_of(a)[-1]
        batch = math.prod(shape_of(node.output)[:-2])
        if shape_of(a)[:-2] != shape_of(b)[:-2]:
            raise AssertionError("support lets none through")
        x, y = self.numbers(a, dtype), self.numbers(b, dtype)
        made = []
        for k in range(batch):
            for i in range(m):
                for j in range(n):
                    left = x[(k * m + i) * inner : (k * m + i + 1) * inner]
                    right = [y[(k * inner + q) * n + j] for q in range(inner)]
                    total = constant(0, dtype)
                    for q, pair in enumerate(zip(left, right, strict=True)):
                        total = (self.one.intrinsic("fma", dtype, [*pair, total]) if q
                                 else self.one.binary("fmul", dtype, pair))  # fmt: skip
                    made.append(total)
        self.define_regs(node.output, made)

    def matrices(self, a: Mem, b: Mem, c: Mem) -> None:
        """c = a b, c contiguous; of many terms, sums of some hundred each."""
        (m, inner), n = a.shape, b.shape[1]
        if not isinstance(inner, Extent) and inner > 2 * tuning.MATMUL_TERMS:
            self.in_blocks(a, b, c)
            return
        lanes = self.lanes([a.dtype])
        if n >= lanes:
            self.tiles(a, b if b.strides[1] == 1 else self.in_rows(b), c)
        elif a.strides[1] == 1 and inner >= lanes:
            turned = _turned(b)
            self.dots(a, turned if turned.strides[1] == 1 else self.in_rows(turned), c)
        elif m >= lanes:
            turned = _turned(a)
            turned = turned if turned.strides[1] == 1 else self.in_rows(turned)
            if n == 1:
                self.tiles(_turned(b), turned, _turned(c))
                return
            made = self.new((n, m), a.dtype, temporary=True)
            self.tiles(_turned(b), turned, made)
            self.copy(_turned(made), c)
        else:
            self.single(a, b, c)

    def in_blocks(self, a: Mem, b: Mem, c: Mem) -> None:
        """c = a b, block by block of the terms, whose sums are added: it keeps more digits."""
        text, dtype, size = self.text, a.dtype, tuning.MATMUL_TERMS
        part = self.new(c.shape, dtype, temporary=True)

        def block(first: str, count: int, made: Mem) -> None:
            left = text.at(self.pointer(a), text.times(first, a.strides[1]), dtype)
            right = text.at(self.pointer(b), text.times(first, b.strides[0]), dtype)
            self.matrices(
                Mem(left, (a.shape[0], count), a.strides, dtype),
                Mem(right, (count, b.shape[1]), b.strides, dtype), made,
            )  # fmt: skip

        def add(k: str) -> None:
            at = text.at(self.pointer(c), k, dtype)
            more = text.load(text.at(self.pointer(part), k, dtype), dtype)
            text.store(self.one.binary("fadd", dtype, [text.load(at, dtype), more]), at, dtype)

        def following(first: str, count: int) -> None:
            block(first, count, part)
            text.loop(math.prod(c.shape), add)

        whole, rest = divmod(a.shape[1], size)
        block("0", size, c)
        text.loop(whole - 1, lambda i: following(text.times(text.plus(i, 1), size), size))
        if rest:
            following(str(whole * size), rest)

    def single(self, a: Mem, b: Mem, c: Mem) -> None:
        """One number after the other."""
        text, dtype = self.text, a.dtype

        def cell(i: str, j: str) -> None:
            left = text.at(self.pointer(a), text.times(i, a.strides[0]), dtype)
            right = text.at(self.pointer(b), text.times(j, b.strides[1]), dtype)
            (total,) = self.terms(self.one, a, b, [left], [right])
            at = text.plus(text.times(i, c.strides[0]), text.times(j, c.strides[1]))
            text.store(total, text.at(self.pointer(c), at, dtype), dtype)

        text.loop(a.shape[0], lambda i: text.loop(b.shape[1], lambda j: cell(i, j)))

    def terms(
        self, code: Lanes, a: Mem, b: Mem, left: Sequence[str], right: Sequence[str]
    ) -> list[str]:  # fmt: skip
        """The sums of products of each row from `left` on with each column, or vector of them,
        from `right` on."""
        text, dtype = self.text, a.dtype

        def loaded(k: str) -> list[tuple[str, str]]:
            ones = [
                code.splat(text.load(text.at(p, text.times(k, a.strides[1]), dtype), dtype), dtype)
                for p in left
            ]
            cells = [
                code.load(text.at(p, text.times(k, b.strides[0]), dtype), dtype) for p in right
            ]
            return [(x, y) for x in ones for y in cells]

        def step(i: str, given: list[str]) -> list[str]:
            pairs = loaded(text.plus(i, 1))
            return [code.intrinsic("fma", dtype, [x, y, total])
                    for (x, y), total in zip(pairs, given, strict=True)]  # fmt: skip

        first = [code.binary("fmul", dtype, pair) for pair in loaded("0")]
        if a.shape[1] == 1:
            return first
        kind = code.vector(dtype)
        return text.carried(a.shape[1] - 1, [(kind, x) for x in first], step)

    def tiles(self, a: Mem, b: Mem, c: Mem) -> None:
        """Rows and vectors of columns at once; the columns of b and c follow one another."""
        text, dtype, n = self.text, a.dtype, b.shape[1]
        code = self.code(self.lanes([dtype]))
        vectors = _VECTORS if n >= _VECTORS * code.lanes else 1
        wide = vectors * code.lanes

        def tile(i: str, j: str, rows: int) -> None:
            left = [text.at(self.pointer(a), text.times(text.plus(i, r), a.strides[0]), dtype)
                    for r in range(rows)]  # fmt: skip
            right = [text.at(self.pointer(b), text.plus(j, v * code.lanes), dtype)
                     for v in range(vectors)]  # fmt: skip
            totals = self.terms(code, a, b, left, right)
            for r in range(rows):
                out = text.plus(text.times(text.plus(i, r), c.strides[0]), j)
                for v in range(vectors):
                    at = text.at(self.pointer(c), text.plus(out, v * code.lanes), dtype)
                    code.store(totals[r * vectors + v], at, dtype)

        def columns(k: str) -> None:
            j = text.times(k, wide)
            if ragged(n, wide):
                less = text.emit(f"icmp slt i64 {j}, {n - wide}")
                j = text.emit(f"select i1 {less}, i64 {j}, i64 {n - wide}")
            m = a.shape[0]
            text.loop(m // _ROWS, lambda i: tile(text.times(i, _ROWS), j, _ROWS))
            if isinstance(m, Extent):
                first = m - m % _ROWS
                text.loop(runtime(m % _ROWS), lambda r: tile(text.plus(r, first), j, 1))
            elif m % _ROWS:
                tile(str(m - m % _ROWS), j, m % _ROWS)

        text.loop(-(-n // wide), columns)

    def dots(self, a: Mem, b: Mem, c: Mem) -> None:
        """Rows of a with rows of b, which follow one another."""
        text, dtype, inner = self.text, a.dtype, a.shape[1]
        code = self.code(self.lanes([dtype]))

        def dot(i: str, j: str) -> None:
            left = text.at(self.pointer(a), text.times(i, a.strides[0]), dtype)
            right = text.at(self.pointer(b), text.times(j, b.strides[0]), dtype)

            def pair(some: Lanes, at: str) -> list[str]:
                return [some.load(text.at(p, at, dtype), dtype) for p in (left, right)]

            def step(k: str, given: list[str]) -> list[str]:
                at = text.times(text.plus(k, 1), code.lanes)
                return [code.intrinsic("fma", dtype, [*pair(code, at), given[0]])]

            found = [code.binary("fmul", dtype, pair(code, "0"))]
            if inner >= 2 * code.lanes:
                kind = code.vector(dtype)
                found = text.carried(inner // code.lanes - 1, [(kind, found[0])], step)
            ones = [code.extract(found[0], k, dtype) for k in range(code.lanes)]
            while len(ones) > 1:
                ones = [self.one.binary("fadd", dtype, two)
                        for two in zip(ones[::2], ones[1::2], strict=True)]  # fmt: skip
            total = ones[0]

            def last(k: str, given: Sequence[str]) -> list[str]:
                return [self.one.intrinsic("fma", dtype, [*pair(self.one, k), given[0]])]

            first = inner - inner % code.lanes
            if isinstance(inner, Extent):
                (total,) = text.carried(
                    runtime(inner % code.lanes), [(ELEMENT[dtype], total)],
                    lambda k, given: last(text.plus(k, first), given),
                )  # fmt: skip
            else:
                for k in range(first, inner):
                    (total,) = last(str(k), [total])
            at = text.plus(text.times(i, c.strides[0]), text.times(j, c.strides[1]))
            text.store(total, text.at(self.pointer(c), at, dtype), dtype)

        text.loop(a.shape[0], lambda i: text.loop(b.shape[0], lambda j: dot(i, j)))


def is_called(a: Value, b: Value) -> bool:
    """Whether the product is a call of the kernel, where that can be."""
    (m, k), n = shape_of(a)[-2:], shape_of(b)[-1]
    return m * k * n >= tuning.WHOLE_CALLED and min(m, n) >= tuning.MATMUL_LEAST


def _turned(mem: Mem) -> Mem:
    return replace(mem, shape=mem.shape[::-1], strides=mem.strides[::-1])

