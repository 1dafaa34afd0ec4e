"""A loop nest as a native function of arrays.

    kernel = NativeKernel(nest)
    y, total = kernel(x, w)             # fresh outputs, in the order of the nest

Code is made on the first call, for the strides of the columns it sees, and again for others. Rows
are shared out to threads in chunks that follow from the sizes alone (`parallel`).

Arrays of bfloat16 are raw: Note [Half precision] in `gradof.codegen.lowering.half`.

Column axes that are neither one nor two in memory (Note [Columns that collapse] in `collapse`) are
left to numpy tiles.
"""

from __future__ import annotations

import functools
import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gradof import tuning
from gradof.codegen.fusion.concat_in_place import placed
from gradof.codegen.llvm.collapse import collapsed, segmented
from gradof.codegen.llvm.emit import Code, emit_ir, lanes_for
from gradof.codegen.llvm.memory import Stride
from gradof.codegen.llvm.partials import Partials
from gradof.codegen.llvm.streaming import streamed
from gradof.codegen.llvm.vectors import supports
from gradof.codegen.loops.interpret import as_nest, nest_sizes, output_shape
from gradof.codegen.loops.ir import Buffer, LoopNest
from gradof.codegen.loops.passes.expand_sign import with_sign_of_nan
from gradof.codegen.loops.passes.merge_axes import Groups, merge_axes
from gradof.codegen.loops.passes.picked_sums import with_picks
from gradof.codegen.loops.passes.run import NestPass, run_nest_passes
from gradof.codegen.loops.passes.widen_half import has_halves, in_float32
from gradof.codegen.loops.text import print_nest
from gradof.codegen.lowering.half import raw_numpy_dtype
from gradof.codegen.machine import runtime_ir as place
from gradof.codegen.machine.bounded import keep
from gradof.codegen.machine.engine import Effort, address_of, vector_bits
from gradof.codegen.machine.parallel import new_job, run_job
from gradof.codegen.machine.scratch import Scratch
from gradof.codegen.machine.threads import n_threads
from gradof.codegen.tiles.half import HalfTiles, tiles_of
from gradof.codegen.tiles.kernel import TileKernel, can_split_columns
from gradof.ir.types import BOOL
from gradof.ops.cost import cost_of
from gradof.ops.memory import ALIGNED, maker

if TYPE_CHECKING:
    from gradof.codegen.llvm.contiguous_copy import Rearranged

_CHUNKS, _MOST = 32, 16  # chunks that large arrays are to have, and how far a chunk grows for that
_PARTS, _FEWEST = 32 << 20, 8  # bytes of all partial results, and chunks that there may always be
_MAX_LAYOUTS = 256  # kept per kernel
_UNKNOWN = object()
_OWN = frozenset({"load", "index", "store", "reduce", "fold"})


def is_native(nest: LoopNest) -> bool:
    """Whether every instruction of the nest can be native code."""
    made = {i.name: i.dtype for i in nest.body if i.name}
    for i in nest.body:
        if i.op in _OWN:
            if not supports("copy", [i.dtype], i.dtype) or (i.op == "index" and i.level != "cell"):
                return False
            if i.op in ("reduce", "fold") and i.dtype == BOOL:
                return False
            continue
        given = [made[a] for a in i.args if isinstance(a, str)]
        if i.op == "where":
            given = given[1:] if isinstance(i.args[0], str) else given
        if not supports(i.op, given or [i.dtype], i.dtype, i.attrs):
            return False
    return True


def collapses(nest: LoopNest) -> bool:
    """Whether the columns of contiguous arrays are one axis or two, as native code has them."""
    buffers = (*nest.inputs, *nest.outputs)
    views = [as_nest(b, np.empty(b.shape, raw_numpy_dtype(b.dtype))) for b in buffers]
    sizes = nest.sizes
    return bool(collapsed(nest, views, sizes) or segmented(nest, views, sizes))


def native_passes(torch: bool) -> list[NestPass]:
    """What is done to a nest before its arrays are known; `torch` for a torch caller."""
    widen = NestPass("widen-half", functools.partial(in_float32, torch=torch),
                     "Compute half precision in float32, and round after each op.")  # fmt: skip
    sign = NestPass("expand-sign", with_sign_of_nan, "The sign of nan is 0, as torch has it.")
    return [widen, sign] if torch else [widen]


