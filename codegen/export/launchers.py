'''A loop nest as source to keep: its kernels, and a function that launches them on tensors.

    launcher = write_launcher(nest, "rms_norm_forward", ["x", "weight"], ["rsqrt", "y"])
    launcher.kernels    {"rms_norm_forward_kernel": "@triton.jit\\ndef ...", "_tanh": ...}
    launcher.source     def rms_norm_forward(x, weight):
                            """x : f32[8,16], weight : f32[16] → rsqrt : f32[8,1], y : f32[8,16]"""
                            n_rows, n_columns = x.shape
                            grid = (triton.cdiv(n_rows, 4),)
                            rsqrt = x.new_empty((n_rows, 1))
                            ...
                            rms_norm_forward_kernel[grid](x, x.stride(0), ...)
                            return rsqrt, y

Kernels are `triton.emit`'s with the names of tensors, made `readable`. Strides are arguments. Axes
that are one in contiguous tensors are one in the kernel, so tensors that have them are made
contiguous first.
'''

from __future__ import annotations

import ast
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gradof import tuning
from gradof.codegen.export.readable import names_in, one_tile, readable, renamed, wrapped
from gradof.codegen.loops.ir import Buffer, Instr, LoopNest
from gradof.codegen.lowering.torch_ops import dtype_text
from gradof.codegen.machine.source import Names
from gradof.codegen.triton.blocks import Blocks, blocks_for, grid_of
from gradof.codegen.triton.emit import HEADER, Form, emit_triton, form_of
from gradof.codegen.triton.fold_source import fold_source, folds_of
from gradof.codegen.triton.kernel import WIDE_INDEX, indexed_loads, merged_axes, with_axes
from gradof.codegen.triton.named import wide
from gradof.errors import CodegenError
from gradof.ir.types import DType

PARTIALS, COLUMNS = 128, 32  # the block of a kernel that adds partial results
_FOLD = re.compile(r"_fold\d+$")
_PART = re.compile(r"(in|out|fold)(\d+)(?:_s(\d+))?")
JOINED = ",\xa0"  # between arguments that stay on one line


@dataclass
class Launcher:
    """Source of a launcher, and of every kernel it needs by name."""

    name: str
    source: str
    kernels: dict[str, str] = field(default_factory=dict)


def write_launcher(
    nest: LoopNest, name: str, operands: Sequence[str], results: Sequence[str],
    users: Collection[str] = (), texts: Mapping[str, str] | None = None,
) -> Launcher:  # fmt: skip
    """The launcher of a nest.

    `operands` and `results` are distinct identifiers, one per operand of the group and one per
    output. `users` are names that values keep, `texts` lines of the user's by loc. CodegenError
    for an op Triton does not have.
    """
    return _Writer(nest, name, operands, results, users, texts or {}).write()


