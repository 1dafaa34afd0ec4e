"""A loop nest as a function of torch tensors, run by Triton.

    kernel = TritonKernel(nest)
    y, total = kernel(x, w)             # fresh outputs, in the order of the nest

Source is made on the first call, for the axes that are left once neighbouring ones are merged, and
for the form (`triton/emit`) that the size of a row asks for. What shapes and strides decide is
kept, so that later calls take memory and launch. Where the environment says
TRITON_INTERPRET=1 before triton is imported, the same source runs on CPU tensors.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

from gradof import tuning
from gradof.codegen.loops.interpret import nest_sizes, output_shape
from gradof.codegen.loops.ir import Buffer, Instr, LoopNest
from gradof.codegen.loops.passes.merge_axes import merge_axes
from gradof.codegen.loops.verify import checked
from gradof.codegen.machine.bounded import keep
from gradof.codegen.machine.executable import loaded
from gradof.codegen.triton import tune
from gradof.codegen.triton.blocks import Blocks, blocks_for, grid_of, multiprocessors
from gradof.codegen.triton.emit import Form, checks, emit_triton, form_of
from gradof.codegen.triton.fold_source import fold_groups, folds_of
from gradof.codegen.triton.interpreter import complete, is_interpreting
from gradof.codegen.triton.ops import NAMES
from gradof.codegen.triton.planned import FoldGroup, Planned, PlannedParts
from gradof.codegen.triton.shared_rows import share_rows
from gradof.codegen.triton.split_reductions import Totals, take_totals
from gradof.errors import CodegenError
from gradof.ir import forks

WIDE_INDEX = 1 << 31
_SHARED: WeakValueDictionary[str, Source] = WeakValueDictionary()
_SHARED_LOCK = forks.rlock()
MAX_PLANNED = 64  # sets of shapes and strides that a kernel remembers the launch of


@dataclass(frozen=True)
class Source:
    """What one form and one set of axes compiled to.

    `key` is the text without the user's names and lines. Nests that differ in these alone, as the
    layers of a network do, share one, with the names of the first: triton compiles it once.
    """

    key: str
    text: str
    kernel: Any
    folds: tuple[Any, ...]  # one for each of `fold_groups`


@dataclass(frozen=True)
class _Call:
    """What shapes and strides say of a call, before its tile is chosen."""

    device: Any
    form: Form
    sizes: tuple[int, ...]
    pairs: list[tuple[Buffer, Any]]  # operands and outputs; the latter without memory
    strides: list[list[int | None]]  # along the axes of the nest
    groups: list[list[int]]
    rows: int  # axes of the nest that are rows
    n_rows: int
    n_columns: int
    made: Source
    units: int  # multiprocessors of the device


class TritonKernel:
    """See the module docstring. Thread-safe. CodegenError for an op Triton does not have."""

    def __init__(self, nest: LoopNest, max_block: int | None = None) -> None:
        self.nest = nest
        self.max_block = max_block or tuning.ROW_BLOCK
        self.form = form_of(nest)
        self.source = emit_triton(nest, self.form)
        self._made: dict[tuple[Form, tuple[int, ...]], Source] = {}
        self.planned: dict[Any, Planned | PlannedParts] = {}
        self._parts: dict[bool, PlannedParts | None] = {}  # by whether rows are few
        self._lock = threading.Lock()

    def __call__(self, *tensors: Any) -> tuple[Any, ...]:
        """Outputs on the device of the inputs; queued on its current stream."""
        key = self.key(tensors)
        planned = self.planned.get(key)
        if planned is None:
            planned = keep(self.planned, key, self._plan(tensors), MAX_PLANNED)
        return planned(tensors)

    @staticmethod
    def key(tensors: Sequence[Any]) -> tuple[Any, ...]:
        """What decides of a launch."""
        device = tensors[0].device if tensors else None
        return (device, *[t.shape for t in tensors], *[t.stride() for t in tensors])

    def rehearse(self, tensors: Sequence[Any], device: str, found: list[Any]) -> list[Any]:
        """Meta tensors for meta tensors; what their call would compile goes to `found`."""
        import torch

        call = self._call(tensors, torch.device(device))
        if isinstance(call, PlannedParts):
            return call.rehearse(tensors, device, found)
        tiles = self._tiles(call)
        best = tune.kept(self._name(call), tiles) if len(tiles) > 1 else None
        planned = [self._planned_with(call, b) for b in (tiles if best is None else [best])]
        found += [partial(p.compile, [t.dtype for t in tensors]) for p in planned]
        return planned[0].results()

    def _plan(self, tensors: Sequence[Any]) -> Planned | PlannedParts:
        """Everything of a call that shapes and strides decide."""
        import torch

        device = tensors[0].device if tensors else torch.device("cpu")
        call = self._call(tensors, device)
        if isinstance(call, PlannedParts):
            return call
        tiles = self._tiles(call)
        best = tiles[0] if len(tiles) == 1 else tune.choose(
            self._name(call), tiles,
            lambda b: tune.seconds_of(partial(self._planned_with(call, b), tensors), call.device),
            lambda b: self._planned_with(call, b).compile([t.dtype for t in tensors]),
        )  # fmt: skip
        return self._planned_with(call, best)

    def _call(self, tensors: Sequence[Any], device: Any) -> _Call | PlannedParts:
        """What is known before a tile is chosen."""
        nest = self.nest
        sizes = nest_sizes(nest, tensors)
        outputs = [_empty(b, sizes, "meta") for b in nest.outputs]
        pairs = [*zip(nest.inputs, tensors, strict=True), *zip(nest.outputs, outputs, strict=True)]
        strides = [
            [None if d is None else t.stride(d) for d in b.dims] for b, t in pairs
        ]  # fmt: skip
        rows = 0 if self.form == "pointwise" else nest.rows
        groups = merged_axes(sizes, rows, strides, indexed_loads(nest))
        n_rows, n_columns = math.prod(sizes[:rows]), math.prod(sizes[rows:])
        form, units = self.form, multiprocessors(device)
        if form == "persistent" and n_columns > self.max_block:
            if (parts := self._in_parts(n_rows < 2 * units)) is not None:
                return parts
            form = "looped"
        made = self._source(form, tuple(g[-1] for g in groups))
        return _Call(device, form, sizes, pairs, strides, groups, rows, n_rows, n_columns, made,
                     units)  # fmt: skip

    def _tiles(self, call: _Call) -> tuple[Blocks, ...]:
        """That which fits registers, or several, the best of which time tells."""
        form, nest = call.form, self.nest
        down = form == "tiled" and _runs_down(call.strides, call.groups, call.rows)
        default = blocks_for(
            nest, form, call.n_rows, call.n_columns, self.max_block, call.units, down=down
        )
        if not tune.applies(call.device, call.n_rows * call.n_columns):
            return (default,)
        folds = bool(folds_of(nest))
        return tune.candidates(default, form, call.n_columns, self.max_block, folds)

    @staticmethod
    def _name(call: _Call) -> str:
        dtypes = [str(b.dtype) for b, _ in call.pairs]
        return tune.key(call.made.key, dtypes, call.n_rows, call.n_columns, call.device)

    def _planned_with(self, call: _Call, blocks: Blocks) -> Planned:
        """The call in tiles of a size."""
        nest, made, form = self.nest, call.made, call.form
        outputs = [t for _, t in call.pairs[len(nest.inputs) :]]
        grid = grid_of(form, call.n_rows, call.n_columns, blocks)
        folds = [
            FoldGroup(nest, group, function, grid[-1], call.n_columns, call.sizes, outputs,
                      call.units)
            for group, function in zip(fold_groups(nest), made.folds, strict=True)
        ]  # fmt: skip
        folded = {k for f in folds for k in f.outputs}
        arguments: list[Any] = []
        places: list[int] = []
        for k, all_strides in enumerate(call.strides):
            if k - len(nest.inputs) not in folded:
                places.append(len(arguments))
                found = [all_strides[g[-1]] for g in call.groups]
                arguments += [None, *(s for s in found if s is not None)]
        for _ in folds_of(nest):
            places.append(len(arguments))
            arguments.append(None)
        arguments += [math.prod([call.sizes[a] for a in g]) for g in call.groups]
        # positions that masks cut off are computed, too
        covered = (
            grid[-1] * blocks.rows * blocks.tiles,
            -(-call.n_columns // blocks.columns) * blocks.columns,
            *(grid[-1] * f.columns for f in folds),
        )
        constants = {
            "INDEX": _index_type(call.pairs, max(covered)), "BR": blocks.rows,
            "BC": blocks.columns, "num_warps": blocks.warps, "enable_fp_fusion": True,
        }  # fmt: skip
        if checks(nest) and not is_interpreting():
            constants["sanitize_overflow"] = False  # which would be part of its debugging
        return Planned(
            call.device,
            [None if k in folded else (t.shape, t.dtype) for k, t in enumerate(outputs)],
            [*arguments, call.n_rows, call.n_columns, blocks.tiles], places, made.kernel, grid,
            constants, folds,
        )  # fmt: skip

    def _in_parts(self, few: bool) -> PlannedParts | None:
        """The nest in two, if a row of it is too much for one program and need not be one's.

        Where rows are few, each of them is too much for one.
        """
        with self._lock:
            if few not in self._parts:
                found = take_totals(self.nest) or (share_rows(self.nest) if few else None)
                self._parts[few] = None if found is None else self._parts_of(found)
            return self._parts[few]

    def _parts_of(self, found: Totals) -> PlannedParts:
        second = found.second
        return PlannedParts(
            TritonKernel(found.first, self.max_block),
            None if second is None else TritonKernel(second, self.max_block),
            found.given, found.made,
        )  # fmt: skip

    def _source(self, form: Form, kept: tuple[int, ...]) -> Source:
        """The source for the axes that are left, each named by the last it was merged from."""
        with self._lock:
            found = self._made.get((form, kept))
            if found is None:
                found = self._made[form, kept] = _compile(with_axes(self.nest, kept), form)
            return found


def _compile(nest: LoopNest, form: Form) -> Source:
    try:
        import triton  # noqa: F401
    except ImportError as error:
        hint = "pip install 'gradof[triton]'"
        raise CodegenError("triton is not installed", hint=hint) from error
    if is_interpreting():
        complete()
    key = emit_triton(_unnamed(nest), form)
    with _SHARED_LOCK:
        found = _SHARED.get(key)
        if found is None:
            found = _SHARED[key] = _loaded(key, nest, form)
        return found


def _unnamed(nest: LoopNest) -> LoopNest:
    """The nest with numbers for the user's names, and without lines."""
    new = {i.name: f"v{k}" for k, i in enumerate(nest.body) if i.name}

    def renamed(i: Instr) -> Instr:
        args = tuple(new.get(a, a) if isinstance(a, str) else a for a in i.args)
        return replace(i, name=new.get(i.name, i.name), args=args, loc=None)

    return replace(
        nest, name="kernel", body=tuple(map(renamed, nest.body)),
        inputs=tuple(replace(b, name="") for b in nest.inputs),
        outputs=tuple(replace(b, name="") for b in nest.outputs),
        held=frozenset(new[name] for name in nest.held),
    )  # fmt: skip


