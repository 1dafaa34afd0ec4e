"""Where the values of a graph are while its function runs.

Of at most `tuning.WHOLE_REGISTERS` elements an array is as many numbers in registers; a larger one
is in memory: an argument's, a result's, or the arena's. A view is the same memory with other
strides, and an array of one number throughout (`uniform`) is that number.

Note [The arena]
Memory is handed out while code is written: a buffer is free again once the last step that reads it,
or a view of it, is written. What a loop reads of what is outside stays until the loop is written.
So the offsets are known, and the arena's size is the most that was ever in use.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gradof import tuning
from gradof.codegen.lowering.scalar import number_of
from gradof.codegen.whole.text import Lanes, Single, Text, constant
from gradof.ir.attrs import to_numpy_dtype
from gradof.ir.core import Node, Value
from gradof.ir.extent import Extent, example
from gradof.ir.types import DType, TensorType

Shape = tuple[int, ...]
LINE = 64  # bytes that buffers are multiples of


@dataclass(eq=False)
class Buffer:
    """A piece of the arena; `users` are the values that are in it."""

    at: int
    size: int
    users: int = 0
    pinned: bool = False  # by a loop that goes on to use it


@dataclass(frozen=True)
class Mem:
    """Elements in memory: the address of the first, and a stride per dim, in elements."""

    base: str
    shape: Shape
    strides: tuple[int, ...]
    dtype: DType
    buffer: Buffer | None = None
    offset: int = 0

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements follow one another."""
        return self.size < 2 or all(
            n == 1 or s == want
            for n, s, want in zip(self.shape, self.strides, rows(self.shape), strict=True)
        )

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


@dataclass
class Held:
    """A value: in registers, in memory, in both, or one number throughout."""

    shape: Shape
    dtype: DType
    regs: list[str] | None = None
    mem: Mem | None = None
    uniform: str | None = None