def layout_passes(groups: Groups, sizes: Sequence[int]) -> list[NestPass]:
    """What is done to a nest for arrays of whose axes some are one."""
    merge = functools.partial(merge_axes, groups=groups, sizes=sizes)
    return [
        NestPass("merge-axes", merge, "Neighbouring axes as one, where memory has them as one."),
        NestPass("pick-columns", with_picks, "Pick the one cell of a row that a sum counts."),
    ]


def cost(nest: LoopNest) -> int:
    """About how many instructions a cell takes."""
    return sum(cost_of(i.op) for i in nest.body if i.level == "cell")


class Layout(NamedTuple):
    """What a call's shapes and strides decide: its code, its chunks, its outputs."""

    job: array[int]  # all but the addresses of memory
    threads: int  # that it is worth
    scratch: int  # bytes of a thread's held cells
    chunks: int
    partials: Partials
    outputs: list[Callable[[], Any]]  # what makes them


class NativeKernel:
    """See the module docstring. Thread-safe."""

    emitter = "native"

    def __init__(self, nest: LoopNest, openmp: bool = False) -> None:
        self.nest = run_nest_passes(nest, native_passes(openmp), "llvm")
        self.given = nest
        self.openmp = openmp  # for a torch caller; see Note [Whose threads] in `parallel`
        self.lanes = lanes_for(self.nest, vector_bits())
        self.split = nest.rows == 0 and can_split_columns(self.nest)
        self._layouts: dict[tuple[Any, ...], Layout | None] = {}
        self._variants: dict[tuple[Any, ...], Code] = {}
        self._emitted: list[tuple[LoopNest, tuple[Stride, ...]]] = []  # what they are of
        self._other: TileKernel | HalfTiles | Rearranged | None = None
        self._scratch = Scratch()

    @property
    def source(self) -> str:
        """The loop nest, for people."""
        return print_nest(self.nest)

    @property
    def llvm(self) -> list[str]:
        """The LLVM IR for the strides met so far, each instruction of the nest as a comment."""
        return [emit_ir(nest, classes, self.lanes, notes=True).text
                for nest, classes in list(self._emitted)]  # fmt: skip

    def takes(self, k: int) -> bool:
        """Whether output k may be written into a given array: not if it is folded."""
        return any(
            i.op == "store" and i.level == "cell" and i.buffer == k for i in self.nest.body
        )

    def __call__(self, *arrays: Any, into: Sequence[tuple[int, Any]] = ()) -> tuple[Any, ...]:
        """Outputs for arrays in the order of the nest's inputs: fresh ones, or those of `into`."""
        given = [a if type(a) is np.ndarray else np.asarray(a) for a in arrays]
        key = tuple([(a.shape, a.strides) for a in given])
        if into:
            key = (*key, *((k, a.strides) for k, a in into))
        layout = self._layouts.get(key, _UNKNOWN)
        if layout is _UNKNOWN:
            layout = keep(self._layouts, key, self.layout(given, dict(into)), _MAX_LAYOUTS)
        if layout is None:
            return placed(self._whole()(*arrays), into)
        assert isinstance(layout, Layout)
        if into:
            there = dict(into)
            outputs = tuple([
                there[k] if k in there else make() for k, make in enumerate(layout.outputs)
            ])  # fmt: skip
        else:
            outputs = tuple([make() for make in layout.outputs])
        if layout.chunks:
            # the axes of the nest are those of the arrays, so both begin at one address
            addresses = [a.__array_interface__["data"][0] for a in (*given, *outputs)]
            self._run(layout, array("q", addresses))
        else:
            layout.partials.identities(outputs)
        return outputs

    def _run(self, layout: Layout, addresses: array[int]) -> None:
        threads = min(n_threads(), layout.threads)
        size = layout.chunks * layout.partials.width
        start, _memory = self._scratch.take(size + threads * layout.scratch)
        job = layout.job[:]
        job[place.PARTIAL], job[place.SCRATCH] = start, start + size
        job[place.FIELDS : place.FIELDS + len(addresses)] = addresses
        run_job(job, threads, self.openmp)

    def layout(self, arrays: Sequence[Any], there: Mapping[int, Any]) -> Layout | None:
        """What follows from shapes and strides; None where the column axes do not collapse."""
        nest = self.nest
        sizes = nest_sizes(nest, arrays)
        outputs = [there.get(k, _empty(b, sizes)) for k, b in enumerate(nest.outputs)]
        views = [as_nest(b, a) for b, a in
                 zip((*nest.inputs, *nest.outputs), (*arrays, *outputs), strict=True)]  # fmt: skip
        shape = collapsed(nest, views, sizes) or segmented(nest, views, sizes)
        if shape is None:
            return None
        strides, columns = shape.strides, math.prod(shape.columns)
        rows = math.prod(sizes[: nest.rows])
        classes = [_class(s[-1]) if nest.rows < len(sizes) else "zero" for s in strides]
        flat = [*sizes[: nest.rows], *(shape.columns if nest.rows < len(sizes) else [])]
        mine = [k for k in range(len(outputs)) if k not in there and self.takes(k)]
        for k in streamed(nest, strides, flat, mine):
            classes[len(arrays) + k] = "streamed"
        code = self._variant(tuple(classes), shape.groups, sizes)
        arguments = [0] * len(views) + [s for each in strides for s in each] + flat
        held = sum((columns + self.lanes) * width for _, width in code.scratch)
        partials = Partials(nest, code, columns)
        count, chunk = self._chunks(rows, columns, partials)
        scratch = (held + 63) & ~63
        effort: Effort = "quick" if rows * columns <= tuning.NATIVE_QUICK else "full"
        job = new_job({
            place.KERNEL: address_of(code.text, "kernel", effort), place.COUNT: count,
            place.CHUNK: chunk, place.CHUNKS: -(-count // chunk),
            place.SPLIT: self.split, place.COLUMNS: shape.columns[-1],
            place.SCRATCH_STEP: scratch, place.PARTIAL_STEP: partials.width,
            place.TEMPLATE: partials.template.__array_interface__["data"][0],
        }, arguments, partials.table(len(arrays)))  # fmt: skip
        made = [maker(o.shape, o.dtype) for o in outputs]
        threads = 1 + rows * columns * cost(nest) // tuning.NATIVE_THREAD
        return Layout(job, threads, scratch, -(-count // chunk), partials, made)

    def _chunks(self, rows: int, columns: int, partials: Partials) -> tuple[int, int]:
        """How many rows, or columns, there are, and how many of them a chunk has.

        They follow from the sizes alone: graphs with more or less in their kernels are cut alike,
        unless the rows that folds of cells leave would be too large.
        """
        least = tuning.NATIVE_CHUNK
        cells = min(max(least, rows * columns // _CHUNKS), _MOST * least)
        if self.split:
            return columns, -(-cells // ALIGNED) * ALIGNED  # each begins at a line of any dtype
        chunk = max(1, cells // max(1, columns))
        if partials.folds:  # each chunk has a row of those of cells
            most = min(max(_PARTS // partials.width, _FEWEST), 2 * _CHUNKS)
            chunk = max(chunk, -(-rows // most))
        return rows, chunk

    def _variant(
        self, classes: tuple[Stride, ...], groups: Groups, sizes: Sequence[int]
    ) -> Code:  # fmt: skip
        """The code for one pattern of column strides, and groups of axes that are one."""
        key = (classes, tuple(map(tuple, groups)), tuple([n == 1 for n in sizes]))
        found = self._variants.get(key)
        if found is None:
            nest = run_nest_passes(self.nest, layout_passes(groups, sizes), "llvm")
            found = self._variants[key] = emit_ir(nest, classes, self.lanes)
            self._emitted.append((nest, classes))
        return found

    def _whole(self) -> TileKernel | HalfTiles | Rearranged:
        """What runs where columns do not collapse: numpy tiles, or copies of half precision."""
        if self._other is None:
            from gradof.codegen.llvm.contiguous_copy import Rearranged, can_rearrange

            if has_halves(self.given) and can_rearrange(self.given):
                self._other = Rearranged(self.given, self.openmp)
            else:
                self._other = tiles_of(self.given, torch=self.openmp)
        return self._other


def _empty(buffer: Buffer, sizes: Sequence[int]) -> Any:
    return np.empty(output_shape(buffer, sizes), raw_numpy_dtype(buffer.dtype))


def _class(step: int) -> Stride:
    return "one" if step == 1 else "zero" if step == 0 else "any"
