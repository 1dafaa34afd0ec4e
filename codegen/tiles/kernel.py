"""Numpy kernels of loop nests: they run over tiles of rows, small enough for the cache.

    kernel = TileKernel(nest)
    y, total = kernel(x, w)

The source of a tile is emitted by `emit`, from the nest in few passes that `rewrite`
makes. Arrays are given to it with the axes of the nest, of size 1 along those they do not vary
with. Tiles run on threads (`threads`), each with its own scratch: torch's for a torch caller.

Note [Tiles]
A tile is a range of the nest's first axis: of its first row axis, or of its columns where no cell
reads what is reduced over them. Its size follows from the nest and its sizes alone, and partial
results are those of blocks within tiles (Note [Sums of tiles] in `tiles/sums`), so the order in
which they are added depends on nothing but sizes. An eighth of the cells is
enough for threads to share. Less pays only if scratch arrays of an eighth do not fit into a cache
that is near (`TILE_SCRATCH`): each numpy call costs half a microsecond, and takes the interpreter's
lock at its end, for which threads wait longer than for a cache that is further away.

Note [One tile]
Where there is but one tile its functions of torch's are shared by torch's threads, each by itself.
They are the same bits on any number of threads (`torch_calls.SHARED`); only the sum of a single row
would be computed in parts, so that this has a thread to itself, as all else has.

Note [numpy's buffers]
Where an operand is broadcast along the columns, numpy copies it into a buffer of 8192 elements to
have longer inner loops, and is slower for it where a row is long already. The size of the buffer is
therefore that of a row. It is part of the state that `np.errstate` puts back.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from gradof import tuning
from gradof.codegen.loops.instructions import UFUNCS
from gradof.codegen.loops.interpret import AsNest, nest_sizes, output_shape
from gradof.codegen.loops.ir import LoopNest
from gradof.codegen.machine.bounded import keep
from gradof.codegen.machine.executable import Executable
from gradof.codegen.machine.threads import run_chunks
from gradof.codegen.tiles import sums as tile_sums
from gradof.codegen.tiles.emit import emit_tiles
from gradof.codegen.tiles.memory import scratch
from gradof.codegen.tiles.nest import SUMS
from gradof.codegen.tiles.rewrite import for_tiles
from gradof.codegen.tiles.torch_calls import SHARED, has_one_thread, may_share, one_thread
from gradof.errors import CodegenError
from gradof.ir.attrs import to_numpy_dtype
from gradof.ops.memory import maker

_BUFFER = 8192  # numpy's own, in elements
_MAX_PLANS = 16  # shapes of one kernel


def can_split_columns(nest: LoopNest) -> bool:
    """Whether the nest's columns may be cut: no row value is read before the last of them."""
    reduced = {i.name for i in nest.body if i.op == "reduce"}
    readers = [i for i in nest.body for a in i.args if a in reduced]
    return nest.rows == 0 and all(i.op == "fold" for i in readers)


def can_cut_columns(nest: LoopNest) -> bool:
    """Whether the nest's columns may be cut: no cell reads what is reduced over all of them."""
    rows = {i.name for i in nest.body if i.level == "row"}
    cells = (i for i in nest.body if i.level == "cell" or i.op in SUMS)
    return nest.rows == 0 and not any(a in rows for i in cells for a in i.args)


class _Plan(NamedTuple):
    """What a call's shapes decide."""

    sizes: tuple[int, ...]
    tiled: bool
    n: int  # rows that are cut into tiles
    chunk: int  # rows of a tile
    shared: bool  # one tile, which torch's threads may share; Note [One tile]
    buffer: int  # elements; Note [numpy's buffers]
    inputs: list[AsNest]
    outputs: list[AsNest]
    make: list[Callable[[], Any]]  # what makes the outputs

    def tile(self, start: int, stop: int) -> tuple[int, ...]:
        """The sizes of a tile."""
        return (stop - start, *self.sizes[1:]) if self.tiled else self.sizes


