"""Loops over arrays in memory, the last axis in vectors.

    self.nest((64, 3), reads=[x, row], writes=[y], lanes=4, body=lambda v: [multiply(*v)])

Neighbouring axes are one where all arrays have them as one. What does not fill the last vector is
computed by one that begins earlier, so no array that is written may be one that is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gradof.codegen.whole.text import Lanes
from gradof.codegen.whole.values import Mem, Shape, Values, rows
from gradof.ir.core import Value
from gradof.ir.extent import ragged
from gradof.ir.types import DType

# Vectors of what is read → vectors of what is written.
Cells = Callable[[Lanes, list[str]], Sequence[str]]
Axis = tuple[int, tuple[int, ...]]  # its size, and its stride in each array


class Nests(Values):
    """Writes loops."""

    def nest(
        self, shape: Shape, reads: Sequence[Mem], writes: Sequence[Mem], lanes: int, body: Cells
    ) -> None:  # fmt: skip
        """See the module docstring; `reads` are broadcast to the shape, `writes` have it."""
        if 0 in shape:
            return
        places = [*reads, *writes]
        axes = merged(shape, [aligned(m, shape) for m in places]) or [(1, (0,) * len(places))]
        code = self.code(lanes)
        fixed = {
            k: code.splat(self.text.load(self.pointer(m), m.dtype), m.dtype)
            for k, m in enumerate(reads) if not any(steps[k] for _, steps in axes)
        }  # fmt: skip
        pointers = ["" if k in fixed else self.pointer(m) for k, m in enumerate(places)]
        _Loops(self, axes, places, len(reads), code, fixed, body).level(0, pointers)

    def copy(self, source: Mem, target: Mem) -> None:
        """Elements of one array into those of another, of the same shape or broadcast to it."""
        lanes = self.lanes([source.dtype])
        self.nest(target.shape, [source], [target], lanes, lambda code, v: v)

    def fill(self, one: str, target: Mem) -> None:
        """One number into all elements."""
        lanes = self.lanes([target.dtype])
        vector = self.code(lanes).splat(one, target.dtype)
        self.nest(target.shape, [], [target], lanes, lambda code, v: [vector])

    def write(self, value: Value, target: Mem) -> None:
        """A value into elements of memory."""
        held = self.held[value]
        if held.regs is not None:
            self.store_all(held.regs, target)
        elif held.uniform is not None:
            self.fill(held.uniform, target)
        else:
            assert held.mem is not None
            self.copy(held.mem, target)

    def contiguous(self, value: Value) -> Mem:
        """A value in memory, its elements following one another."""
        mem = self.memory(value)
        return mem if mem.is_contiguous else self.in_rows(mem)

    def in_rows(self, mem: Mem) -> Mem:
        """A contiguous copy, for this step."""
        made = self.new(mem.shape, mem.dtype, temporary=True)
        self.copy(mem, made)
        return made


class _Loops:
    """The loops of one nest."""

    def __init__(
        self, owner: Nests, axes: Sequence[Axis], places: Sequence[Mem], n_reads: int, code: Lanes,
        fixed: dict[int, str], body: Cells,
    ) -> None:  # fmt: skip
        self.text = owner.text
        self.axes, self.places, self.n_reads = axes, places, n_reads
        self.code, self.fixed, self.body = code, fixed, body

    def level(self, k: int, pointers: Sequence[str]) -> None:
        """The loop over an axis and those within it."""
        size, steps = self.axes[k]
        if k == len(self.axes) - 1:
            self.inner(size, steps, pointers)
            return
        self.text.loop(size, lambda i: self.level(k + 1, [
            p if j in self.fixed else self.moved(p, i, steps[j], self.places[j].dtype)
            for j, p in enumerate(pointers)
        ]))  # fmt: skip

    def moved(self, pointer: str, i: str, step: int, dtype: DType) -> str:
        """An address so many steps further."""
        return self.text.at(pointer, self.text.times(i, step), dtype)

    def inner(self, size: int, steps: Sequence[int], pointers: Sequence[str]) -> None:
        """The last axis: in vectors, or one cell after the other where there is no full one."""
        lanes = self.code.lanes
        if size < lanes:
            self.text.loop(size, lambda i: self.cells(i, steps, pointers, alone=True))
            return

        def vectors(i: str) -> None:
            start = self.text.times(i, lanes)
            if ragged(size, lanes) and size > lanes:
                last = str(size - lanes)
                less = self.text.emit(f"icmp slt i64 {start}, {last}")
                start = self.text.emit(f"select i1 {less}, i64 {start}, i64 {last}")
            self.cells(start, steps, pointers, alone=False)

        self.text.loop(-(-size // lanes), vectors)

    def cells(self, at: str, steps: Sequence[int], pointers: Sequence[str], alone: bool) -> None:
        """The cells from one on, or it alone."""
        given = []
        for j in range(self.n_reads):
            if j in self.fixed:
                given.append(self.fixed[j])
                continue
            place = self.moved(pointers[j], at, steps[j], self.places[j].dtype)
            given.append(self.read(place, 0 if alone else steps[j], self.places[j].dtype))
        results = self.body(self.code, given)
        for j, result in enumerate(results, self.n_reads):
            place = self.moved(pointers[j], at, steps[j], self.places[j].dtype)
            self.put(result, place, steps[j], self.places[j].dtype, alone)

    def read(self, place: str, step: int, dtype: DType) -> str:
        """A vector of cells that are `step` apart."""
        if step == 1:
            return self.code.load(place, dtype)
        if step == 0:
            return self.code.splat(self.text.load(place, dtype), dtype)
        ones = [
            self.text.load(self.text.at(place, k * step, dtype), dtype)
            for k in range(self.code.lanes)
        ]
        return self.code.pack(ones, dtype)

    def put(self, vector: str, place: str, step: int, dtype: DType, alone: bool) -> None:
        """A vector into cells that are `step` apart, or its first lane into one."""
        if step == 1 and not alone:
            self.code.store(vector, place, dtype)
            return
        for k in range(1 if alone else self.code.lanes):
            at = self.text.at(place, k * step, dtype)
            self.text.store(self.code.extract(vector, k, dtype), at, dtype)


def aligned(mem: Mem, shape: Shape) -> list[int]:
    """The strides of an array that is broadcast to a shape."""
    lead = len(shape) - len(mem.shape)
    mine = [0 if n == 1 else s for n, s in zip(mem.shape, mem.strides, strict=True)]
    return [0] * lead + mine


def merged(shape: Shape, strides: Sequence[Sequence[int]]) -> list[Axis]:
    """The axes, without those of size 1, and with those as one that all arrays have as one."""
    axes: list[Axis] = []
    for d, n in enumerate(shape):
        if n == 1:
            continue
        steps = tuple(s[d] for s in strides)
        if axes and all(a == n * b for a, b in zip(axes[-1][1], steps, strict=True)):
            axes[-1] = (axes[-1][0] * n, steps)
        else:
            axes.append((n, steps))
    return axes


def reshaped(shape: Shape, strides: Sequence[int], new: Shape) -> tuple[int, ...] | None:
    """The strides of an array in another shape; None where that takes a copy."""
    if 0 in shape:
        return rows(new)
    axes = [[n, s[0]] for n, s in merged(shape, [strides])]
    made: list[int] = []
    step = 1
    for n in reversed(new):
        if n == 1:
            made.append(step)
            continue
        while axes and axes[-1][0] == 1:
            axes.pop()
        if not axes or axes[-1][0] % n:
            return None
        made.append(axes[-1][1])
        step = axes[-1][1] * n
        axes[-1] = [axes[-1][0] // n, step]
    return tuple(reversed(made))