def _loaded(key: str, nest: LoopNest, form: Form) -> Source:
    text = emit_triton(nest, form)
    space = loaded(text, nest.name, nest.name)
    folds = tuple(space[f"{nest.name}_fold{k}"] for k in range(len(fold_groups(nest))))
    return Source(key, text, space[nest.name], folds)


def _index_type(pairs: Sequence[tuple[Buffer, Any]], largest: int) -> Any:
    """int64 where int32 does not hold the place of an element, or all of `largest` positions."""
    import triton.language as tl

    reach = [
        sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True)) for _, t in pairs
    ]
    return tl.int64 if max(largest - 1, *reach) >= WIDE_INDEX else tl.int32


def _empty(buffer: Buffer, sizes: Sequence[int], device: Any) -> Any:
    import torch

    name = NAMES[buffer.dtype].replace("int1", "bool")
    shape = output_shape(buffer, sizes)
    return torch.empty(shape, dtype=getattr(torch, name), device=device)


def indexed_loads(nest: LoopNest) -> set[int]:
    """Axes along which cells are named or windows are cut: they keep their own axis."""
    named = {a for i in nest.body if isinstance(a := i.attrs.get("axis"), int)}
    return named | {axis for b in nest.inputs for axis, _, _ in b.windows}


def merged_axes(
    sizes: Sequence[int], rows: int, strides: Sequence[Sequence[int | None]], alone: set[int]
) -> list[list[int]]:
    """Axes in groups that every buffer runs through as if they were one."""
    groups: list[list[int]] = []
    for k in range(len(sizes)):
        joins = bool(groups) and k != rows and not {k, k - 1} & alone
        for s in strides:
            a, b = (s[k - 1], s[k]) if joins else (None, None)
            joins = joins and (
                (a is None and b is None)
                or (a is not None and b is not None and a == b * sizes[k])
            )
        if joins:
            groups[-1].append(k)
        else:
            groups.append([k])
    return groups


def _runs_down(
    strides: Sequence[Sequence[int | None]], groups: Sequence[Sequence[int]], rows: int
) -> bool:
    """Whether elements that are next to each other in memory are of one column."""
    down = [g[-1] for g in groups if g[-1] < rows][-1:]
    across = [g[-1] for g in groups if g[-1] >= rows][-1:]
    beside = {s[a] for s in strides for a in across}
    return bool(across) and 1 not in beside and 1 in {s[a] for s in strides for a in down}


def with_axes(nest: LoopNest, kept: tuple[int, ...]) -> LoopNest:
    """The nest with these axes only; others were merged into the next one kept."""
    groups = [range(first, last + 1) for first, last in
              zip((0, *(a + 1 for a in kept)), kept, strict=False)]  # fmt: skip
    return checked(merge_axes(nest, groups, nest.sizes), "triton", after="merge-axes")

