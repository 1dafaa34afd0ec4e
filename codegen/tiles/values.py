"""Where the values of a tile live: in an output, in scratch, or over an operand that dies.

    values = Values(nest, tile)
    values.output(i)              # "out0[start:stop]", where it is stored to an output of its shape
    values.taken(i, dying)        # "s0", a scratch array of its shape and dtype
    values.release(k, i)          # what the k-th instruction reads for the last time is free
    values.source("kernel")       # the function that makes the scratch arrays
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gradof.codegen.loops.ir import Buffer, Instr, LoopNest
from gradof.codegen.loops.passes.restage import reads
from gradof.codegen.lowering.numpy import literal
from gradof.codegen.machine.source import as_tuple
from gradof.codegen.tiles.nest import readers_of, varying


class Values:
    """The memory of a nest's values; `tile(name, buffer)` is the source of a tile of an array."""

    def __init__(self, nest: LoopNest, tile: Callable[[str, Buffer], str]) -> None:
        self.nest = nest
        self.tile = tile
        self.varies = varying(nest)
        self.made = {i.name: i for i in nest.body if i.name}
        self.readers = readers_of(nest)
        self.last = {a: k for k, i in enumerate(nest.body) for a in reads(i)}
        self.holds: dict[str, int] = {}  # value → scratch buffer
        self.in_place: set[tuple[str, int]] = set()  # values their statement wrote to an output
        self.widths: list[int] = []  # bytes of a cell, per scratch buffer
        self.views: list[tuple[int, frozenset[int], str, int]] = []
        self.free: list[int] = []

    def stored(self, i: Instr) -> int | None:
        """The output of its shape that a value is stored to."""
        for s in self.readers.get(i.name, ()):
            if s.op == "store":
                k = s.buffer
                axes = {axis for axis, d in enumerate(self.nest.outputs[k].dims) if d is not None}
                if self.varies[i.name] == axes:
                    return k
        return None

    def output(self, i: Instr) -> str | None:
        """The output a value is to be written to; that of a `place` which alone reads it, too."""
        k = self.stored(i)
        readers = self.readers.get(i.name, [])
        if k is None and len(readers) == 1 and readers[0].op == "place":
            k = self.stored(readers[0]) if readers[0].args[0] == i.name else None
        if k is None:
            return None
        self.in_place.add((i.name, k))
        return self.tile(f"out{k}", self.nest.outputs[k])

    def dying(self, i: Instr, k: int) -> list[str]:
        """The operands in scratch that the k-th instruction is the last to read."""
        names = [a for a in i.args if isinstance(a, str) and a in self.holds]
        return [a for a in names if self.last[a] == k]

    def taken(self, i: Instr, dying: Sequence[str] = ()) -> str:
        """A scratch array: that of an operand of its shape and dtype that dies here, or a free."""
        width = i.dtype.itemsize
        for a in dying:
            if self.made[a].dtype == i.dtype and self.varies[a] == self.varies[i.name]:
                place = self.holds.pop(a)
                break
        else:
            if not self.free:
                self.free.append(len(self.widths))
                self.widths.append(width)
            place = self.free.pop()
        self.widths[place] = max(self.widths[place], width)
        self.holds[i.name] = place
        return self.scratch(i)

    def scratch(self, i: Instr) -> str:
        """The scratch array that holds a value."""
        view = (self.holds[i.name], self.varies[i.name], literal(i.dtype), i.dtype.itemsize)
        if view not in self.views:
            self.views.append(view)
        return f"s{self.views.index(view)}"

    def release(self, k: int, i: Instr) -> None:
        """Frees what the k-th instruction read for the last time, or made for nothing."""
        dead = {a for a in reads(i) if self.last[a] == k}
        if i.name and i.name not in self.last:
            dead.add(i.name)
        self.free += [self.holds.pop(a) for a in sorted(dead) if a in self.holds]

    def source(self, name: str, tensors: Sequence[str]) -> str:
        """The function that makes the scratch arrays of a tile from bytes and its sizes.

        `tensors` are those that torch reads or writes, too: t0 is s0 as a tensor.
        """
        sizes = range(len(self.nest.sizes))
        lines = []
        for k, (place, axes, dtype, width) in enumerate(self.views):
            shape = as_tuple([f"n{k}" if k in axes else "1" for k in sizes])
            count = " * ".join(f"n{k}" for k in sorted(axes)) or "1"
            view = f"scratch[{place}][: {count} * {width}].view({dtype}).reshape({shape})"
            lines.append(f"    s{k} = {view}\n")
        head = ", ".join(["scratch", *(f"n{k}" for k in sizes)])
        result = [f"s{k}" for k in range(len(lines))] + [f"tensor(s{t[1:]})" for t in tensors]
        return f"def {name}_scratch({head}):\n{''.join(lines)}    return {as_tuple(result)}\n\n"
