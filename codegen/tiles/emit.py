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

Cells go to scratch arrays, over an operand that is read for the last time where that may be, or
straight into the output they are stored to (`tiles/values`). What a tile adds to a fold, or to a
sum where columns are cut, is returned, block by block.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gradof.codegen.loops.ir import Buffer, Instr, LoopNest
from gradof.codegen.lowering.half import round_bf16, round_f16
from gradof.codegen.lowering.numpy import as_tensor, call, literal
from gradof.codegen.machine.source import as_tuple
from gradof.codegen.tiles import select as tile_select
from gradof.codegen.tiles import sums as tile_sums
from gradof.codegen.tiles.calls import STEPS, Calls
from gradof.codegen.tiles.nest import SUMS, load_axes
from gradof.codegen.tiles.row_calls import RowCalls
from gradof.codegen.tiles.rows import ROWS
from gradof.codegen.tiles.tensors import Tensors
from gradof.codegen.tiles.torch_calls import number
from gradof.codegen.tiles.values import Values
from gradof.ir.types import F32, F64
from gradof.ops.registry import get_op

_UFUNC = {"sum": "np.add", "prod": "np.multiply", "max": "np.maximum", "min": "np.minimum"}
_HELPERS = {
    **{name: getattr(tile_sums, name) for name in (
        "dot", "dot_blocks", "total", "total_blocks", "along", "along_blocks", "folded",
        "block_rows")},
    **{name: getattr(tile_select, name) for name in ("inside", "picked", "place", "chosen")},
    "tensor": as_tensor, "number": number, "rounded_bf16": round_bf16, "rounded_f16": round_f16,
}

@dataclass(frozen=True)
class TileCode:
    """The sources of a nest's functions, and what they need.

    `once` computes what does not vary, `tile` makes scratch arrays of `widths` bytes a cell and
    runs a tile, which returns `partials`: (name, kind of reduction). `last`, empty where there is
    nothing to do, goes on from these when all tiles are done. Functions of torch's compute the ops,
    and extremes, that are `of_torch`.
    """

    once: str
    tile: str
    last: str
    namespace: dict[str, Any]
    widths: tuple[int, ...]
    partials: tuple[tuple[str, str], ...]
    of_torch: frozenset[str]


def emit_tiles(nest: LoopNest, tiled: bool, cut: bool, torch: bool = False) -> TileCode:
    """The code of a nest that `rewrite` made; `tiled` if a tile is a range of its first axis.

    `cut` says that this axis are the columns: what is reduced over them is a partial result.
    `torch` has torch's functions for what is worth them (`tiles/torch_calls`).
    """
    emitter = _Emitter(nest, tiled, cut, torch)
    tile, last, once = emitter.tile_source(), emitter.last_source(), emitter.once_source()
    space = {"np": np, **emitter.functions}
    widths, partials = tuple(emitter.values.widths), tuple(emitter.partials)
    torchs = frozenset(emitter.calls.of_torch)
    return TileCode(once, tile, last, space, widths, partials, torchs)