class _Writer:
    def __init__(
        self, nest: LoopNest, name: str, operands: Sequence[str], results: Sequence[str],
        users: Collection[str], texts: Mapping[str, str],
    ) -> None:  # fmt: skip
        self.nest, self.name, self.results = nest, name, results
        self.kernel_name = f"{name}_kernel"
        self.operands = operands
        self.reads = [operands[k] for k in nest.reads]  # the tensor of each input buffer
        self.keep, self.texts = {*users, *operands, *results}, texts
        self.folds = folds_of(nest)
        self.fold_of = {f.buffer: k for k, f in enumerate(self.folds)}
        self.form: Form = form_of(nest)
        rows = 0 if self.form == "pointwise" else nest.rows
        self.n_rows = math.prod(nest.sizes[:rows])
        self.n_columns = math.prod(nest.sizes[rows:])
        if self.form == "persistent" and self.n_columns > tuning.ROW_BLOCK:
            self.form = "looped"
        strides = [_contiguous(b) for b in (*nest.inputs, *nest.outputs)]
        self.groups = merged_axes(nest.sizes, rows, strides, indexed_loads(nest))
        self.row_groups = sum(g[-1] < rows for g in self.groups)
        self.blocks: Blocks = blocks_for(
            nest, self.form, self.n_rows, self.n_columns, tuning.ROW_BLOCK
        )
        columns = len(self.groups) - self.row_groups
        self.axes = [f"n{k}" for k in range(len(self.groups))]  # names of their sizes
        if self.row_groups == 1:
            self.axes[0] = "n_rows"
        if columns == 1:
            self.axes[-1] = "n_columns"

    def write(self) -> Launcher:
        merged = with_axes(self.nest, tuple(g[-1] for g in self.groups))
        body = _with_names(merged.body, self.reads, self.results)
        made = functions_of(
            emit_triton(replace(merged, name=self.kernel_name, body=body), self.form)
        )
        launcher = Launcher(self.name, "")
        for name, text in made.items():
            if name == self.kernel_name:
                text, parameters = self.kernel(text, {i.name: i.dtype for i in body if i.name})
            if not _FOLD.search(name):
                launcher.kernels[name] = text
        fold_names = []
        for fold in self.folds:
            fold_name = f"combine_{fold.attrs['kind']}_{wide(fold.dtype)}"
            launcher.kernels[fold_name] = fold_source(fold_name, [fold]).rstrip()
            fold_names.append(fold_name)
        launcher.source = "\n".join(self.launcher(parameters, fold_names)) + "\n"
        return launcher

    # --- the kernel ------------------------------------------------------------------------------

    def kernel(self, text: str, dtypes: Mapping[str, DType]) -> tuple[str, list[str]]:
        """The kernel with the names of tensors, and the names its arguments had, in order."""
        definition = ast.parse(text).body[0]
        assert isinstance(definition, ast.FunctionDef)
        parameters = [a.arg for a in definition.args.args]
        used = names_in(text)
        given = Names(used)
        names: dict[str, str] = {}
        for p in parameters:
            found = _PART.fullmatch(p)
            if found is not None:
                names[p] = given.unique(self.parameter(found))
        for k in range(len(self.folds)):
            names[f"acc_fold{k}"] = given.unique(f"acc_{self.fold_result(k)}")
        if self.form == "pointwise":
            names["n_columns"] = "n"
        lines = renamed(text, names).split("\n")
        end = next(k for k, line in enumerate(lines) if line == "):")
        rows = [line for line in lines[end + 1 :] if not re.match(r" +# (in|out)\d+: ", line)]
        rows = one_tile(rows) if self.blocks.tiles == 1 else rows
        known = {n: d for m, d in dtypes.items() for n in (m, f"{m}_") if n in used}
        body = readable(rows, self.keep, known, self.texts)
        needed = names_in("\n".join(body))
        parameters = [p for p in parameters if names.get(p, p) in needed]
        constexpr = {a.arg for a in definition.args.args if a.annotation}
        heads = {p: names.get(p, p) + ": tl.constexpr" * (p in constexpr) for p in parameters}
        head = f"def {self.kernel_name}({_listed(parameters, heads)}):"
        return "\n".join([lines[0], *wrapped(head, extra=8), *body]), parameters

    def parameter(self, part: re.Match[str]) -> str:
        which, k, axis = part[1], int(part[2]), part[3]
        if which == "fold":
            return f"{self.fold_result(k)}_parts_ptr"
        name = self.reads[k] if which == "in" else self.results[k]
        return f"{name}_ptr" if axis is None else f"{name}_s{axis}"

    def fold_result(self, k: int) -> str:
        buffer = self.folds[k].buffer
        assert isinstance(buffer, int)
        return self.results[buffer]

    # --- the launcher ----------------------------------------------------------------------------

    def launcher(self, parameters: Sequence[str], folds: Sequence[str]) -> list[str]:
        yes = [f"{n} : {_typed(b)}" for n, b in self.tensors()]
        made = [f"{n} : {_typed(b)}" for n, b in zip(self.results, self.nest.outputs, strict=True)]
        head = wrapped(f"def {self.name}({', '.join(self.operands)}):", extra=8)
        head += wrapped(f'"""{", ".join(yes)} → {", ".join(made)}"""', 4)
        merged = self.made_contiguous()
        head += ["    # some of their axes are one in the kernel"] * bool(merged)
        head += [f"    {name} = {name}.contiguous()" for name in merged]
        body = self.body(parameters, folds)
        return [*head, *self.sizes(names_in("\n".join(body))), *body]

    def body(self, parameters: Sequence[str], folds: Sequence[str]) -> list[str]:
        """Everything after the sizes."""
        programs = all(grid_of(self.form, self.n_rows, self.n_columns, self.blocks))
        b = self.blocks
        axes = [("n_columns", b.columns)] * (self.form in ("pointwise", "tiled"))
        axes += [("n_rows", b.rows * b.tiles)] * (self.form != "pointwise")
        grid = [n if block == 1 else f"triton.cdiv({n}, {block})" for n, block in axes]
        lines = [f"    grid = ({', '.join(grid)}{',' if len(grid) == 1 else ''})"]
        for k, (name, buffer) in enumerate(zip(self.results, self.nest.outputs, strict=True)):
            fold = self.fold_of.get(k)
            if fold is None:
                lines += wrapped(f"{name} = {self.empty(self.shape(buffer), buffer.dtype)}", 4)
            else:
                made = self.empty(self.partial(self.folds[fold]), wide(self.folds[fold].dtype))
                lines += wrapped(f"{name}_parts = {made}", 4)
        lines.append(f"    with torch.cuda.device_of({self.operands[0]}):")
        if programs:
            given = _listed(parameters, {p: self.argument(p) for p in parameters})
            given += "" if b.warps == 4 else f", num_warps={b.warps}"  # 4 is Triton's default
            lines += wrapped(f"{self.kernel_name}[grid]({given})", 8)
        for k, fold_name in enumerate(folds):
            lines += self.combined(k, fold_name)
        if not programs and not folds:
            lines.append("        pass  # there are no elements")
        lines += [line for k in range(len(folds)) for line in self.reshaped(k)]
        return [*lines, *wrapped(f"return {', '.join(self.results)}", 4)]

    def sizes(self, needed: set[str]) -> list[str]:
        """The sizes that what follows needs."""
        given = [" * ".join(self.size(a) for a in g) for g in self.groups]
        made = list(zip(self.axes, given, strict=True))
        products: list[tuple[str, str]] = []
        halves = (self.axes[: self.row_groups], self.axes[self.row_groups :])
        for name, axes in zip(("n_rows", "n_columns"), halves, strict=True):
            if name not in self.axes and name in needed:
                products.append((name, " * ".join(axes) or "1"))
                needed = {*needed, *axes}
        made = [(name, size) for name, size in made if name in needed]
        tensor = made[0][1].partition(".shape")[0] if len(made) > 1 else ""
        rank = next((len(b.shape) for t, b in self.tensors() if t == tensor), 0)
        if made and [size for _, size in made] == [f"{tensor}.shape[{k}]" for k in range(rank)]:
            made = [(", ".join(name for name, _ in made), f"{tensor}.shape")]
        return [f"    {name} = {size}" for name, size in [*made, *products]]

    def tensors(self) -> list[tuple[str, Buffer]]:
        """Operands by name, as the first buffer that reads them."""
        found: dict[str, Buffer] = {}
        for name, buffer in zip(self.reads, self.nest.inputs, strict=True):
            found.setdefault(name, buffer)
        return list(found.items())

    def empty(self, shape: str, dtype: DType) -> str:
        """A new tensor, made by the first operand."""
        first = self.operands[0]
        same = any(name == first and b.dtype == dtype for name, b in self.tensors())
        return f"{first}.new_empty({shape}{'' if same else f', dtype={dtype_text(dtype)}'})"

    def made_contiguous(self) -> list[str]:
        """Tensors in which axes are merged."""
        wide_groups = [g for g in self.groups if len(g) > 1]
        return list(dict.fromkeys(
            name for name, b in zip(self.reads, self.nest.inputs, strict=True)
            if any(sum(b.dims[a] is not None for a in g) > 1 for g in wide_groups)
        ))  # fmt: skip

    def size(self, axis: int) -> str:
        """The size of an axis, from a tensor that has it."""
        for name, buffer in zip(self.reads, self.nest.inputs, strict=True):
            dim = buffer.dims[axis]
            if dim is not None:
                return f"{name}.shape[{dim}]"
        return str(self.nest.sizes[axis])

    def shape(self, buffer: Buffer) -> str:
        sizes = ["1"] * len(buffer.shape)
        for axis, dim in enumerate(buffer.dims):
            if dim is not None:
                alone = next((k for k, g in enumerate(self.groups) if g == [axis]), None)
                sizes[dim] = self.size(axis) if alone is None else self.axes[alone]
        return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"

    def partial(self, fold: Instr) -> str:
        return f"(grid[-1], {'n_columns' if fold.level == 'cell' else '1'})"

    def argument(self, p: str) -> str:
        """What the launcher passes for an argument of the emitted kernel."""
        b = self.blocks
        settled = {"BR": b.rows, "BC": b.columns, "TILES": b.tiles}
        if p in settled:
            return f"{p}={settled[p]}"
        if p == "INDEX":
            if self.covered() > WIDE_INDEX:
                return "INDEX=tl.int64"
            names = [*dict.fromkeys(self.reads)]
            names += [r for k, r in enumerate(self.results) if k not in self.fold_of]
            given = JOINED.join(names)
            given = given if len(given) < 60 else ", ".join(names)
            return f"INDEX=index_type({given})"
        part = _PART.fullmatch(p)
        if part is None:
            if p in ("n_rows", "n_columns"):
                return p
            if re.fullmatch(r"n\d+", p):
                return self.axes[int(p[1:])]
            raise CodegenError(f"the kernel has an argument {p} that no launcher knows")
        which, k = part[1], int(part[2])
        if which == "fold":
            return f"{self.fold_result(k)}_parts"
        name = self.reads[k] if which == "in" else self.results[k]
        if part[3] is None:
            return name
        buffer = (self.nest.inputs if which == "in" else self.nest.outputs)[k]
        return f"{name}.stride({buffer.dims[self.groups[int(part[3])][-1]]})"

    def covered(self) -> int:
        """The most positions that programs count, with those that masks cut off."""
        b = self.blocks
        programs = grid_of(self.form, self.n_rows, self.n_columns, b)[-1]
        partial = programs * self.n_columns if self.folds else 0
        columns = -(-self.n_columns // b.columns) * b.columns
        return max(programs * b.rows * b.tiles, columns, partial)

    def combined(self, k: int, fold_name: str) -> list[str]:
        """Partial results, one per program, become one."""
        name = self.fold_result(k)
        buffer = self.nest.outputs[self.results.index(name)]
        cells = self.folds[k].level == "cell"
        n, programs = ("n_columns", f"triton.cdiv(n_columns, {COLUMNS})") if cells else ("1", "1")
        made = wrapped(f"{name} = {self.empty(f'({n},)', buffer.dtype)}", 8)
        if cells and not self.n_columns:
            return made
        call = f"{fold_name}[({programs},)]({name}_parts, {name}, grid[-1], {n}"
        return [*made, *wrapped(f"{call}, BP={PARTIALS},\xa0BC={COLUMNS})", 8)]

    def reshaped(self, k: int) -> list[str]:
        name = self.fold_result(k)
        buffer = self.nest.outputs[self.results.index(name)]
        named = [a for a, d in enumerate(buffer.dims) if d is not None]
        order = sorted(range(len(named)), key=lambda p: buffer.dims[named[p]] or 0)
        text = name
        if order != list(range(len(named))):
            text += f".reshape({', '.join(self.size(a) for a in named)}).permute({tuple(order)})"
        if len(buffer.shape) != 1:
            text += f".reshape({self.shape(buffer)})"
        return [] if text == name else wrapped(f"{name} = {text}", 4)


def functions_of(source: str) -> dict[str, str]:
    """Every function of emitted Triton source, with its decorator, by name and in order."""
    lines = source.removeprefix(HEADER).splitlines()
    found = {}
    for statement in ast.parse("\n".join(lines)).body:
        if not isinstance(statement, ast.FunctionDef):
            raise CodegenError("emitted Triton source has a statement that is no function")
        first = statement.decorator_list[0].lineno
        found[statement.name] = "\n".join(lines[first - 1 : statement.end_lineno])
    return found


def _with_names(
    body: Sequence[Instr], reads: Sequence[str], results: Sequence[str]
) -> tuple[Instr, ...]:
    """Instructions under the names of the tensors that they load and that are stored from them."""
    names: dict[str, str] = {}
    for i in body:
        k = i.attrs.get("buffer")
        if i.op == "load" and isinstance(k, int) and reads[k] not in names.values():
            names[i.name] = reads[k]
    for i in body:
        k = i.attrs.get("buffer")
        if i.op == "store" and isinstance(k, int) and isinstance(i.args[0], str):
            names.setdefault(i.args[0], results[k])
    given = Names(names.values())
    for i in body:
        if i.name and i.name not in names:
            names[i.name] = given.unique(i.name if i.name not in given.taken else _base(i.name))
    return tuple(
        replace(i, name=names.get(i.name, ""),
                args=tuple(names[a] if isinstance(a, str) else a for a in i.args))
        for i in body
    )  # fmt: skip


def _base(name: str) -> str:
    return re.sub(r"_\d+$", "", name)


def _listed(parameters: Sequence[str], texts: Mapping[str, str]) -> str:
    """Arguments in order; those of one tensor are not to be broken apart."""
    groups: list[list[str]] = []
    previous = None
    for p in parameters:
        part = _PART.fullmatch(p)
        tensor = part and (part[1], part[2])
        if tensor is not None and tensor == previous:
            groups[-1].append(texts[p])
        else:
            groups.append([texts[p]])
        previous = tensor
    return ", ".join(JOINED.join(g) for g in groups)


def _contiguous(buffer: Buffer) -> list[int | None]:
    strides = [math.prod(buffer.shape[d + 1 :]) for d in range(len(buffer.shape))]
    return [None if d is None else strides[d] for d in buffer.dims]


def _typed(buffer: Buffer) -> str:
    return f"{buffer.dtype}[{','.join(map(str, buffer.shape))}]"