@dataclass
class Arena:
    """See Note [The arena]."""

    free: list[tuple[int, int]] = field(default_factory=list)  # where, how many bytes
    top: int = 0
    alike: list[tuple[int, Extent]] = field(default_factory=list)  # the same, of extents

    def take(self, size: int) -> Buffer:
        """The smallest free piece that is large enough."""
        size = -(-size // LINE) * LINE
        if isinstance(size, Extent):
            return self.take_extent(size)
        size = max(LINE, size)
        fits = [(n, example(at), k) for k, (at, n) in enumerate(self.free) if n >= size]
        if not fits:
            at, self.top = self.top, self.top + size
            return Buffer(at, size)
        at, n = self.free.pop(min(fits)[2])
        if n > size:
            self.free.append((at + size, n - size))
        return Buffer(at, size)

    def take_extent(self, size: Extent) -> Buffer:
        """A piece whose size follows from lengths: one of the same formula, if it is free."""
        for k, (at, n) in enumerate(self.alike):
            if n.form == size.form:
                del self.alike[k]
                return Buffer(at, size)
        at, self.top = self.top, self.top + size
        return Buffer(at, size)

    def give(self, buffer: Buffer) -> None:
        """The piece, and its free neighbours, as one."""
        at, n = buffer.at, buffer.size
        if isinstance(n, Extent):
            self.alike.append((at, n))
            return
        kept = []
        for other in self.free:
            if follow(other, at) or follow((at, n), other[0]):
                at, n = other[0] if follow(other, at) else at, n + other[1]
            else:
                kept.append(other)
        self.free = [*kept, (at, n)]


def follow(piece: tuple[int, int], at: int) -> bool:
    """Whether a piece ends where the next one begins, whatever the lengths."""
    gap = piece[0] + piece[1] - at
    return not isinstance(gap, Extent) and gap == 0


class Values:
    """The values of the function that is written, and its memory."""

    def __init__(self, vector_bits: int) -> None:
        self.bits = vector_bits
        self.text = Text()
        self.one = Single(self.text)
        self.vectors: dict[int, Lanes] = {}
        self.arena = Arena()
        self.held: dict[Value, Held] = {}
        self.temporaries: list[Buffer] = []
        self.wants_memory: set[Value] = set()  # of those in registers
        self.functions: dict[str, str] = {}  # by name, those that are called
        self.constants: list[bytes] = []
        self.constants_size = 0
        self.homes: dict[Value, Mem] = {}  # of results
        self.kept: list[Any] = []  # what constants have the addresses of

    def lanes(self, dtypes: Sequence[DType]) -> int:
        """Elements of a vector, by the widest number."""
        return self.bits // max(32, *(d.bits for d in dtypes))

    def code(self, lanes: int) -> Lanes:
        """What writes instructions on vectors."""
        if lanes not in self.vectors:
            self.vectors[lanes] = Lanes(self.text, lanes)
        return self.vectors[lanes]

    # --- definitions -----------------------------------------------------------------------------

    def new(self, shape: Shape, dtype: DType, temporary: bool = False) -> Mem:
        """Memory of the arena, contiguous."""
        buffer = self.arena.take(math.prod(shape) * dtype.itemsize)
        if temporary:
            buffer.users += 1
            self.temporaries.append(buffer)
        base = self.text.emit(f"getelementptr i8, ptr %arena, i64 {buffer.at}")
        return Mem(base, shape, rows(shape), dtype, buffer)

    def room(self, value: Value) -> Mem:
        """Memory for a value: a result has its own."""
        home = self.homes.get(value)
        return self.new(shape_of(value), tensor(value).dtype) if home is None else home

    def define(self, value: Value, held: Held) -> None:
        """A value is where `held` says; small ones in memory are loaded, too."""
        buffer = None if held.mem is None else held.mem.buffer
        if buffer is not None:
            buffer.users += 1
        if held.regs is None and held.uniform is None and is_small(held.shape):
            assert held.mem is not None
            held.regs = self.loaded(held.mem)
        wanted = value in self.wants_memory
        if held.regs is not None and buffer is not None and not wanted:
            held.mem = None
            self.let_go(buffer)
        self.held[value] = held
        if wanted and held.mem is None and held.regs is not None:
            held.mem = self.stored(held.regs, held.shape, held.dtype)
            held.mem.buffer.users += 1  # type: ignore[union-attr]  # one of the arena

    def define_regs(self, value: Value, regs: list[str]) -> None:
        """A value in registers."""
        type_ = tensor(value)
        self.define(value, Held(shape_of(value), type_.dtype, regs))

    def define_mem(self, value: Value, mem: Mem) -> None:
        """A value in memory."""
        self.define(value, Held(mem.shape, mem.dtype, mem=mem))

    def forget(self, value: Value) -> None:
        """The value is not read any more."""
        held = self.held.pop(value, None)
        if held is not None and held.mem is not None and held.mem.buffer is not None:
            self.let_go(held.mem.buffer)

    def let_go(self, buffer: Buffer) -> None:
        """One value less is in a buffer."""
        buffer.users -= 1
        if buffer.users == 0 and not buffer.pinned:
            self.arena.give(buffer)

    def end_step(self) -> None:
        """What one step has written for itself is free."""
        for buffer in self.temporaries:
            self.let_go(buffer)
        self.temporaries.clear()

    # --- reads -----------------------------------------------------------------------------------

    def pin(self, mem: Mem) -> Mem:
        """Memory that stays though no value is in it, until `unpin`."""
        assert mem.buffer is not None
        mem.buffer.pinned = True
        return mem

    def unpin(self, mem: Mem) -> None:
        """Memory that is free once no value is in it."""
        assert mem.buffer is not None
        mem.buffer.pinned = False
        if mem.buffer.users == 0:
            self.arena.give(mem.buffer)

    def pointer(self, mem: Mem) -> str:
        """The address of the first element."""
        return self.text.at(mem.base, mem.offset, mem.dtype)

    def loaded(self, mem: Mem) -> list[str]:
        """All elements, in order."""
        return [self.text.load(self.text.at(mem.base, mem.offset + o, mem.dtype), mem.dtype)
                for o in offsets(mem.shape, mem.strides)]  # fmt: skip

    def stored(
        self, regs: Sequence[str], shape: Shape, dtype: DType, temporary: bool = False
    ) -> Mem:  # fmt: skip
        """Registers written to memory."""
        mem = self.new(shape, dtype, temporary)
        self.store_all(regs, mem)
        return mem

    def store_all(self, regs: Sequence[str], mem: Mem) -> None:
        """Registers written to elements of memory."""
        for one, o in zip(regs, offsets(mem.shape, mem.strides), strict=True):
            self.text.store(one, self.text.at(mem.base, mem.offset + o, mem.dtype), mem.dtype)

    def constant_at(self, data: bytes) -> int:
        """The offset at which an array is kept beside the code."""
        at = self.constants_size
        padded = data + bytes(-len(data) % LINE)
        self.constants.append(padded)
        self.constants_size += len(padded)
        return at

    def where(self, value: Value) -> Held:
        """Where a tensor is."""
        return self.held[value]

    def numbers(self, value: Value, dtype: DType) -> list[str]:
        """The registers of a small value, or one of a Python number, which has the dtype then."""
        if is_number(value):
            return [constant(number_of(value), dtype)]
        regs = self.held[value].regs
        assert regs is not None
        return regs

    def memory(self, value: Value) -> Mem:
        """A value in memory, with any strides; what is not there is written."""
        held = self.held[value]
        if held.mem is not None:
            return held.mem
        if held.uniform is not None:
            one = self.stored([held.uniform], (), held.dtype, temporary=True)
            return replace(one, shape=held.shape, strides=(0,) * len(held.shape))
        assert held.regs is not None
        return self.stored(held.regs, held.shape, held.dtype, temporary=True)


def rows(shape: Shape) -> tuple[int, ...]:
    """The strides of a contiguous array."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


def as_array(mem: Mem) -> Any:
    """An array of that shape and these strides, of which nothing is read."""
    dtype = to_numpy_dtype(mem.dtype)
    strides = [s * dtype.itemsize for s in mem.strides]
    return np.lib.stride_tricks.as_strided(np.empty(1, dtype), mem.shape, strides)


def offsets(shape: Shape, strides: Sequence[int]) -> list[int]:
    """The places of all elements, in order."""
    found = [0]
    for n, s in zip(shape, strides, strict=True):
        found = [o + k * s for o in found for k in range(n)]
    return found


def broadcast(shape: Shape, to: Shape) -> list[int]:
    """For each element of an array, which one it is of what is broadcast to it."""
    if shape == to:
        return list(range(math.prod(shape)))
    if math.prod(shape) == 1:
        return [0] * math.prod(to)
    where = np.arange(math.prod(shape)).reshape(shape)
    found: list[int] = np.broadcast_to(where, to).ravel().tolist()
    return found


def is_small(shape: Shape) -> bool:
    """Whether an array is numbers in registers."""
    return math.prod(shape) <= tuning.WHOLE_REGISTERS


def tensor(value: Value) -> TensorType:
    """The type of a value that is a tensor of a known shape."""
    assert isinstance(value.type, TensorType)
    return value.type


def shape_of(value: Value) -> Shape:
    """The shape of a tensor."""
    shape = tensor(value).shape
    assert shape is not None
    return shape


def is_number(value: Value) -> bool:
    """Whether a value is a Python number."""
    return not isinstance(value.type, TensorType)


def in_registers(node: Node) -> bool:
    """Whether a node reads and makes only what is in registers."""
    return all(
        is_number(v) or is_small(shape_of(v)) for v in (*node.inputs, *node.outputs)
    )
