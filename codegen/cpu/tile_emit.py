"""Loop nest → numpy source for one tile of its first axis.

    def kernel_scratch(scratch, n0, n1):
        return (scratch[0][: n0 * n1 * 4].view(np.float32).reshape((n0, n1)),)

    def kernel(start, stop, scratch, once, in0, in1, out0):
        (s0,) = scratch
        x = in0[start:stop]
        s = dot(x, x)
        q = np.multiply(x, s, out=s0)
        np.add(q, in1, out=out0[start:stop])
        return ()

Cells go to scratch arrays, over an operand that is read for the last time where a ufunc may, or
straight into the output they are stored to. What a tile adds to a fold, or to a sum where columns
are cut, is returned.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gradof.codegen.cpu import tile_sums
from gradof.codegen.cpu.lowering import call, literal, lowering
from gradof.codegen.cpu.tile_rewrite import SUMS, load_axes, reads, varying
from gradof.codegen.loopnest import Instr, LoopNest
from gradof.ops.registry import get_op

_UFUNC = {"sum": "np.add", "prod": "np.multiply", "max": "np.maximum", "min": "np.minimum"}
# Where the op's own template makes arrays on the way; the first call reads the operands.
_STEPS = {"rsqrt": ("np.sqrt({0}, out={out})", "np.true_divide(1, {out}, out={out})")}
_NAMES = ("dot", "total", "inside", "picked", "place")
_HELPERS = {name: getattr(tile_sums, name) for name in _NAMES}


@dataclass(frozen=True)
class TileCode:
    """The sources of a nest's functions, and what they need.

    `once` computes what does not vary, `tile` makes scratch arrays of `widths` bytes a cell and
    runs a tile, which returns `partials`: (name, kind of reduction). `last`, empty where there is
    nothing to do, goes on from these when all tiles are done.
    """

    once: str
    tile: str
    last: str
    namespace: dict[str, Any]
    widths: tuple[int, ...]
    partials: tuple[tuple[str, str], ...]


def emit_tiles(nest: LoopNest, tiled: bool, cut: bool) -> TileCode:
    """The code of a nest that `tile_rewrite` made; `tiled` if a tile is a range of its first axis.

    `cut` says that this axis are the columns: what is reduced over them is a partial result.
    """
    emitter = _Emitter(nest, tiled, cut)
    once, tile, last = emitter.once_source(), emitter.tile_source(), emitter.last_source()
    space = {"np": np, **emitter.functions}
    return TileCode(once, tile, last, space, tuple(emitter.widths), tuple(emitter.partials))


class _Emitter:
    def __init__(self, nest: LoopNest, tiled: bool, cut: bool) -> None:
        self.nest = _safe_names(nest)
        self.tiled = tiled
        self.cut = cut
        self.columns = tuple(range(nest.rows, len(nest.sizes)))
        self.rows = tuple(range(nest.rows))
        self.varies = varying(self.nest)
        self.widths: list[int] = []  # bytes of a cell, per scratch buffer
        self.views: list[tuple[int, frozenset[int], str, int]] = []
        self.free: list[int] = []
        self.holds: dict[str, int] = {}  # value → scratch buffer
        self.partials: list[tuple[str, str]] = []  # (name, kind) of what a tile returns
        self.functions: dict[str, Any] = dict(_HELPERS)
        self.lines: list[str] = []
        self.in_place: set[tuple[str, int]] = set()  # values their statement wrote to an output
        self.made = {i.name: i for i in self.nest.body if i.name}
        self.place = {i.name: k for k, i in enumerate(self.nest.body) if i.name}
        self.last = {a: k for k, i in enumerate(self.nest.body) for a in reads(i)}
        self.inputs = [f"in{k}" for k in range(len(nest.inputs))]
        self.outputs = [f"out{k}" for k in range(len(nest.outputs))]

    # --- source ----------------------------------------------------------------------------------

    def once_source(self) -> str:
        """What is computed once for all tiles: values that do not vary, positions."""
        lines = [f"def {self.nest.name}_once({', '.join(self.inputs)}):"]
        lines += [f"    {i.name} = {self.expression(i)}" for i in self.once]
        return "\n".join([*lines, f"    return {_tuple([i.name for i in self.once])}", ""])

    @property
    def once(self) -> list[Instr]:
        return [i for i in self.nest.body if i.level == "once" and i.op not in ("store", "fold")]

    def tile_source(self) -> str:
        """What a tile runs, after the function that makes its scratch arrays."""
        for k, i in enumerate(self.nest.body):
            if i.op == "fold" and not self.cut:
                self.fold(i)
            elif self.is_late(i) or (i.level == "once" and i.op != "store"):
                continue
            elif i.op == "store":
                self.store(i)
            else:
                self.statement(i, k)
                if self.cut and i.op in SUMS:
                    self.partials.append((i.name, str(i.attrs["kind"])))
            self.release(k, i)
        self.lines.append(f"return {_tuple([name for name, _ in self.partials])}")
        head = ["start", "stop", "scratch", "once", *self.inputs, *self.outputs]
        return self.scratch_source() + self.function(self.nest.name, head, self.head())

    def last_source(self) -> str:
        """What is computed from the sums over all columns, where these are cut; "" for nothing."""
        if not any(map(self.is_late, self.nest.body)):
            return ""
        self.lines = []
        for i in self.nest.body:
            if not self.is_late(i):
                continue
            if i.op in ("store", "fold"):
                self.lines.append(f"np.copyto(out{buffer_of(i)}, {_text(i.args[0])})")
            else:
                self.lines.append(f"{i.name} = {self.expression(i)}{_loc(i)}")
        head = ["once", *(name for name, _ in self.partials), *self.inputs, *self.outputs]
        return self.function(f"{self.nest.name}_last", head, [])

    def is_late(self, i: Instr) -> bool:
        """Whether it is computed when all tiles are done."""
        return self.cut and i.level == "row" and i.op not in SUMS

    def scratch_source(self) -> str:
        names = [f"n{k}" for k in range(len(self.nest.sizes))]
        shown = [self.view(*v) for v in self.views]
        body = "".join(f"        {text},\n" for text in shown)
        head = ", ".join(["scratch", *names])
        result = f"(\n{body}    )" if shown else "()"
        return f"def {self.nest.name}_scratch({head}):\n    return {result}\n\n"

    def view(self, place: int, axes: frozenset[int], dtype: str, width: int) -> str:
        shape = _tuple([f"n{k}" if k in axes else "1" for k in range(len(self.nest.sizes))])
        count = " * ".join(f"n{k}" for k in sorted(axes)) or "1"
        return f"scratch[{place}][: {count} * {width}].view({dtype}).reshape({shape})"

    def head(self) -> list[str]:
        """The scratch arrays, and the sizes that the lines below name."""
        lines = []
        if self.views:
            lines.append(f"{_tuple([f's{k}' for k in range(len(self.views))])} = scratch")
        arrays = [*zip(self.inputs, self.nest.inputs, strict=True),
                  *zip(self.outputs, self.nest.outputs, strict=True)]  # fmt: skip
        for axis in range(len(self.nest.sizes)):
            if not any(re.search(rf"\bn{axis}\b", line) for line in self.lines):
                continue
            names = [n for n, b in arrays if b.dims[axis] is not None]
            size = f"{names[0]}.shape[{axis}]" if names else self.nest.sizes[axis]
            lines.append(f"n{axis} = {'stop - start' if axis == 0 and self.tiled else size}")
        return lines

    def function(self, name: str, head: Sequence[str], first: Sequence[str]) -> str:
        lines = [*first, *self.lines] or ["pass"]
        if self.once:
            lines = [f"{_tuple([i.name for i in self.once])} = once", *lines]
        body = "".join(f"    {line}\n" for line in lines)
        return f"def {name}({', '.join(head)}):\n{body}"

    def tile(self, name: str, dims: Sequence[int | None]) -> str:
        return f"{name}[start:stop]" if self.tiled and dims and dims[0] is not None else name

    # --- statements ------------------------------------------------------------------------------

    def statement(self, i: Instr, k: int) -> None:
        if i.op == "pick":
            self.pick(i)
            return
        if i.op == "place":
            self.placed(i, k)
            return
        out = self.target(i, k)
        text = self.expression(i)
        if out is None:
            self.lines.append(f"{i.name} = {text}{_loc(i)}")
        elif self.steps(i):
            steps = [step.format(*map(_text, i.args), out=out) for step in _STEPS[i.op]]
            self.lines += [*steps[:-1], f"{i.name} = {steps[-1]}{_loc(i)}"]
        else:
            self.lines.append(f"{i.name} = {text[:-1]}, out={out}){_loc(i)}")

    def expression(self, i: Instr) -> str:
        args = [_text(a) for a in i.args]
        if i.op == "load":
            k = buffer_of(i)
            return self.tile(f"in{k}", self.nest.inputs[k].dims)
        if i.op == "index":
            axis = i.attrs["axis"]
            shape = tuple(-1 if k == axis else 1 for k in range(len(self.nest.sizes)))
            first = "start" if axis == 0 and self.tiled else "0"
            last = "stop" if axis == 0 and self.tiled else f"n{axis}"
            return f"np.arange({first}, {last}).reshape({shape})"
        if i.op == "reduce":
            return self.reduced(i, args[0], self.columns)
        if i.op in SUMS:
            return f"{i.op}({', '.join(args)})"
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
        if set(axes) - self.varies[arg]:
            shape = _tuple([
                f"n{k}" if k in self.varies[arg] or k in axes else "1"
                for k in range(len(self.nest.sizes))
            ])  # fmt: skip
            text = f"np.broadcast_to({text}, {shape})"
        kind = i.attrs["kind"]
        assert isinstance(kind, str)
        dtype = f", dtype={literal(i.dtype)}" if kind in ("sum", "prod") else ""
        return f"{_UFUNC[kind]}.reduce({text}, axis={axes}{dtype}, keepdims=True)"

    def fold(self, i: Instr) -> None:
        text = self.reduced(i, _text(i.args[0]), self.rows) if self.rows else _text(i.args[0])
        name = f"fold_{len(self.partials)}"
        self.lines.append(f"{name} = {f'np.negative({text})' if i.attrs.get('negated') else text}")
        self.partials.append((name, str(i.attrs["kind"])))

    def pick(self, i: Instr) -> None:
        """One cell of each row: the body, on the cells at one position each."""
        (place,) = i.args
        at = f"at{self.place[i.name]}"
        column = self.columns[0]
        size = f"n{column}"
        self.lines.append(f"{at} = inside({place}, {size})")
        mine = {j.name: f"{at}_{j.name}" for j in i.body}
        for j in i.body:
            args = tuple(mine.get(a, a) if isinstance(a, str) else a for a in j.args)
            if j.op == "index":
                text = at
            elif j.op == "load":
                tile = self.expression(j)
                text = f"picked({tile}, {at})" if column in load_axes(self.nest, j) else tile
            else:
                text = self.expression(replace(j, args=args))
            self.lines.append(f"{mine[j.name]} = {text}{_loc(j)}")
        self.lines.append(f"{i.name} = {mine[i.body[-1].name]}")

    def placed(self, i: Instr, k: int) -> None:
        """Cells changed in place: their own, where nothing else reads them, else a copy."""
        cells, position, value = map(_text, i.args)
        store = self.stored(i)
        if cells in self.holds and self.last[cells] == k and store is None:
            self.holds[i.name] = self.holds.pop(cells)
        elif store is not None and (cells, buffer_of(store)) in self.in_place:
            self.in_place.add((i.name, buffer_of(store)))
        else:
            out = self.output(i) or self.taken(i, ())
            self.lines.append(f"np.copyto({out}, {cells})")
            cells = out
        self.lines.append(f"{i.name} = place({cells}, {position}, {value}){_loc(i)}")

    def store(self, i: Instr) -> None:
        (arg,) = i.args
        k = buffer_of(i)
        if (arg, k) not in self.in_place:
            out = self.tile(f"out{k}", self.nest.outputs[k].dims)
            self.lines.append(f"np.copyto({out}, {_text(arg)})")

    # --- where values live -----------------------------------------------------------------------

    def target(self, i: Instr, k: int) -> str | None:
        """Where a ufunc writes: an output it is stored to, or scratch. None: a fresh array."""
        if i.op in ("load", "index", "copy") or i.op in SUMS:
            return None
        is_ufunc = lowering(get_op(i.op), "numpy").writes == "in place"
        if not (is_ufunc and self.expression(i).endswith(")")) and not self.steps(i):
            return None
        out = self.output(i)
        if out is None and i.level == "cell":
            dying = (a for a in i.args if isinstance(a, str) and self.last[a] == k)
            out = self.taken(i, [a for a in dying if a in self.holds])
        return out

    def steps(self, i: Instr) -> bool:
        """Whether calls that write into one array compute it."""
        return i.op in _STEPS and all(
            isinstance(a, str) and self.made[a].dtype == i.dtype for a in i.args
        )

    def stored(self, i: Instr) -> Instr | None:
        """The store of a value into an output of its shape."""
        for s in self.nest.body:
            if s.op == "store" and s.args == (i.name,):
                dims = self.nest.outputs[buffer_of(s)].dims
                if self.varies[i.name] == {k for k, d in enumerate(dims) if d is not None}:
                    return s
        return None

    def output(self, i: Instr) -> str | None:
        """The output a value is to be written to; that of a `place` which alone reads it, too."""
        store = self.stored(i)
        readers = [j for j in self.nest.body if i.name in reads(j)]
        if store is None and len(readers) == 1 and readers[0].op == "place":
            if readers[0].args[0] == i.name:
                store = self.stored(readers[0])
        if store is None:
            return None
        self.in_place.add((i.name, buffer_of(store)))
        return self.tile(f"out{buffer_of(store)}", self.nest.outputs[buffer_of(store)].dims)

    def taken(self, i: Instr, dying: Sequence[str]) -> str:
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
        view = (place, self.varies[i.name], literal(i.dtype), width)
        if view not in self.views:
            self.views.append(view)
        return f"s{self.views.index(view)}"

    def release(self, k: int, i: Instr) -> None:
        dead = {a for a in reads(i) if self.last[a] == k}
        if i.name and i.name not in self.last:
            dead.add(i.name)
        for name in dead:
            if name in self.holds:
                self.free.append(self.holds.pop(name))


def _safe_names(nest: LoopNest) -> LoopNest:
    """The nest with no name that the emitted source uses itself."""
    mine = re.compile(
        r"(in|out|n|s|fold_)\d+|at\d+(_\w+)?|start|stop|scratch|once|np|op_\w+|"
        + "|".join(_HELPERS)
    )
    names = {j.name for i in nest.body for j in (i, *i.body)}
    new: dict[str, str] = {}
    for name in sorted(n for n in names if mine.fullmatch(n)):
        new[name] = name + "_"
        while new[name] in names:
            new[name] += "_"
        names.add(new[name])

    def renamed(i: Instr) -> Instr:
        args = tuple(new.get(a, a) if isinstance(a, str) else a for a in i.args)
        name = new.get(i.name, i.name)
        return replace(i, name=name, args=args, body=tuple(map(renamed, i.body)))

    return replace(nest, body=tuple(map(renamed, nest.body)))


def _tuple(names: Sequence[str]) -> str:
    return f"({', '.join(names)}{',' if len(names) == 1 else ''})"


def _text(arg: Any) -> str:
    return arg if isinstance(arg, str) else literal(arg)


def _loc(i: Instr) -> str:
    return f"  # {i.loc}" if i.loc is not None else ""


def buffer_of(i: Instr) -> int:
    """Which input or output an instruction reads or writes."""
    k = i.attrs["buffer"]
    assert isinstance(k, int)
    return k