class TileKernel:
    """A loop nest as a function of arrays; `source` is what runs for each tile. Thread-safe.

    `torch` for a torch caller, who has torch's special functions.
    """

    emitter = "numpy tiles"

    def __init__(self, nest: LoopNest, torch: bool = False) -> None:
        self.nest = nest
        self.torch = torch
        by_torch = torch and has_one_thread()
        short = for_tiles(nest, by_torch)
        self.cut = can_cut_columns(short)
        self.tiled = nest.rows > 0 or self.cut
        code = emit_tiles(short, self.tiled, self.cut, by_torch)
        space = dict(code.namespace)
        text = f"{code.tile}\n{code.last}" if code.last else code.tile
        self.run_once = Executable(f"{nest.name}_once", code.once, space).function
        self.run_tile = Executable(nest.name, text, space)
        self.run_last = space.get(f"{nest.name}_last")
        self.make_scratch = space[f"{nest.name}_scratch"]
        self.calls_torch = bool(code.of_torch)
        self.shares = self.calls_torch and code.of_torch <= SHARED
        self.has_norms = any(name.startswith("layer_norm") for name in code.of_torch)
        self.sums_tiles = "layer_norm_sum" in code.of_torch  # Note [Sums of tiles]
        self.widths = code.widths
        self.partials = code.partials
        self.widest = max([4, *(i.dtype.itemsize for i in short.body if i.level == "cell")])
        self._plans: dict[tuple[tuple[int, ...], ...], _Plan] = {}
        self.folds = [] if self.cut else [i.buffer for i in short.body if i.op == "fold"]

    @property
    def source(self) -> str:
        """The emitted code."""
        return self.run_tile.source

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        """Fresh outputs for arrays in the order of the nest's inputs; floating-point warnings are
        silent, as inf and nan are results."""
        given = [a if type(a) is np.ndarray else np.asarray(a) for a in arrays]
        key = tuple([a.shape for a in given])
        plan = self._plans.get(key)
        if plan is None:
            plan = keep(self._plans, key, self._plan(given), _MAX_PLANS)
        inputs = [v.of(a) for v, a in zip(plan.inputs, given, strict=True)]
        outputs = tuple([make() for make in plan.make])
        written = [v.of(a) for v, a in zip(plan.outputs, outputs, strict=True)]
        found: dict[int, tuple[Any, ...]] = {}
        run = self.run_tile.function
        with np.errstate(all="ignore"):
            once = self.run_once(*inputs)

            def work(start: int, stop: int) -> None:
                with scratch(self, plan.tile(start, stop)) as own:
                    found[start] = run(start, stop, own, once, *inputs, *written)

            if plan.n <= plan.chunk:
                with self._alone(plan):
                    np.setbufsize(plan.buffer)  # until the end of errstate
                    work(0, plan.n)
            else:
                around = functools.partial(self._around, plan)
                run_chunks(work, plan.n, plan.chunk, None, around, self.torch)
            totals = [self._total(k, found) for k in range(len(self.partials))]
            if self.run_last is not None:
                self.run_last(once, *totals, *inputs, *written)
                return outputs
        for k, value in zip(self.folds, totals, strict=True):
            written[k][...] = value
        return outputs

    def _alone(self, plan: _Plan) -> contextlib.AbstractContextManager[None]:
        """Torch's functions stay on the thread that calls them, but where they share one tile."""
        if not self.calls_torch or (plan.shared and may_share()):
            return contextlib.nullcontext()
        return one_thread()

    @contextlib.contextmanager
    def _around(self, plan: _Plan) -> Iterator[None]:
        """What holds on a thread while it runs tiles."""
        with self._alone(plan), np.errstate(all="ignore"):
            np.setbufsize(plan.buffer)  # until the end of errstate
            yield

    def _plan(self, arrays: Sequence[Any]) -> _Plan:
        """What follows from the shapes of arrays."""
        nest = self.nest
        sizes = nest_sizes(nest, arrays)
        if self.has_norms and sizes[-1] != nest.sizes[-1]:  # by whose number it has means
            raise CodegenError(f"{nest.name} is for {nest.sizes[-1]} columns, not {sizes[-1]}")
        n = sizes[0] if self.tiled and sizes else 1
        chunk = self._rows_of_a_tile(n, math.prod(sizes[1 if self.tiled else 0 :]))
        long = bool(sizes) and tuning.TILE_LONG_ROW <= sizes[-1] < _BUFFER
        buffer = sizes[-1] // 16 * 16 if long else _BUFFER
        shapes = [output_shape(b, sizes) for b in nest.outputs]
        dtypes = [to_numpy_dtype(b.dtype) for b in nest.outputs]
        inputs = [AsNest(b, a.shape) for b, a in zip(nest.inputs, arrays, strict=True)]
        outputs = [AsNest(b, shape) for b, shape in zip(nest.outputs, shapes, strict=True)]
        make = [maker(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
        many = nest.rows == 0 or math.prod(sizes[: nest.rows]) > 1
        shared = self.shares and n <= chunk and many
        return _Plan(sizes, self.tiled, n, chunk, shared, buffer, inputs, outputs, make)

    def _rows_of_a_tile(self, n: int, cells: int) -> int:
        """See Note [Tiles]; n rows of so many cells."""
        if self.sums_tiles:
            most = min(max(tuning.TILE_CELLS, n * cells // tuning.TILE_SHARES), tuning.TILE_SUMMED)
        else:
            most = max(tuning.TILE_CELLS * 4 // self.widest, n * cells // tuning.TILE_SHARES)
            most = min(most, tuning.TILE_SCRATCH // max(1, sum(self.widths)))
        count = -(-n * cells // max(1, most))
        even = 1 << (count - 1).bit_length() if count <= tuning.TILE_SHARES else -(-count // 8) * 8
        rows = max(1, -(-n // max(1, even)))
        if not self.partials:
            return rows
        block = tuning.SUM_COLUMNS if self.cut else tile_sums.block_rows(cells)
        return max(block, (rows + block // 2) // block * block)

    def _total(self, place: int, found: dict[int, tuple[Any, ...]]) -> Any:
        """A partial result of all tiles, in their order."""
        tiles = [found[start][place] for start in sorted(found)]
        parts = tiles[0] if len(tiles) == 1 else np.concatenate(tiles, axis=0)
        ufunc = UFUNCS[self.partials[place][1]]
        return ufunc.reduce(parts, axis=0, keepdims=True, dtype=parts.dtype)
