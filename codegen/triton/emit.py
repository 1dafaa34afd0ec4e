"""Loop nest → Triton source: tiles of BR rows and BC columns.

    @triton.jit
    def rms(x_ptr, ..., n0, n1, ..., BR: tl.constexpr, BC: tl.constexpr, TILES: tl.constexpr):
        r = ...rows of this program...
        c = tl.arange(0, BC)[None, :]
        x = tl.load(x_ptr + r * x_s0 + c * x_s1, mask=cell, other=0)
        ...

Note [Forms]
`pointwise`: nothing but cells; all axes are one, a program has BC of them. `tiled`: nothing is
reduced along a row, so the columns, too, are shared out to programs, along the first axis of the
grid. `persistent`: a row fits into a block, so every value is computed once and stays in registers.
`looped`: each stage is a loop over blocks of columns, and cells of earlier stages are computed
again; but see `online`. Folds leave one partial result per program, which a second kernel adds in
order, all of one shape at once: no atomics, the same bits every time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from gradof.codegen.loops.ir import Buffer, Instr, LoopNest, Operand
from gradof.codegen.loops.passes.expand_sign import with_sign_of_nan
from gradof.codegen.loops.passes.run import NestPass, run_nest_passes
from gradof.codegen.triton.draws import kept
from gradof.codegen.triton.fold_source import (
    combine,
    fold_groups,
    fold_source,
    folds_of,
    identity,
    reduced,
)
from gradof.codegen.triton.helpers import LIBDEVICE, needed
from gradof.codegen.triton.named import safe, wide, wide_sums
from gradof.codegen.triton.online import ONLINE_SOFTMAX, joined, running
from gradof.codegen.triton.ops import HALF, NAMES, literal, statements
from gradof.ir.types import BOOL, DType

Form = Literal["pointwise", "tiled", "persistent", "looped"]
NOWHERE: Mapping[object, str] = {}
MASKS = {"once": "", "row": "row", "cell": "cell"}
HEADER = "import triton\nimport triton.language as tl\n"


def form_of(nest: LoopNest) -> Form:
    """`pointwise` where there are only cells, `tiled` where no row is reduced, else `persistent`.

    Callers choose `looped`.
    """
    if any(i.op == "reduce" for i in nest.body):
        return "persistent"
    cells = all(i.op != "fold" and i.level != "row" for i in nest.body)
    return "pointwise" if cells else "tiled"


TRITON_PASSES = (
    NestPass("expand-sign", with_sign_of_nan, "The sign of nan is 0, as torch has it."),
    NestPass("rename-own-names", safe, "Give values other names than the source has of its own."),
    NestPass("widen-sums", wide_sums, "Keep row sums of half precision in float32 for a fold."),
    NestPass("hold-nothing", lambda nest: replace(nest, held=frozenset()),
             "Hold no cells: a row is in registers, or its cells are computed again."),
)  # fmt: skip


def checks(nest: LoopNest) -> bool:
    """Whether a kernel looks at indices, which Triton compiles where it is to debug."""
    return any(i.op == "in_range" for i in nest.body)


def emit_triton(nest: LoopNest, form: Form) -> str:
    """Source of the kernel and of what it calls; CodegenError for an op Triton does not have."""
    emitter = _Emitter(nest, form)
    body = emitter.kernel()
    text = "\n".join(body) + "\n"
    folds = folds_of(nest)
    for k, group in enumerate(fold_groups(nest)):
        text += "\n\n" + fold_source(f"{nest.name}_fold{k}", [folds[f] for f in group])
    helpers = needed(text)
    used = any("libdevice." in part for part in (text, *helpers))
    return "\n\n".join([HEADER + LIBDEVICE if used else HEADER, *helpers, text])


class _Emitter:
    def __init__(self, nest: LoopNest, form: Form) -> None:
        self.form = form
        passes = (*TRITON_PASSES, ONLINE_SOFTMAX) if form == "looped" else TRITON_PASSES
        self.nest = run_nest_passes(nest, passes, "triton")
        self.made = {i.name: i.dtype for i in self.nest.body if i.name}
        self.folds = folds_of(self.nest)
        self.beside = {str(i.args[1]): i for i in self.nest.body if i.op == "exp_sum"}
        self.lines: list[str] = []
        self.indent = 1
        self.rows = range(0 if form == "pointwise" else nest.rows)
        self.columns = range(len(self.rows), len(nest.sizes))
        self.across = form == "tiled" and bool(self.columns)  # several programs have one row

    def add(self, text: str, loc: object = None) -> None:
        comment = "" if loc is None else "  # " + " ".join(str(loc).split())
        self.lines.append("    " * self.indent + text + comment)

    def parameters(self) -> Iterator[str]:
        for which, buffers in (("in", self.nest.inputs), ("out", self.nest.outputs)):
            for k, b in enumerate(buffers):
                if which == "in" or not self.folded(k):
                    yield f"{which}{k}"
                    yield from (f"{which}{k}_s{a}" for a, d in enumerate(b.dims) if d is not None)
        yield from (f"fold{k}" for k in range(len(self.folds)))
        yield from (f"n{k}" for k in range(len(self.nest.sizes)))
        yield from ("n_rows", "n_columns")
        yield "TILES"
        for name in ("INDEX", "BR", "BC"):
            yield f"{name}: tl.constexpr"

    def folded(self, k: int) -> bool:
        return any(f.buffer == k for f in self.folds)

    def kernel(self) -> list[str]:
        names = "".join(f"\n    {p}," for p in self.parameters())
        jit = "@triton.jit(debug=True)" if checks(self.nest) else "@triton.jit"
        self.lines = [jit, f"def {self.nest.name}({names}\n):"]
        for which, buffers in (("in", self.nest.inputs), ("out", self.nest.outputs)):
            for k, b in enumerate(buffers):
                if b.name:
                    self.add(f"# {which}{k}: {b.name} : {b.dtype}")
        if self.form == "pointwise":
            self.add("c = tl.program_id(0).to(INDEX) * BC + tl.arange(0, BC)")
            self.add("cell = c < n_columns")
            self.split("c", self.columns)
        for i in self.nest.once():
            self.instr(i)
        if self.form == "pointwise":
            for i in self.nest.body:
                if i.level == "cell":
                    self.instr(i)
            return self.lines
        down = "tl.program_id(1)" if self.form == "tiled" else "tl.program_id(0)"
        self.add(f"r0 = {down}.to(INDEX) * (BR * TILES) + tl.arange(0, BR)")
        if self.form != "looped":
            start = "tl.program_id(0).to(INDEX) * BC + " if self.form == "tiled" else ""
            self.add(f"c = {start}tl.arange(0, BC)[None, :].to(INDEX)")
            self.split("c", self.columns)
        for k, f in enumerate(self.folds):
            width = "BC" if f.level == "cell" else "1"
            dtype = wide(f.dtype)
            if self.form != "looped" or f.level == "row":
                start = identity(str(f.attrs["kind"]), dtype)
                self.add(f"acc_fold{k} = tl.full((BR, {width}), {start}, tl.{NAMES[dtype]})")
        if self.folds:
            for i in self.nest.body:
                if self.is_early(i):
                    self.instr(i)
            self.add("tl.assume(TILES > 0)")  # a loop of no tile would cost registers
        self.add("for tile in range(TILES):")
        self.indent = 2
        self.add("r = r0 + tile * BR")
        self.add("row = r[:, None] < n_rows")
        self.split("r", self.rows)
        self.stages()
        self.indent = 1
        for k, f in enumerate(self.folds):
            total = reduced(str(f.attrs["kind"]), wide(f.dtype), f"acc_fold{k}", 0)
            if f.level == "row":
                once = ", mask=tl.zeros((1, 1), INDEX) == tl.program_id(0)" if self.across else ""
                self.add(f"tl.store(fold{k} + {down} + tl.zeros((1, 1), INDEX), {total}{once})")
            elif self.form != "looped":
                self.add(f"tl.store(fold{k} + {down}.to(INDEX) * n_columns + c, {total}, "
                         "mask=c < n_columns)")  # fmt: skip
        return self.lines

    def stages(self) -> None:
        body = self.nest.body
        last = max((i.stage for i in body if i.level != "once"), default=0)
        if self.form != "looped":
            self.add("cell = row & (c < n_columns)")
        for stage in range(last + 1):
            for i in self.nest.between(stage):
                if i.op != "exp_sum":  # the loop has made it, beside its maximum
                    self.instr(i)
            loop = self.nest.loop(stage)
            if self.form != "looped":
                for i in body:
                    if (i.level == "cell" and i.stage == stage) or _reduces(i, stage):
                        if not self.is_early(i):
                            self.instr(i)
            elif loop:
                self.loop(loop, stage)

    def loop(self, loop: Sequence[Instr], stage: int) -> None:
        found = [i for i in loop if _reduces(i, stage)]
        for i in found:
            dtype = wide(i.dtype)
            start = identity(str(i.attrs["kind"]), dtype)
            width = "BC"
            if i.name in self.beside:
                width, total = "BC // PART", self.beside[i.name].name
                self.add("PART: tl.constexpr = 4 if BC >= 4 else 1")
                self.add(f"acc_{total} = tl.full((BR, {width}), 0, tl.{NAMES[dtype]})")
            self.add(f"acc_{i.name} = tl.full((BR, {width}), {start}, tl.{NAMES[dtype]})")
        self.add("for start in range(0, n_columns, BC):")
        self.indent += 1
        self.add("c = start + tl.arange(0, BC)[None, :].to(INDEX)")
        self.split("c", self.columns)
        self.add("cell = row & (c < n_columns)")
        for i in loop:
            if i in found:
                kind, dtype = str(i.attrs["kind"]), wide(i.dtype)
                own = self.operand(i.args[0], dtype)
                if i.name in self.beside:
                    for line in running(i.name, self.beside[i.name].name, own):
                        self.add(line)
                else:
                    value = combine(kind, dtype, f"acc_{i.name}", own)
                    self.add(f"acc_{i.name} = tl.where(cell, {value}, acc_{i.name})", i.loc)
            elif i.op not in ("store", "fold") or i.stage == stage:
                self.instr(i)
        self.indent -= 1
        for i in found:
            text = reduced(str(i.attrs["kind"]), wide(i.dtype), f"acc_{i.name}", 1)
            self.add(f"{i.name} = {self.rounded(text, i.dtype)}", i.loc)
            if i.name in self.beside:
                total_of = self.beside[i.name]
                self.add(f"{total_of.name} = {joined(i.name, total_of.name)}", total_of.loc)

    def split(self, name: str, axes: range) -> None:
        """Positions along axes from the number of a row or a column; `r_0`, `c_1`."""
        rest = name
        for k in reversed(axes):
            if k == axes[0]:
                self.add(f"{name}_{k} = {rest}")
            else:
                self.add(f"{name}_{k} = {rest} % n{k}")
                self.add(f"rest_{name} = {rest} // n{k}")
                rest = f"rest_{name}"

    def at(self, axis: int) -> str:
        """The position along an axis in the shape of a tile."""
        return f"r_{axis}[:, None]" if axis in self.rows else f"c_{axis}"

    def place(self, which: str, k: int, buffer: Buffer, at: Mapping[object, str] = NOWHERE) -> str:
        """The address of a cell; `at` has positions along axes that are not the nest's own."""
        terms = [
            f"{at.get(a) or self.at(a)} * {which}{k}_s{a}"
            for a, d in enumerate(buffer.dims) if d is not None
        ]  # fmt: skip
        return " + ".join([f"{which}{k}", *terms])

    def mask(self, buffer: Buffer, level: str) -> str:
        named = [a for a, d in enumerate(buffer.dims) if d is not None]
        if level == "once" or not named:
            return ""
        if self.form == "pointwise":
            return "cell"
        if all(a in self.rows for a in named):
            return "row"
        return "c < n_columns" if all(a in self.columns for a in named) else "cell"

    def is_early(self, i: Instr) -> bool:
        """Whether it is loaded once for all tiles of a program: the same for every row."""
        k = i.attrs.get("buffer")
        if i.op != "load" or i.args or not (self.folds and isinstance(k, int)):
            return False
        buffer = self.nest.inputs[k]
        return self.form != "looped" and not buffer.windows and (
            self.mask(buffer, i.level) == "c < n_columns"
        )  # fmt: skip

    def rounded(self, text: str, dtype: DType) -> str:
        return f"({text}).to(tl.{NAMES[dtype]})" if dtype in HALF else text

    def operand(self, arg: Operand, dtype: DType) -> str:
        if not isinstance(arg, str):
            return literal(arg)
        return f"{arg}.to(tl.{NAMES[dtype]})" if self.made[arg] != dtype else arg

    def instr(self, i: Instr) -> None:
        k = i.attrs.get("buffer")
        args = [a if isinstance(a, str) else literal(a) for a in i.args]
        if i.op == "load" and isinstance(k, int):
            buffer = self.nest.inputs[k]
            mask = MASKS[i.level] if args else self.mask(buffer, i.level)
            named: dict[object, str] = {i.attrs["axis"]: args[0]} if args else {}
            for a, first, last in buffer.windows:
                at = self.at(a)
                named[a] = f"({at} - {first})" if first else at
                tests = [f"({mask})" if " < " in mask else mask] if mask else []
                tests += [f"({at} >= {first})"] if first else []
                tests += [f"({at} < {last})"] if last < self.nest.sizes[a] else []
                mask = " & ".join(tests)
            flat = mask == "row" and not named and self.form != "pointwise"
            if flat:  # a tile of one column would be read once for each column of the others
                named = {a: f"r_{a}" for a in self.rows}
                mask = "r < n_rows"
            other = literal(i.attrs.get("other", 0))
            masked = f", mask={mask}, other={other}" if mask else ""
            where = self.place("in", k, buffer, named)
            bit = " != 0" if i.dtype == BOOL else ""
            column = "[:, None]" if flat else ""
            self.add(f"{i.name} = tl.load({where}{masked}){column}{bit}", i.loc)
        elif i.op == "index":
            axis = i.attrs["axis"]
            assert isinstance(axis, int)
            self.add(f"{i.name} = {self.at(axis)}.to(tl.int64)")
        elif i.op == "in_range":
            self.check(i, args[0])
        elif i.op == "reduce":
            kind, dtype = str(i.attrs["kind"]), wide(i.dtype)
            value = f"tl.where(cell, {self.operand(i.args[0], dtype)}, {identity(kind, dtype)})"
            value = f"{value}.to(tl.{NAMES[dtype]})"
            self.add(f"{i.name} = {self.rounded(reduced(kind, dtype, value, 1), i.dtype)}", i.loc)
        elif i.op == "store" and isinstance(k, int):
            self.store(i, k, args[0])
        elif i.op == "fold":
            self.fold(i)
        elif i.op == "philox_kept":
            self.add(f"{i.name} = {kept(i, self.nest, args)}", i.loc)
        else:
            given = [self.made[a] for a in i.args if isinstance(a, str)]
            if i.op == "where":
                given = given[1:] if isinstance(i.args[0], str) else given
            lines = statements(i.name, i.op, i.dtype, args, given, i.attrs)
            for name, text in lines:
                self.add(f"{name} = {text}", i.loc if name == i.name else None)

    def check(self, i: Instr, index: str) -> None:
        """Stop the device where an index is out of bounds, as eager's kernels do."""
        size, mask = i.attrs["size"], MASKS[i.level]
        low = f"-{size}" if i.attrs["wraps"] else "0"
        masked = f", mask={mask}" if mask else ""
        self.add(f'tl.device_assert(({index} >= {low}) & ({index} < {size}), '
                 f'"an index is out of bounds for a dimension of size {size}"{masked})', i.loc)
        value = f"tl.where({index} < 0, {index} + {size}, {index})" if i.attrs["wraps"] else index
        self.add(f"{i.name} = {value}", i.loc)

    def store(self, i: Instr, k: int, value: str) -> None:
        buffer = self.nest.outputs[k]
        once = " & (tl.program_id(0) == 0)" if self.across and i.level == "row" else ""
        mask = MASKS[i.level] + once
        at: dict[object, str] = {}
        if i.attrs.get("offset"):
            axis = i.attrs["axis"]
            assert isinstance(axis, int)
            at[axis] = f"({self.at(axis)} + {i.attrs['offset']})"
        where = self.place("out", k, buffer, at)
        named = [a for a, d in enumerate(buffer.dims) if d is not None]
        if self.form != "pointwise" and not any(a in self.rows for a in named):
            where += "" if i.level == "once" else " + r[:, None] * 0"  # the shape of the mask
        masked = f", mask={mask}" if mask else ""
        self.add(f"tl.store({where}, {value}{masked})", i.loc)

    def fold(self, i: Instr) -> None:
        k = self.folds.index(i)
        kind, dtype = str(i.attrs["kind"]), wide(i.dtype)
        inside = "cell" if i.level == "cell" else "row"
        value = f"tl.where({inside}, {self.operand(i.args[0], dtype)}, {identity(kind, dtype)})"
        value = f"{value}.to(tl.{NAMES[dtype]})"
        if self.form == "looped" and i.level == "cell":
            text = reduced(kind, dtype, value, 0)
            self.add(f"tl.store(fold{k} + tl.program_id(0).to(INDEX) * n_columns + c, {text}, "
                     "mask=c < n_columns)", i.loc)  # fmt: skip
        else:
            self.add(f"acc_fold{k} = {combine(kind, dtype, f'acc_fold{k}', value)}", i.loc)


def _reduces(i: Instr, stage: int) -> bool:
    return i.op == "reduce" and i.stage == stage + 1
