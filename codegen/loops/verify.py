"""The verifier of loop nests: order, levels, stages, buffers, attributes, dtypes, outputs.

    verify_nest(nest)                   # None, or VerifyError with the instructions around
    nest = checked(nest, "llvm")        # the nest; verified where GRADOF_CHECK=1

Note [Loop nests] in `ir` says what levels and stages are, `instructions` what each instruction may
have. Given to `target`, a nest has no instruction that this target would not take.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NoReturn

from gradof.codegen.loops.instructions import (
    INSTRUCTIONS,
    KINDS,
    Instruction,
    Target,
    is_elementwise,
    is_whole,
    takes,
)
from gradof.codegen.loops.ir import LEVELS, Buffer, Instr, Level, LoopNest
from gradof.codegen.loops.text import instr_lines
from gradof.codegen.lowering.half import HALVES
from gradof.errors import InferenceError, VerifyError
from gradof.ir.attrs import Attr
from gradof.ir.opinfo import OPS
from gradof.ir.types import F32, I64, DType, ScalarType, TensorType, Type
from gradof.passes.pipeline import checking

_AROUND = 3  # instructions shown on each side of the offending one
_HINT = "with GRADOF_CHECK=1 nests are verified after each pass: that names the one at fault"


def checked(nest: LoopNest, target: Target | None = None, after: str = "") -> LoopNest:
    """The nest, verified where GRADOF_CHECK=1; `after` names the pass that made it."""
    if checking():
        verify_nest(nest, target, after)
    return nest


def verify_nest(nest: LoopNest, target: Target | None = None, after: str = "") -> None:
    """Check every rule; VerifyError at the first one broken, with the instruction at fault."""
    _Verifier(nest, target, after).run()


class _Verifier:
    def __init__(self, nest: LoopNest, target: Target | None, after: str) -> None:
        self.nest = nest
        self.target = target
        self.after = after
        self.made: dict[str, Instr] = {}
        self.stored: dict[int, list[Instr]] = {}

    def fail(self, message: str, at: Instr | None = None) -> NoReturn:
        where = f"{self.nest.name} after {self.after}" if self.after else self.nest.name
        lines = [f"loop nest {where}: {message}"]
        body = list(self.nest.body)
        place = next((k for k, i in enumerate(body) if i is at or at in i.body), None)
        if at is not None and place is not None:
            for i in body[max(0, place - _AROUND) : place + _AROUND + 1]:
                shown = instr_lines(i, i.name in self.nest.held)
                lines += [("> " if i is body[place] else "  ") + line for line in shown]
        raise VerifyError("\n".join(lines), loc=at.loc if at is not None else None, hint=_HINT)

    def run(self) -> None:
        nest = self.nest
        if not 0 <= nest.rows <= len(nest.sizes):
            self.fail(f"{nest.rows} rows of {len(nest.sizes)} axes")
        if nest.reads and len(nest.reads) != len(nest.inputs):
            self.fail(f"{len(nest.reads)} `reads` for {len(nest.inputs)} inputs")
        named = {
            (i.attrs.get("buffer"), i.attrs.get("axis"))
            for i in nest.body if i.op == "load" and i.args
        }  # fmt: skip
        for k, b in enumerate(nest.inputs):
            if b.times:
                self.fail(f"input {k} is {b.times} times as long as the nest")
            self.buffer(f"input {k}", b, {axis for n, axis in named if n == k})
        for k, b in enumerate(nest.outputs):
            if b.windows:
                self.fail(f"output {k} has a window")
            self.buffer(f"output {k}", b, set())
        for i in nest.body:
            self.instr(i, self.made)
        self.outputs()
        for name in sorted(nest.held):
            if name not in self.made or self.made[name].level != "cell":
                self.fail(f"{name} is held, and no cell")

    # --- buffers ---------------------------------------------------------------------------------

    def buffer(self, which: str, b: Buffer, named: set[object]) -> None:
        """Its axes are those of the nest; sizes agree, but where cells are `named`."""
        sizes = self.nest.sizes
        if len(b.dims) != len(sizes):
            self.fail(f"{which} has {len(b.dims)} dims for {len(sizes)} axes")
        dims = [d for d in b.dims if d is not None]
        if len(set(dims)) != len(dims) or not all(0 <= d < len(b.shape) for d in dims):
            self.fail(f"{which} has the dims {b.dims} for the shape {b.shape}")
        if any(n != 1 for d, n in enumerate(b.shape) if d not in dims):
            self.fail(f"{which} varies along a dim that is no axis of the nest")
        windows = {axis: (first, last) for axis, first, last in b.windows}
        times = dict(b.times)
        if len(windows) != len(b.windows) or len(times) != len(b.times):
            self.fail(f"{which} has two windows, or `times`, along one axis")
        for axis in (*windows, *times):
            if not 0 <= axis < len(sizes) or (axis in times and b.dims[axis] is None):
                self.fail(f"{which} has no axis {axis}")
        for axis, d in enumerate(b.dims):
            first, last = windows.get(axis, (0, sizes[axis]))
            if not 0 <= first <= last <= sizes[axis]:
                self.fail(f"{which} has the window {first} to {last} of {sizes[axis]}")
            if d is None or axis in named:
                continue
            if b.shape[d] != (last - first) * times.get(axis, 1):
                self.fail(f"{which} has {b.shape[d]} cells along axis {axis} of {sizes[axis]}")

    def outputs(self) -> None:
        """Each is written once, or each of its parts is."""
        for k, b in enumerate(self.nest.outputs):
            writes = self.stored.get(k, [])
            found = sorted(str(i.attrs.get("offset")) for i in writes)
            if not b.times:
                expected = ["None"]
            else:
                ((axis, times),) = b.times
                expected = sorted(str(n * self.nest.sizes[axis]) for n in range(times))
                if any(i.attrs.get("axis") != axis or i.op != "store" for i in writes):
                    self.fail(f"output {k} has its parts along axis {axis}", writes[0])
            if found != expected:
                self.fail(
                    f"output {k} is to be written at {expected}, and is at {found}",
                    writes[-1] if writes else None,
                )

    # --- instructions ----------------------------------------------------------------------------

    def instr(self, i: Instr, made: dict[str, Instr]) -> None:
        declared = INSTRUCTIONS.get(i.op)
        if declared is None and not is_elementwise(i.op):
            self.fail(f"unknown instruction {i.op!r}", i)
        if self.target is not None and not takes(self.target, i.op):
            self.fail(f"{self.target} does not take {i.op!r}", i)
        if i.level not in LEVELS or i.stage < 0 or (i.level == "once" and i.stage):
            self.fail(f"{i.level} {i.stage} is no level and stage", i)
        if (i.name == "") != (i.op in ("store", "fold")):
            self.fail("only a store or a fold has no name", i)
        if i.name in made:
            self.fail(f"{i.name} is made twice", i)
        read = self.operands(i, made)
        self.attributes(i, declared)
        self.operand_count(i, declared, made)
        self.place(i, declared, read)
        if i.body or i.op == "pick":
            self.body(i, made)
        if declared is None:
            self.elementwise(i, made)
        else:
            self.dtype(i, declared, read)
        if i.op in ("store", "fold"):
            self.stored.setdefault(i.buffer, []).append(i)
        if i.name:
            made[i.name] = i

    def operands(self, i: Instr, made: Mapping[str, Instr]) -> list[Instr]:
        for a in i.args:
            if isinstance(a, str) and a not in made:
                self.fail(f"{a} is read before it is made", i)
        return [made[a] for a in i.args if isinstance(a, str)]

    def operand_count(
        self, i: Instr, declared: Instruction | None, made: Mapping[str, Instr]
    ) -> None:  # fmt: skip
        if declared is None:
            return
        most = len(declared.operands)
        if not most - declared.optional <= len(i.args) <= most:
            self.fail(f"{i.op} takes {declared.operands}, not {len(i.args)} operands", i)
        for name, a in zip(declared.operands, i.args, strict=False):
            if name in declared.cells and (not isinstance(a, str) or made[a].level != "cell"):
                self.fail(f"{name} of {i.op} is to be a cell", i)
        if i.op == "inverse_deviation" and made[str(i.args[0])].op != "layer_norm":
            self.fail("it is that of a layer_norm", i)
        if i.op == "exp_sum":
            m = made[str(i.args[1])]
            if m.op != "reduce" or m.attrs["kind"] != "max" or m.args != i.args[:1]:
                self.fail("m is to be the largest x of the row", i)
        if "part" in i.attrs and (
            i.attrs["part"] != 1 or made[str(i.args[0])].op != "layer_norm_grad"
        ):
            self.fail("a part is of a layer_norm_grad", i)

    def attributes(self, i: Instr, declared: Instruction | None) -> None:
        if declared is None:
            return
        for name in declared.attrs:
            if name not in i.attrs:
                self.fail(f"{i.op} has no attribute {name}", i)
        known = {**declared.attrs, **declared.more}
        for name, value in i.attrs.items():
            if name not in known:
                self.fail(f"{i.op} has an attribute {name} that nobody reads", i)
            if not isinstance(value, known[name]):
                self.fail(f"{name} of {i.op} is {value!r}", i)
        self.in_range(i, i.attrs)

    def in_range(self, i: Instr, attrs: Mapping[str, Attr]) -> None:
        of = {"load": self.nest.inputs, "store": self.nest.outputs, "fold": self.nest.outputs}
        for name, many in (("buffer", len(of.get(i.op, ()))), ("axis", len(self.nest.sizes))):
            value = attrs.get(name, 0)
            if name in attrs and not 0 <= int(str(value)) < many:
                self.fail(f"{name} {value} of {many}", i)
        if attrs.get("kind", "sum") not in KINDS:
            self.fail(f"no kind of reduction: {attrs['kind']!r}", i)
        if i.op == "load" and bool(i.args) != ("axis" in attrs):
            self.fail("a load has an operand and the axis along which this names cells", i)
        if i.op == "load" and self.nest.inputs[int(str(attrs["buffer"]))].windows:
            if "other" not in attrs:
                self.fail("what is it outside of its window?", i)

    # --- levels and stages -----------------------------------------------------------------------

    def place(self, i: Instr, declared: Instruction | None, read: Iterable[Instr]) -> None:
        read = list(read)
        rule = "operands" if declared is None else declared.level
        if rule in ("row", "cell"):
            if i.level != rule:
                self.fail(f"{i.op} gives a {rule}", i)
        else:
            levels = [j.level for j in read]
            if rule == "axes":
                levels.append(self.level_of_axes(i))
            least = max(levels, key=LEVELS.index, default="once")
            if LEVELS.index(i.level) < LEVELS.index(least):
                self.fail(f"it is of the level {least}", i)
        after = max((j.stage for j in read), default=0) + is_whole(i.op)
        if i.stage < after:
            self.fail(f"it is known from stage {after} on", i)
        if i.op == "fold" and [j.level for j in read] != [i.level]:
            self.fail("a fold is of the level of its operand", i)
        if i.op == "fold":
            self.folds(i)

    def level_of_axes(self, i: Instr) -> Level:
        if i.op == "index":
            axes = [int(str(i.attrs["axis"]))]
        else:
            buffers = self.nest.inputs if i.op == "load" else self.nest.outputs
            dims = buffers[i.buffer].dims
            named = i.attrs.get("axis") if i.op == "load" and i.args else None
            axes = [k for k, d in enumerate(dims) if d is not None and k != named]
        if any(k >= self.nest.rows for k in axes):
            return "cell"
        return "row" if axes else "once"

    def folds(self, i: Instr) -> None:
        """What is folded has the column axes, if it is of cells, and no others."""
        dims = self.nest.outputs[i.buffer].dims
        axes = [k for k, d in enumerate(dims) if d is not None]
        if any(k < self.nest.rows for k in axes) or (axes and i.level != "cell"):
            self.fail(f"output {i.attrs['buffer']} has axes that the fold has not", i)

    def body(self, i: Instr, made: Mapping[str, Instr]) -> None:
        """That of a `pick`: cells of one column axis, in names of their own."""
        if i.op != "pick" or not i.body:
            self.fail("a pick has a body, and nothing else has", i)
        if len(self.nest.sizes) != self.nest.rows + 1:
            self.fail("a pick needs one axis of columns", i)
        own = {j.name for j in i.body}
        inside = {name: j for name, j in made.items() if name not in own}
        for j in i.body:
            if j.op in ("store", "fold", "pick") or j.level != "cell" or is_whole(j.op):
                self.fail(f"{j.op} is no cell of a body", i)
            self.instr(j, inside)
        if i.body[-1].dtype != i.dtype:
            self.fail(f"its body gives {i.body[-1].dtype}", i)

    # --- dtypes ----------------------------------------------------------------------------------

    def dtype(self, i: Instr, declared: Instruction, read: Iterable[Instr]) -> None:
        """Half precision may be widened to float32: as it is loaded, reduced or stored."""
        given = [j.dtype for j in read]
        if i.op in ("load", "store", "fold"):
            buffers = self.nest.inputs if i.op == "load" else self.nest.outputs
            buffer = buffers[i.buffer]
            if not _widens(buffer.dtype, i.dtype) and not (
                i.op == "fold" and i.dtype.is_float and i.dtype.bits > buffer.dtype.bits
            ):  # a fold is rounded as it is stored
                self.fail(f"{i.dtype} of {buffer.name or 'a buffer'}, which is {buffer.dtype}", i)
        own = {"i64": {I64}, "f32": {F32}}.get(declared.dtype)
        if own is not None and {i.dtype, *given} != own:
            self.fail(f"{i.op} does not give {i.dtype}", i)
        if i.op == "load":  # an operand names cells
            fits = given in ([], [I64])
        elif i.op == "fold":
            fits = all(_widens(i.dtype, d) or _widens(d, i.dtype) for d in given)
        elif i.op == "pick":
            fits = given == [I64]
        elif i.op == "place":
            fits = given == [i.dtype, I64, i.dtype]
        elif declared.dtype == "wide":
            fits = all(_widens(d, i.dtype) for d in given)
        else:
            fits = all(d == i.dtype for d in given)
        if not fits:
            self.fail(f"operands of {', '.join(map(str, given))} for {i.op} of {i.dtype}", i)

    def elementwise(self, i: Instr, made: Mapping[str, Instr]) -> None:
        """The registry's type rule, of scalars."""
        record = OPS[i.op]
        names = getattr(record, "attrs", ())
        attrs = {k: v for k, v in i.attrs.items() if k in names}
        if len(attrs) != len(i.attrs) - ("weak" in i.attrs):
            self.fail(f"{i.op} has an attribute that nobody reads", i)
        for a in i.args:
            if not isinstance(a, str) and type(a) not in (bool, int, float):
                self.fail(f"{a!r} is no number of Python's", i)
        types = [
            TensorType(made[a].dtype, ()) if isinstance(a, str) else _number(a) for a in i.args
        ]
        try:
            (found,) = record.infer(types, attrs)
        except InferenceError as error:
            self.fail(error.message, i)
        have = found.dtype if isinstance(found, TensorType) else None
        if have is not None and have != i.dtype:
            self.fail(f"{i.op} gives {have}, not {i.dtype}", i)


def _number(value: bool | int | float) -> Type:
    kinds = {bool: "bool", int: "int", float: "float"}
    return ScalarType(kinds[type(value)])  # type: ignore[arg-type]  # one of the literals


def _widens(dtype: DType, to: DType) -> bool:
    """Whether it is the dtype, or float32 for half precision."""
    return to == dtype or (dtype in HALVES and to == F32)
