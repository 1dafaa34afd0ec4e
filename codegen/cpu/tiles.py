"""Loop nest → numpy source that runs over tiles of rows, small enough for the cache.

    def kernel(start, stop, s, x, w, y, fold_1):
        x_0 = x[start:stop]
        q = np.square(x_0, out=s[0].view(...))
        r = np.add.reduce(q, axis=(1,), keepdims=True)
        np.multiply(x_0, r, out=y[start:stop])

`x`, `w`, `y` have the axes of the nest, size 1 along those they do not vary with. Cells go to
scratch arrays, reused as values die, or straight into the output they are stored to. Tiles run on
a pool of threads (`threads`), each with its own scratch.

Note [Tiles]
A tile is a range of the nest's first axis: of its first row axis, or of its columns where nothing
but folds reads what is reduced over them. Its size follows from the sizes alone (`CELLS`), so the
order in which partial results are added does not depend on the number of threads.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gradof.codegen.cpu.executable import Executable
from gradof.codegen.cpu.lowering import call, literal, lowering
from gradof.codegen.cpu.threads import run_chunks
from gradof.codegen.loopnest import Instr, LoopNest
from gradof.codegen.run_nest import REDUCE, as_nest, nest_sizes
from gradof.ir.attrs import to_numpy_dtype
from gradof.ops.memory import empty
from gradof.ops.registry import get_op

CELLS = 1 << 17  # of a tile: a dozen f32 buffers of them fit into a core's cache
_UFUNC = {"sum": "np.add", "prod": "np.multiply", "max": "np.maximum", "min": "np.minimum"}


def can_split_columns(nest: LoopNest) -> bool:
    """Whether the nest's columns may be cut: no row value is read before the last of them."""
    reduced = {i.name for i in nest.body if i.op == "reduce"}
    readers = [i for i in nest.body for a in i.args if a in reduced]
    return nest.rows == 0 and all(i.op == "fold" for i in readers)