class _Emitter:
    def __init__(self, nest: LoopNest, tiled: bool, cut: bool, torch: bool) -> None:
        self.nest = _safe_names(nest)
        self.tiled = tiled
        self.cut = cut
        self.columns = tuple(range(nest.rows, len(nest.sizes)))
        self.rows = tuple(range(nest.rows))
        self.values = Values(self.nest, self.tile)
        self.calls = Calls(self.values, torch)
        self.varies = self.values.varies
        self.partials: list[tuple[str, str]] = []  # (name, kind) of what a tile returns
        self.functions: dict[str, Any] = dict(_HELPERS)
        self.lines: list[str] = []
        self.tensors = Tensors(self.values, self.functions, self.lines)
        self.whole_rows = RowCalls(self.values, self.calls, self.tensors)
        self.inputs = [f"in{k}" for k in range(len(nest.inputs))]
        self.outputs = [f"out{k}" for k in range(len(nest.outputs))]

    # --- source ----------------------------------------------------------------------------------

    def once_source(self) -> str:
        """What is made once for all tiles: values that do not vary, positions, tensors."""
        lines = [f"def {self.nest.name}_once({', '.join(self.inputs)}):"]
        lines += [f"    {i.name} = {self.expression(i)}" for i in self.once]
        lines += [f"    {name} = {source}" for name, source in self.tensors.once.items()]
        return "\n".join([*lines, f"    return {as_tuple(self.names_once)}", ""])

    @property
    def once(self) -> list[Instr]:
        return [i for i in self.nest.body if i.level == "once" and i.op not in ("store", "fold")]

    @property
    def names_once(self) -> list[str]:
        return [i.name for i in self.once] + list(self.tensors.once)

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
            self.values.release(k, i)
        self.lines.append(f"return {as_tuple([name for name, _ in self.partials])}")
        head = ["start", "stop", "scratch", "once", *self.inputs, *self.outputs]
        text = self.function(self.nest.name, head, self.head())
        return self.values.source(self.nest.name, self.tensors.twins) + text

    def last_source(self) -> str:
        """What is computed from the sums over all columns, where these are cut; "" for nothing."""
        if not any(map(self.is_late, self.nest.body)):
            return ""
        self.lines = []
        for i in self.nest.body:
            if not self.is_late(i):
                continue
            if i.op in ("store", "fold"):
                self.lines.append(f"np.copyto(out{i.buffer}, {_text(i.args[0])})")
            else:
                self.lines.append(f"{i.name} = {self.expression(i)}{_loc(i)}")
        head = ["once", *(name for name, _ in self.partials), *self.inputs, *self.outputs]
        return self.function(f"{self.nest.name}_last", head, [])

    def is_late(self, i: Instr) -> bool:
        """Whether it is computed when all tiles are done."""
        return self.cut and i.level == "row" and i.op not in SUMS

    def head(self) -> list[str]:
        """The scratch arrays, and the sizes that the lines below name."""
        lines = []
        views = self.values.views
        if views:
            names = [f"s{k}" for k in range(len(views))] + self.tensors.twins
            lines.append(f"{as_tuple(names)} = scratch")
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
        lines = [*first, *self.lines]
        if self.names_once:
            lines = [f"{as_tuple(self.names_once)} = once", *lines]
        body = "".join(f"    {line}\n" for line in lines)
        return f"def {name}({', '.join(head)}):\n{body}"

    def tile(self, name: str, buffer: Buffer) -> str:
        varies = self.tiled and buffer.dims and buffer.dims[0] is not None
        return f"{name}[start:stop]" if varies else name

    # --- statements ------------------------------------------------------------------------------

    def statement(self, i: Instr, k: int) -> None:
        if i.op == "pick":
            self.pick(i, f"at{k}")
        elif i.op == "place":
            self.placed(i, k)
        elif i.op in ("addcmul", "addcdiv"):
            self.lines += self.by_torch(i, k, self.tensors.call(*self.calls.fused(i)))
        elif i.op in ROWS:
            self.lines += self.whole_rows.lines(i)
        elif i.op in ("load", "index", "copy", "rounded") or i.op in SUMS:
            self.lines.append(f"{i.name} = {self.expression(i)}{_loc(i)}")
        else:
            self.lines += [*self.elementwise(i, k)]

    def elementwise(self, i: Instr, k: int) -> list[str]:
        """The statements of an op, which write into an output or scratch where they may."""
        args, loc = [_text(a) for a in i.args], _loc(i)
        function = self.calls.writing(i)
        if function is not None:
            return self.by_torch(i, k, self.tensors.call(f"torch_{i.op}", function, i.args))
        text = self.expression(i)
        out: str | None
        if self.calls.is_select(i):
            out = self.values.output(i) or self.values.taken(i)
            return [f"{i.name} = chosen({', '.join(args)}, {out}){loc}"]
        if i.op in STEPS and self.calls.same_dtype(i):
            out = self.target(i, k)
            if out is not None:
                *first, last = [step.format(x=args[0], y=out) for step in STEPS[i.op]]
                return [*first, f"{i.name} = {last}{loc}"]
        if i.op == "cast" and i.level == "cell" and isinstance(i.args[0], str):
            out = self.values.output(i) or self.values.taken(i)
            return [f'np.copyto({out}, {args[0]}, casting="unsafe")', f"{i.name} = {out}{loc}"]
        out = self.target(i, k) if self.calls.may_have_out(i) and text.endswith(")") else None
        if out is None:
            return [f"{i.name} = {text}{loc}"]
        text = f"{text[:-1]}, out={out})"
        number = self.calls.number(i)
        if number is not None and out[0] == "s":
            self.tensors.borrowed.add(i.name)
            other = args[1] if number == args[0] else args[0]
            text = f"{other} if {number} == 1 else {text}"
        return [f"{i.name} = {text}{loc}"]

    def by_torch(self, i: Instr, k: int, call: str) -> list[str]:
        """The statements of a call of torch's that writes a value."""
        out = self.target(i, k)
        assert out is not None, "it has cells"
        return [f"{call[:-1]}, out={self.tensors.out(out)}){_loc(i)}", f"{i.name} = {out}"]

    def expression(self, i: Instr) -> str:
        args = [_text(a) for a in i.args]
        if i.op == "load":
            return self.tile(f"in{i.buffer}", self.nest.inputs[i.buffer])
        if i.op == "index":
            axis = i.attrs["axis"]
            shape = tuple(-1 if k == axis else 1 for k in range(len(self.nest.sizes)))
            first = "start" if axis == 0 and self.tiled else "0"
            last = "stop" if axis == 0 and self.tiled else f"n{axis}"
            return f"np.arange({first}, {last}).reshape({shape})"
        if i.op == "reduce":
            return self.reduced(i, args[0], self.columns)
        if i.op == "total" and (found := self.calls.of_rows(i)) is not None:
            return self.tensors.call(*found, i.args)
        if i.op in SUMS:
            return f"{i.op}{'_blocks' if self.cut else ''}({', '.join(args)})"
        if i.op == "rounded":  # see `loops/passes/widen_half`
            return f"rounded_{i.attrs['dtype']}({args[0]})"
        record = get_op(i.op)
        low = self.calls.lowering(i)
        if low.function is not None:
            low = replace(low, text=f"op_{low.text}")  # its own name is its result's
            self.functions[low.text] = low.function
        if i.op == "copy" or (i.op == "cast" and not isinstance(i.args[0], str)):
            return f"np.asarray({args[0]}, {literal(i.dtype)})"
        return call(record, low, args, i.attrs)

    def reduced(self, i: Instr, text: str, axes: tuple[int, ...]) -> str:
        (arg,) = i.args
        assert isinstance(arg, str)
        kind = i.attrs["kind"]
        assert isinstance(kind, str)
        ufunc, is_float = _UFUNC[kind], i.dtype in (F32, F64)
        varies = not set(axes) - self.varies[arg]
        if not varies:
            shape = as_tuple([
                f"n{k}" if k in self.varies[arg] or k in axes else "1"
                for k in range(len(self.nest.sizes))
            ])  # fmt: skip
            text = f"np.broadcast_to({text}, {shape})"
        dtype = f", dtype={literal(i.dtype)}" if kind in ("sum", "prod") else ""
        if i.op == "reduce" and self.cut and len(axes) == 1:
            return f"along_blocks({ufunc}, {text}{dtype})"
        if i.op == "fold" and is_float:
            return self.folded(i, ufunc, text, axes)
        if varies and axes == self.columns and len(axes) == 1 and kind in ("max", "min"):
            if (found := self.calls.of_rows(i)) is None:
                return f"along({ufunc}, {text})"
            return self.tensors.call(*found, i.args)
        return f"{ufunc}.reduce({text}, axis={axes}{dtype}, keepdims=True)"

    def folded(self, i: Instr, ufunc: str, text: str, axes: tuple[int, ...]) -> str:
        """The partial results of a tile's blocks; Note [Sums of tiles] in `tiles/sums`."""
        if i.level == "cell":
            cells = " * ".join(f"n{k}" for k in range(1, len(self.nest.sizes))) or "1"
            return f"folded({ufunc}, {text}, {axes}, block_rows({cells}))"
        if len(axes) == 1:
            return text
        return f"{ufunc}.reduce({text}, axis={axes[1:]}, keepdims=True)"

    def fold(self, i: Instr) -> None:
        text = _text(i.args[0])
        if "part" in i.attrs:
            text = self.whole_rows.part(i)
        elif self.rows:
            text = self.reduced(i, text, self.rows)
        name = f"fold_{len(self.partials)}"
        self.lines.append(f"{name} = {f'np.negative({text})' if i.attrs.get('negated') else text}")
        self.partials.append((name, str(i.attrs["kind"])))

    def pick(self, i: Instr, at: str) -> None:
        """One cell of each row: the body, on the cells at one position each."""
        (place,) = i.args
        (column,) = self.columns
        self.lines.append(f"{at} = inside({place}, n{column})")
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
        values = self.values
        store = values.stored(i)
        if store is None and cells in values.dying(i, k) and cells not in self.tensors.borrowed:
            values.holds[i.name] = values.holds.pop(cells)
        elif store is not None and (cells, store) in values.in_place:
            values.in_place.add((i.name, store))
        else:
            out = values.output(i) or values.taken(i)
            self.lines.append(f"np.copyto({out}, {cells})")
            cells = out
        self.lines.append(f"{i.name} = place({cells}, {position}, {value}){_loc(i)}")

    def store(self, i: Instr) -> None:
        (arg,) = i.args
        k = i.buffer
        if (arg, k) not in self.values.in_place:
            out = self.tile(f"out{k}", self.nest.outputs[k])
            self.lines.append(f"np.copyto({out}, {_text(arg)})")

    # --- what may be written where ---------------------------------------------------------------

    def target(self, i: Instr, k: int) -> str | None:
        """Where a ufunc writes: an output it is stored to, or scratch. None: a fresh array."""
        out = self.values.output(i)
        if out is None and i.level == "cell":
            dying = self.values.dying(i, k)  # what may be an input's is not in the cache yet
            out = self.values.taken(i, sorted(dying, key=self.tensors.borrowed.__contains__))
        return out


def _safe_names(nest: LoopNest) -> LoopNest:
    """The nest with no name that the emitted source uses itself."""
    mine = re.compile(
        r"(in|out|n|s|t|fold_|rows_)\d+|at\d+(_\w+)?|start|stop|scratch|once|np|(op|torch|tensor)_\w+|"
        "from_numpy|"
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


def _text(arg: Any) -> str:
    return arg if isinstance(arg, str) else literal(arg)


def _loc(i: Instr) -> str:
    return f"  # {i.loc}" if i.loc is not None else ""
