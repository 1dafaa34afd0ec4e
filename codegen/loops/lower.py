"""A FusionGroup → its loop nest.

Given  FusionGroup(%x : f32[8,4]) block(%x): %s : f32[8,1] = sum[dims=(1,), …](square(%x))
the nest runs over rows (8,) and columns (4,), loads x, squares it and reduces over the columns.

Axes keep the order in which values have them, rows before columns. Where a group has no reduction,
or only reductions of everything, its last axis are the columns.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from dataclasses import replace

from gradof.codegen.fusion.access import Axes, follow, pads_of
from gradof.codegen.fusion.groups import is_free
from gradof.codegen.fusion.iteration_space import NUMBERS, REDUCTIONS, Fit, Space
from gradof.codegen.loops import positions
from gradof.codegen.loops.ir import LEVELS, Buffer, Instr, Level, LoopNest, Operand
from gradof.codegen.loops.verify import checked
from gradof.codegen.machine.source import Names
from gradof.errors import CodegenError
from gradof.ir.attrs import Attr
from gradof.ir.core import Block, Loc, Node, Value
from gradof.ir.types import BF16, BOOL, F16, F32, F64, I64, DType, ScalarType, TensorType
from gradof.ops.cost import cost_of

SCALARS = {"bool": BOOL, "int": I64, "float": F64}
IDENTITY = frozenset({"copy", "alias", "detach"})
_ROUNDED = 3  # instructions of a rounding to half precision; see `held_cells`


def schedule(node: Node, name: str = "kernel") -> LoopNest:
    """The loop nest of a FusionGroup; CodegenError if its nodes do not fit into one."""
    return _Scheduler(node.blocks[0], name, bool(node.attrs.get("device"))).run()


class _Scheduler:
    def __init__(self, block: Block, name: str, device: bool) -> None:
        self.block = block
        self.name = name
        self.space = Space(lambda node: True, device)
        for node in block.nodes():
            if not is_free(node):
                fit = self.space.fit(node)
                if fit is None:
                    raise CodegenError(f"{node.kind} does not fit into its group", loc=node.loc)
                self.space.add(fit)
        columns = self.space.columns
        if columns is None:
            columns = frozenset(self.space.order[-1:])
        self.columns = columns
        order = self.space.order
        self.nest_order = [a for a in order if a not in columns] + [
            a for a in order if a in columns
        ]
        self.rows = len(self.nest_order) - len(columns)
        self.body: list[Instr] = []
        self.inputs: list[Buffer] = []
        self.reads: list[int] = []
        self.outputs: list[Buffer] = []
        self.names: dict[Value, str] = {}
        self.made: dict[str, Instr] = {}
        self.loads: dict[tuple[Value, Axes], str] = {}
        self.given = Names()
        self.results = set(block.results)
        self.stored_as = {
            follow(f.node.inputs[0]).base: f.node.output
            for f in self.space.fits if f.how == "recast"
        }  # fmt: skip

    def run(self) -> LoopNest:
        for value in self.block.results:
            self.outputs.append(self.output(value))
        for fit in self.space.fits:
            self.node(fit)
        sizes = tuple(self.space.sizes[a] for a in self.nest_order)
        nest = LoopNest(
            self.name, sizes, self.rows, tuple(self.inputs), tuple(self.outputs),
            tuple(self.body), reads=tuple(self.reads),
        )  # fmt: skip
        return checked(replace(nest, held=held_cells(nest)), after="lowering")

    # --- inputs and outputs ----------------------------------------------------------------------

    def access_axes(self, fit: Fit, index: int) -> tuple[Value, Axes]:
        """An operand's base, and per dim of the base the axis it varies along."""
        operand = fit.node.inputs[index]
        access = follow(operand)
        whole = fit.whole
        if fit.node.kind == "gather" and index == 1:
            whole = tuple(None if k == fit.node.attrs["dim"] else a for k, a in enumerate(whole))
        base = access.base.shape
        assert base is not None
        lead = len(whole) - len(access.dims)
        axes: list[int | None] = [None] * len(base)
        for j, d in enumerate(access.dims):
            if d is not None and base[d] != 1:
                axes[d] = whole[j + lead]
        return access.base, tuple(axes)

    def buffer(self, value: Value, axes: Axes) -> Buffer:
        shape = value.shape
        assert shape is not None
        dims = tuple(axes.index(a) if a in axes else None for a in self.nest_order)
        return Buffer(value.hint or "", self.dtype(value), shape, dims)

    def output(self, value: Value) -> Buffer:
        buffer = self.buffer(value, self.space.axes[value])
        if value.node is None or value.node.kind != "cat":
            return buffer
        return replace(buffer, times=((self.joined_axis(value), len(value.node.inputs)),))

    def joined_axis(self, value: Value) -> int:
        """The axis along which a `cat` has its parts."""
        assert value.node is not None
        dim = value.node.attrs["dim"]
        assert isinstance(dim, int)
        axis = self.space.axes[value][dim]
        assert axis is not None
        return self.nest_order.index(axis)

    def dtype(self, value: Value) -> DType:
        if isinstance(value.type, TensorType):
            return value.type.dtype
        assert isinstance(value.type, ScalarType)
        return SCALARS[value.type.kind]

    # --- instructions ----------------------------------------------------------------------------

    def emit(
        self, op: str, args: tuple[Operand, ...], dtype: DType, *, level: Level | None = None,
        stage: int | None = None, hint: str | None = None, loc: Loc | None = None,
        attrs: Mapping[str, Attr] | None = None,
    ) -> str:  # fmt: skip
        read = [self.made[a] for a in args if isinstance(a, str)]
        if level is None:
            levels = {i.level for i in read}
            level = "cell" if "cell" in levels else "row" if "row" in levels else "once"
        if stage is None:
            stage = max((i.stage for i in read), default=0)
        name = self.fresh(hint or op) if op not in ("store", "fold") else ""
        instr = Instr(name, op, args, dtype, level, stage, dict(attrs or {}), loc)
        self.body.append(instr)
        if name:
            self.made[name] = instr
        return name

    def fresh(self, base: str) -> str:
        base = re.sub(r"\W", "_", base, flags=re.ASCII)
        base = f"_{base}" if base[:1].isdigit() or keyword.iskeyword(base) else base
        return self.given.unique(base)

    def level_of(self, axes: Axes) -> Level:
        varying = {a for a in axes if a is not None}
        if varying & self.columns:
            return "cell"
        return "row" if varying else "once"

    def operand(self, fit: Fit, index: int) -> Operand:
        """An operand as a number or the name of an instruction, loaded if need be."""
        base, axes = self.access_axes(fit, index)
        node = base.node
        if node is not None and node.kind in ("Constant", *NUMBERS):
            value = node.attrs.get("value", True)
            assert isinstance(value, (bool, int, float))
            if node.kind == "Constant":
                return value
            key = (base, axes)
            if node.kind in ("within", "position"):
                if key not in self.loads:
                    made = positions.within if node.kind == "within" else positions.numbered
                    self.loads[key] = made(self, base, axes)
                return self.loads[key]
            if key not in self.loads:  # a number that has its dtype, unlike a Constant
                dtype = self.dtype(base)
                self.loads[key] = self.emit("cast", (value,), dtype, attrs={"dtype": dtype})
            return self.loads[key]
        if base in self.names:
            return self.names[base]
        key = (base, axes)
        if key not in self.loads:
            k = len(self.inputs)
            self.inputs.append(self.buffer(base, axes))
            self.reads.append(self.block.params.index(base))
            self.loads[key] = self.emit(
                "load", (), self.dtype(base), level=self.level_of(axes), stage=0,
                hint=base.hint or f"in{k}", loc=fit.node.loc, attrs={"buffer": k},
            )  # fmt: skip
        return self.loads[key]

    def node(self, fit: Fit) -> None:
        node = fit.node
        if fit.how == "cells":
            name = self.cells(fit)
        elif fit.how == "pick":
            name = self.pick(fit)
        elif fit.how in ("join", "recast"):
            if fit.how == "join":
                self.join(fit)
            return
        else:
            cell = self.picked(fit) if node.kind == "gather" else self.operand(fit, 0)
            name = self.reduction(fit, cell)
        self.names[node.output] = name
        if fit.how in ("cells", "reduce", "pick") and node.output in self.results:
            k = self.block.results.index(node.output)
            level = max(self.made[name].level, self.level_of(fit.axes), key=LEVELS.index)
            stage = self.made[name].stage
            self.emit("store", (name,), self.dtype(node.output), level=level, stage=stage,
                      loc=node.loc, attrs={"buffer": k})  # fmt: skip

    def join(self, fit: Fit) -> None:
        """A store for each part, one after the other along an axis."""
        node = fit.node
        k, axis = self.block.results.index(node.output), self.joined_axis(node.output)
        for n in range(len(node.inputs)):
            name = self.operand(fit, n)
            assert isinstance(name, str)
            level = max(self.made[name].level, self.level_of(fit.axes), key=LEVELS.index)
            size = self.space.sizes[self.nest_order[axis]]
            self.emit("store", (name,), self.dtype(node.output), level=level,
                      stage=self.made[name].stage, loc=node.loc,
                      attrs={"buffer": k, "axis": axis, "offset": n * size})  # fmt: skip

    def cells(self, fit: Fit) -> str:
        node = fit.node
        dtype = self.dtype(node.output)
        if node.kind == "scatter_add":
            return self.placed(fit)
        if node.kind == "pad":
            return self.padded(fit)
        args = tuple(self.operand(fit, k) for k in range(len(node.inputs)))
        if node.kind in IDENTITY and isinstance(args[0], str):
            return args[0]
        args = tuple(self.strong(a, node, k) for k, a in enumerate(args))
        return self.emit(
            node.kind, args, dtype, hint=node.output.hint, loc=node.loc, attrs=node.attrs
        )

    def strong(self, arg: Operand, node: Node, index: int) -> Operand:
        """A weak scalar of the caller's in the dtype it takes on beside tensors."""
        value = node.inputs[index]
        if not isinstance(value.type, ScalarType) or not isinstance(arg, str):
            return arg
        others = [v for v in node.inputs if isinstance(v.type, TensorType)]
        dtypes = {
            self.dtype(v) for v in others if not (node.kind == "where" and v is node.inputs[0])
        }
        dtype = dtypes.pop() if len(dtypes) == 1 else self.dtype(node.output)
        if self.made[arg].dtype == dtype:
            return arg
        attrs: dict[str, Attr] = {"dtype": dtype}
        if dtype in (F16, BF16):  # read as it is by some (`loops/passes/widen_half`)
            attrs["weak"] = True
        return self.emit("cast", (arg,), dtype, attrs=attrs)

    def reduction(self, fit: Fit, cell: Operand) -> str:
        node, dtype = fit.node, self.dtype(fit.node.output)
        kind = REDUCTIONS.get(node.kind, "sum")
        if fit.how == "fold rows":
            level: Level = "row"
        else:
            level = "cell"
        if not isinstance(cell, str) or self.made[cell].level != level:
            cell = self.emit("copy", (cell,), dtype, level=level)  # the same in every cell
        if fit.how in ("reduce", "all"):
            stage = self.made[cell].stage + 1
            # of a sum of everything, that of a row is no result and is not rounded like one
            half = fit.how == "all" and dtype in (F16, BF16) and kind in ("sum", "prod")
            cell = self.emit("reduce", (cell,), F32 if half else dtype, level="row", stage=stage,
                             hint=node.output.hint, loc=node.loc, attrs={"kind": kind})  # fmt: skip
            if fit.how == "reduce":
                return cell
            level = "row"
        k = self.block.results.index(self.stored_as.get(node.output, node.output))
        self.emit("fold", (cell,), dtype, level=level, stage=self.made[cell].stage, loc=node.loc,
                  attrs={"kind": kind, "buffer": k})  # fmt: skip
        return cell

    # --- one-hot gathers: Note [One-hot gathers] in gradof.codegen.fusion.iteration_space

    def hit(self, fit: Fit, dim: object, index: Operand) -> str:
        assert isinstance(dim, int)
        at, _ = positions.position(self, fit.whole[dim])
        if isinstance(index, str) and self.made[index].dtype != I64:
            index = self.emit("cast", (index,), I64, attrs={"dtype": I64})
        return self.emit("eq", (at, index), BOOL)

    def padded(self, fit: Fit) -> str:
        """A load of cells that the operand has (Note [Windows] in `fusion.iteration_space`)."""
        node = fit.node
        shape = node.inputs[0].shape
        assert shape is not None
        base, axes = self.access_axes(fit, 0)
        windows = []
        for axis, pair, n in zip(fit.axes, pads_of(node), shape, strict=True):
            if pair != (0, 0):
                assert axis is not None
                windows.append((self.nest_order.index(axis), pair[0], pair[0] + n))
        k = len(self.inputs)
        self.inputs.append(replace(self.buffer(base, axes), windows=tuple(windows)))
        self.reads.append(self.block.params.index(base))
        return self.emit(
            "load", (), self.dtype(base), level=self.level_of(fit.axes), stage=0,
            hint=base.hint or f"in{k}", loc=node.loc,
            attrs={"buffer": k, "other": self.strong_number(node.attrs["value"], base)},
        )  # fmt: skip

    def strong_number(self, value: Attr, like: Value) -> bool | int | float:
        assert isinstance(value, (bool, int, float))
        kind = self.dtype(like).kind
        return bool(value) if kind == "bool" else int(value) if kind == "int" else float(value)

    def pick(self, fit: Fit) -> str:
        """A load of the cells that an index names, in place of one along an axis."""
        node = fit.node
        index = self.operand(fit, 1)
        if isinstance(index, str) and self.made[index].dtype != I64:
            index = self.emit("cast", (index,), I64, attrs={"dtype": I64})
        base, axes = self.access_axes(fit, 0)
        k, dim = len(self.inputs), node.attrs["dim"]
        assert isinstance(dim, int)
        axis = fit.whole[dim]
        assert axis is not None
        self.inputs.append(self.buffer(base, axes))
        self.reads.append(self.block.params.index(base))
        return self.emit(
            "load", (index,), self.dtype(base), level=self.level_of(fit.axes),
            hint=node.output.hint, loc=node.loc,
            attrs={"buffer": k, "axis": self.nest_order.index(axis)},
        )  # fmt: skip

    def picked(self, fit: Fit) -> str:
        node = fit.node
        value = self.operand(fit, 0)
        hit = self.hit(fit, node.attrs["dim"], self.operand(fit, 1))
        return self.emit("where", (hit, value, 0), self.dtype(node.output), loc=node.loc)

    def placed(self, fit: Fit) -> str:
        node, dtype = fit.node, self.dtype(fit.node.output)
        source = self.operand(fit, 2)
        hit = self.hit(fit, node.attrs["dim"], self.operand(fit, 1))
        name = self.emit("where", (hit, source, 0), dtype, loc=node.loc)
        onto = self.access_axes(fit, 0)[0].node
        if onto is not None and onto.kind == "full" and onto.attrs["value"] == 0:
            return name
        return self.emit("add", (self.operand(fit, 0), name), dtype, loc=node.loc)


def held_cells(nest: LoopNest) -> frozenset[str]:
    """Cells of earlier stages that cost more to compute again than to read back."""
    made = {i.name: i for i in nest.body if i.name}
    cost: dict[str, int] = {}
    for i in nest.body:
        if i.name:
            below = sum(
                cost[a] for a in i.args
                if isinstance(a, str) and made[a].level == "cell" and made[a].op != "reduce"
            )  # fmt: skip
            own = _ROUNDED if i.op == "rounded" else cost_of(i.op)
            cost[i.name] = (0 if i.op in ("load", "index") else own) + below
    late: set[str] = set()
    for i in nest.body:
        if i.level == "cell" or i.op == "reduce":
            stage = i.stage - (i.op == "reduce")
            for a in i.args:
                if isinstance(a, str) and made[a].level == "cell" and made[a].stage < stage:
                    late.add(a)
    return frozenset(a for a in late if cost[a] > 4)