class TileKernel:
    """A loop nest as a function of arrays; `source` is what runs for each tile. Thread-safe."""

    emitter = "numpy tiles"

    def __init__(self, nest: LoopNest) -> None:
        self.nest = nest
        self.tiled = nest.rows > 0 or can_split_columns(nest)
        emitter = _TileEmitter(_safe_names(nest), self.tiled)
        self.run_once = Executable(f"{nest.name}_once", emitter.once_source(), emitter.namespace())
        self.run_tile = Executable(nest.name, emitter.source(), emitter.namespace())
        self.scratch = emitter.scratch  # bytes of a cell, per buffer
        self.folds = emitter.folds
        self._local = threading.local()

    @property
    def source(self) -> str:
        """The emitted code."""
        return self.run_tile.source

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        """Fresh outputs for arrays in the order of the nest's inputs; floating-point warnings are
        silent, as inf and nan are results."""
        nest = self.nest
        sizes = nest_sizes(nest, arrays)
        inputs = [as_nest(b, a) for b, a in zip(nest.inputs, arrays, strict=True)]
        outputs = [self._empty(k, sizes) for k in range(len(nest.outputs))]
        written = [as_nest(b, a) for b, a in zip(nest.outputs, outputs, strict=True)]
        with np.errstate(all="ignore"):
            once = self.run_once.function(*inputs)
        n = sizes[0] if self.tiled and sizes else 1
        inner = 1
        for size in sizes[1 if self.tiled else 0 :]:
            inner *= size
        chunk = max(1, CELLS // max(1, inner))
        partials: dict[int, list[Any]] = {}

        def work(start: int, stop: int) -> None:
            cells = (min(stop, n) - start) * inner
            with np.errstate(all="ignore"):
                found = self.run_tile.function(
                    start, stop, self._buffers(cells), once, *inputs, *written
                )
            partials[start] = found

        run_chunks(work, n, chunk)
        if self.folds:
            ordered = [partials[start] for start in sorted(partials)]
            for place, (k, kind) in enumerate(self.folds):
                parts = np.concatenate([p[place] for p in ordered], axis=0)
                total = REDUCE[kind].reduce(parts, axis=0, keepdims=True, dtype=parts.dtype)
                written[k][...] = total
        return tuple(outputs)

    def _empty(self, k: int, sizes: Sequence[int]) -> Any:
        buffer = self.nest.outputs[k]
        shape = [1] * len(buffer.shape)
        for axis, dim in enumerate(buffer.dims):
            if dim is not None:
                shape[dim] = sizes[axis]
        return empty(tuple(shape), to_numpy_dtype(buffer.dtype))

    def _buffers(self, cells: int) -> list[Any]:
        """This thread's scratch arrays, bytes."""
        have: list[Any] = getattr(self._local, "buffers", [])
        if not have or len(have[0]) < cells * self.scratch[0]:
            have = [np.empty(cells * width, np.uint8) for width in self.scratch]
            self._local.buffers = have
        return have


class _TileEmitter:
    def __init__(self, nest: LoopNest, tiled: bool) -> None:
        self.nest = nest
        self.tiled = tiled
        self.columns = tuple(range(nest.rows, len(nest.sizes)))
        self.rows = tuple(range(nest.rows))
        self.varies = self._varies()
        self.scratch: list[int] = []
        self.free: list[int] = []
        self.holds: dict[str, int] = {}  # value → scratch buffer
        self.folds = [(_buffer(i), str(i.attrs["kind"])) for i in nest.body if i.op == "fold"]
        self.functions: dict[str, Any] = {}
        self.last = {
            a: k for k, i in enumerate(nest.body) for a in i.args if isinstance(a, str)
        }  # fmt: skip
        self.lines: list[str] = []
        self.in_place: set[tuple[str, int]] = set()  # values their statement wrote to an output

    def namespace(self) -> dict[str, Any]:
        return {"np": np, **self.functions}

    def _varies(self) -> dict[str, frozenset[int]]:
        found: dict[str, frozenset[int]] = {}
        for i in self.nest.body:
            if not i.name:
                continue
            axes = frozenset().union(*(found[a] for a in i.args if isinstance(a, str)))
            if i.op == "load":
                dims = self.nest.inputs[_buffer(i)].dims
                axes = frozenset(k for k, d in enumerate(dims) if d is not None)
            elif i.op == "index":
                axis = i.attrs["axis"]
                assert isinstance(axis, int)
                axes = frozenset({axis})
            elif i.op == "reduce":
                axes = axes - frozenset(self.columns)
            found[i.name] = axes
        return found

    # --- source ----------------------------------------------------------------------------------

    def once_source(self) -> str:
        """What is computed once for all tiles: values that do not vary, positions."""
        names = [f"in{k}" for k in range(len(self.nest.inputs))]
        lines = [f"def {self.nest.name}_once({', '.join(names)}):"]
        for i in self.once:
            lines.append(f"    {i.name} = {self.expression(i)}")
        results = ", ".join(i.name for i in self.once)
        return "\n".join([*lines, f"    return ({results}{',' if results else ''})", ""])

    @property
    def once(self) -> list[Instr]:
        return [i for i in self.nest.body if i.level == "once" and i.op not in ("store", "fold")]

    def source(self) -> str:
        inputs = [f"in{k}" for k in range(len(self.nest.inputs))]
        outputs = [f"out{k}" for k in range(len(self.nest.outputs))]
        head = ", ".join(["start", "stop", "scratch", "once", *inputs, *outputs])
        if self.once:
            names = ", ".join(i.name for i in self.once)
            self.lines.append(f"({names},) = once")
        self.lines += self.shape_lines()
        parts: list[str] = []
        for k, i in enumerate(self.nest.body):
            if i.op == "fold":
                self.lines.append(f"fold_{len(parts)} = {self.folded(i)}")
                parts.append(f"fold_{len(parts)}")
            elif i.op == "store":
                self.store(i)
            elif i.level != "once":
                self.statement(i)
            self.release(k, i)
        self.lines.append(f"return ({', '.join(parts)}{',' if parts else ''})")
        body = "".join(f"    {line}\n" for line in self.lines)
        return f"def {self.nest.name}({head}):\n{body}"

    def shape_lines(self) -> list[str]:
        """The size of the tile along each axis, read off an array that varies along it."""
        lines = []
        arrays = [(f"in{k}", b) for k, b in enumerate(self.nest.inputs)]
        arrays += [(f"out{k}", b) for k, b in enumerate(self.nest.outputs)]
        for axis in range(len(self.nest.sizes)):
            if axis == 0 and self.tiled:
                lines.append("n0 = stop - start")
                continue
            names = [n for n, b in arrays if b.dims[axis] is not None]
            size = f"{names[0]}.shape[{axis}]" if names else self.nest.sizes[axis]
            lines.append(f"n{axis} = {size}")
        return lines

    def tile(self, name: str, dims: Sequence[int | None]) -> str:
        return f"{name}[start:stop]" if self.tiled and dims and dims[0] is not None else name

    def statement(self, i: Instr) -> None:
        loc = f"  # {i.loc}" if i.loc is not None else ""
        target = self.target(i)
        text = self.expression(i)
        if target is not None:
            name, out = target
            if name is not None:
                self.lines.append(f"{name} = {out}")
                out = name
            text = f"{text[:-1]}, out={out})"
        self.lines.append(f"{i.name} = {text}{loc}")

    def expression(self, i: Instr) -> str:
        args = [a if isinstance(a, str) else literal(a) for a in i.args]
        if i.op == "load":
            k = _buffer(i)
            return self.tile(f"in{k}", self.nest.inputs[k].dims)
        if i.op == "index":
            axis = i.attrs["axis"]
            assert isinstance(axis, int)
            shape = tuple(-1 if k == axis else 1 for k in range(len(self.nest.sizes)))
            first = "start" if axis == 0 and self.tiled else "0"
            last = "stop" if axis == 0 and self.tiled else f"n{axis}"
            return f"np.arange({first}, {last}).reshape({shape})"
        if i.op == "reduce":
            return self.reduced(i, args[0], self.columns)
        record = get_op(i.op)
        low = lowering(record, "numpy")
        if low.function is not None:
            low = replace(low, text=f"op_{low.text}")  # its own name is its result's
            self.functions[low.text] = low.function
        if i.op == "copy" or (i.op == "cast" and not isinstance(i.args[0], str)):
            return f"np.asarray({args[0]}, {literal(i.dtype)})"
        return call(record, low, args, i.attrs)

    def reduced(self, i: Instr, text: str, axes: tuple[int, ...]) -> str:
        (arg,) = i.args
        assert isinstance(arg, str)
        missing = set(axes) - self.varies[arg]
        if missing:
            shape = ", ".join(
                f"n{k}" if k in self.varies[arg] or k in axes else "1"
                for k in range(len(self.nest.sizes))
            )
            text = f"np.broadcast_to({text}, ({shape},))"
        kind = i.attrs["kind"]
        assert isinstance(kind, str)
        dtype = f", dtype={literal(i.dtype)}" if kind in ("sum", "prod") else ""
        return f"{_UFUNC[kind]}.reduce({text}, axis={axes}{dtype}, keepdims=True)"

    def folded(self, i: Instr) -> str:
        (arg,) = i.args
        assert isinstance(arg, str)
        if not self.rows:
            return arg
        return self.reduced(i, arg, self.rows)

    # --- where values live -----------------------------------------------------------------------

    def target(self, i: Instr) -> tuple[str | None, str] | None:
        """Where a ufunc writes: an output it is stored to, or scratch. None: a fresh array."""
        if i.op in ("load", "index", "reduce", "copy"):
            return None
        low = lowering(get_op(i.op), "numpy")
        if low.writes != "in place" or not self.expression(i).endswith(")"):
            return None
        axes = self.varies[i.name]
        for s in self.nest.body:
            if s.op == "store" and s.args == (i.name,):
                buffer = self.nest.outputs[_buffer(s)]
                if axes == {k for k, d in enumerate(buffer.dims) if d is not None}:
                    self.in_place.add((i.name, _buffer(s)))
                    return None, self.tile(f"out{_buffer(s)}", buffer.dims)
        if i.level != "cell":
            return None
        place = self.take(i)
        self.holds[i.name] = place
        shape = ", ".join(f"n{k}" if k in axes else "1" for k in range(len(self.nest.sizes)))
        count = " * ".join(f"n{k}" for k in sorted(axes)) or "1"
        width = i.dtype.itemsize
        view = f"scratch[{place}][: {count} * {width}].view({literal(i.dtype)})"
        return f"{i.name}_out", f"{view}.reshape(({shape},))"

    def take(self, i: Instr) -> int:
        """A free scratch buffer; operands that die here are free for ufuncs, which allow it."""
        width = i.dtype.itemsize
        if self.free:
            place = self.free.pop()
        else:
            place = len(self.scratch)
            self.scratch.append(width)
        self.scratch[place] = max(self.scratch[place], width)
        return place

    def release(self, k: int, i: Instr) -> None:
        dead = {a for a in i.args if isinstance(a, str) and self.last[a] == k}
        if i.name and i.name not in self.last:
            dead.add(i.name)
        for name in dead:
            if name in self.holds:
                self.free.append(self.holds.pop(name))

    def store(self, i: Instr) -> None:
        (arg,) = i.args
        k = _buffer(i)
        if (arg, k) not in self.in_place:
            out = self.tile(f"out{k}", self.nest.outputs[k].dims)
            self.lines.append(f"np.copyto({out}, {arg if isinstance(arg, str) else literal(arg)})")


def _safe_names(nest: LoopNest) -> LoopNest:
    """The nest with no name that the emitted source uses itself."""
    mine = re.compile(r"(in|out|n|fold_)\d+|start|stop|scratch|once|np|op_\w+|\w+_out")
    new = {i.name: i.name + "_" for i in nest.body if mine.fullmatch(i.name)}
    return replace(nest, body=tuple(
        replace(i, name=new.get(i.name, i.name),
                args=tuple(new.get(a, a) if isinstance(a, str) else a for a in i.args))
        for i in nest.body
    ))  # fmt: skip


def _buffer(i: Instr) -> int:
    k = i.attrs["buffer"]
    assert isinstance(k, int)
    return k
