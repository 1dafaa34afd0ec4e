"""Large products of matrices, which are calls of torch's own library.

    %h : f32[512,384] = mm(%x, %w)        sgemm_('N', 'T', ...) on the threads that torch has set

Operands may be by rows or by columns, with any distance between; others are copied first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gradof import tuning
from gradof.codegen.lowering.products import float32_library, has_native
from gradof.codegen.machine.blas import AS_IT_IS, ROW_MAJOR, TRANSPOSED, torch_blas
from gradof.codegen.whole.indexing import Indexing
from gradof.codegen.whole.nests import aligned
from gradof.codegen.whole.values import Mem, offsets, shape_of, tensor
from gradof.ir.attrs import to_numpy_dtype
from gradof.ir.core import Node, Value
from gradof.ir.extent import Extent
from gradof.ir.types import F32, I64, DType


def is_large(a: Value, b: Value) -> bool:
    """Whether a product is the library's: it has threads, and loops for all caches."""
    return math.prod(shape_of(a)) * shape_of(b)[-1] > tuning.WHOLE_PRODUCT


def takes_library(node: Node) -> bool:
    """Whether torch's own product would be a call of this library, of sizes that are numbers.

    On AMD's processors other ways are quicker (`codegen.lowering.products`).
    """
    a, b = node.inputs
    if any(isinstance(n, Extent) for n in (*shape_of(a), *shape_of(b))) or has_native():
        return False
    if tensor(a).dtype is F32 and float32_library() != "MKL":
        return False
    return torch_blas() is not None


class LibraryProducts(Indexing):
    """Writes calls of the library."""

    def library_product(self, a: Mem, b: Mem, c: Mem) -> None:
        """c = a b, c contiguous."""
        found = torch_blas()
        assert found is not None  # support lets none through
        batch = c.shape[:-2]
        if math.prod(batch) == 1:
            one = [replace(m, shape=m.shape[-2:], strides=m.strides[-2:]) for m in (a, b, c)]
            self.gemm(found.gemm[a.dtype], *one)
            return
        stacks = []
        for mem in map(self.by_lines, (a, b, c)):
            outer = replace(mem, shape=mem.shape[:-2], strides=mem.strides[:-2])
            strides = (*aligned(outer, batch), *mem.strides[-2:])
            stacks.append(replace(mem, shape=(*batch, *mem.shape[-2:]), strides=strides))
        self.batched(found.batch[a.dtype], stacks, batch)

    def gemm(self, function: int, a: Mem, b: Mem, c: Mem) -> None:
        """By the Fortran interface, for which what is by rows is the transpose: c' = b' a'."""
        a, b = self.by_lines(a), self.by_lines(b)
        (m, k), n = a.shape, b.shape[1]
        (a_turned, lda), (b_turned, ldb) = _lines(a), _lines(b)
        sizes = self.table([n, m, k, ldb, lda, n])
        turned = self.constant_text(b"T" if b_turned else b"N"), self.constant_text(
            b"T" if a_turned else b"N"
        )
        one, zero = self.numbers_of([1, 0], a.dtype)
        pn, pm, pk, pldb, plda, pldc = sizes
        self.call_at(function, [
            *turned, pn, pm, pk, one, self.pointer(b), pldb, self.pointer(a), plda, zero,
            self.pointer(c), pldc,
        ])  # fmt: skip

    def batched(self, function: int, stacks: Sequence[Mem], batch: Sequence[int]) -> None:
        """All matrices of stacks in one call."""
        a, b, _ = stacks
        (m, k), n = a.shape[-2:], b.shape[-1]
        (a_turned, lda), (b_turned, ldb) = (
            _lines(replace(x, shape=x.shape[-2:], strides=x.strides[-2:])) for x in (a, b)
        )
        pm, pn, pk, plda, pldb, pldc = self.table([m, n, k, lda, ldb, n])
        count = math.prod(batch)
        (pcount,) = self.table([count])
        turned = [self.table([TRANSPOSED if t else AS_IT_IS])[0] for t in (a_turned, b_turned)]
        one, zero = self.numbers_of([1, 0], a.dtype)
        pa, pb, pc = (self.addresses(x, batch) for x in stacks)
        self.call_at(function, [
            *turned, pm, pn, pk, one, pa, plda, pb, pldb, zero, pc, pldc,
        ], first=f"i32 {ROW_MAJOR}, ", last=f", i64 1, ptr {pcount}")  # fmt: skip

    def by_lines(self, mem: Mem) -> Mem:
        """The matrices by rows or columns, as they are or as a copy for this step."""
        shape, strides = mem.shape[-2:], mem.strides[-2:]
        plain = replace(mem, shape=shape, strides=strides)
        return mem if _lines(plain)[1] else self.in_rows(mem)

    def addresses(self, stack: Mem, batch: Sequence[int]) -> str:
        """The addresses of all matrices, in memory."""
        text, count = self.text, math.prod(batch)
        places = offsets(stack.shape[: len(batch)], stack.strides[: len(batch)])
        known = self.text.emit(
            f"getelementptr i8, ptr %constants, i64 {self.constant_at(_bytes(places, stack.dtype))}"
        )
        made = self.new((count,), I64, temporary=True)
        first = text.emit(f"ptrtoint ptr {self.pointer(stack)} to i64")

        def each(i: str) -> None:
            offset = text.load(text.at(known, i, I64), I64)
            text.store(text.plus(first, offset), text.at(made.base, i, I64), I64)

        text.loop(count, each)
        return made.base

    # --- what is beside the code -----------------------------------------------------------------

    def table(self, numbers: Sequence[int]) -> list[str]:
        """The addresses of numbers of 64 bits."""
        at = self.constant_at(np.array(numbers, np.int64).tobytes())
        return [self.text.emit(f"getelementptr i8, ptr %constants, i64 {at + 8 * k}")
                for k in range(len(numbers))]  # fmt: skip

    def numbers_of(self, numbers: Sequence[int], dtype: DType) -> list[str]:
        """The addresses of numbers of a dtype."""
        at = self.constant_at(np.array(numbers, to_numpy_dtype(dtype)).tobytes())
        step = dtype.itemsize
        return [self.text.emit(f"getelementptr i8, ptr %constants, i64 {at + step * k}")
                for k in range(len(numbers))]  # fmt: skip

    def constant_text(self, letters: bytes) -> str:
        """The address of letters."""
        return self.text.emit(
            f"getelementptr i8, ptr %constants, i64 {self.constant_at(letters)}"
        )

    def call_at(
        self, function: int, pointers: Sequence[str], first: str = "", last: str = ""
    ) -> None:
        """Call what is at an address of this process, which the code itself does not have."""
        (place,) = self.table([function])
        code = self.text.emit(f"load ptr, ptr {place}")
        given = ", ".join(f"ptr {p}" for p in pointers)
        self.text.line(f"call void {code}({first}{given}{last})")


def _bytes(places: Sequence[int], dtype: DType) -> bytes:
    return (np.array(places, np.int64) * dtype.itemsize).tobytes()


def _lines(mem: Mem) -> tuple[bool, int]:
    """Whether a matrix is by columns, and how far its lines are apart; 0 if they are no lines."""
    pairs = list(zip(mem.shape, mem.strides, strict=True))
    for turned in (False, True):
        (n, far), (m, near) = pairs[::-1] if turned else pairs
        if (near == 1 or m == 1) and (far >= m or n == 1):
            return turned, max(far, m) if n > 1 else m
    return False, 0
