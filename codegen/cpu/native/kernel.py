"""A loop nest as a native function of arrays.

    kernel = NativeKernel(nest)
    y, total = kernel(x, w)             # fresh outputs, in the order of the nest

Code is made on the first call, for the strides of the columns it sees, and again for others. Rows
are shared out to threads in chunks that follow from the sizes alone; ctypes releases the GIL.

Note [Columns that collapse]
The kernel has one column axis. Several are one where, for every buffer that varies along them, the
stride of each is the stride of the next times its size. Otherwise the call goes to numpy tiles.
"""

from __future__ import annotations

import itertools
import threading
from array import array
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from gradof.codegen.cpu.native.emit_ir import Code, emit_ir, lanes_for
from gradof.codegen.cpu.native.engine import compile_kernel, vector_bits
from gradof.codegen.cpu.native.memory import Stride
from gradof.codegen.cpu.native.sparse import with_picks
from gradof.codegen.cpu.native.vectors import supports
from gradof.codegen.cpu.threads import run_chunks
from gradof.codegen.cpu.tiles import TileKernel, can_split_columns
from gradof.codegen.loopnest import Buffer, LoopNest
from gradof.codegen.run_nest import REDUCE, as_nest, nest_sizes
from gradof.ir.attrs import to_numpy_dtype
from gradof.ir.types import BOOL
from gradof.ops.memory import empty

CHUNK = 1 << 16  # cells of a chunk at least
_CHUNKS, _MOST = 32, 4  # chunks that large arrays are to have, and how far a chunk grows for that
_MAX_LAYOUTS = 256  # kept per kernel
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
        if not supports(i.op, given or [i.dtype], i.dtype):
            return False
    return True


class _Layout(NamedTuple):
    """A call's code, the strides and sizes it is given, and its outputs."""

    function: Any
    code: Code
    tail: array[int]
    rows: int
    columns: int
    outputs: list[tuple[tuple[int, ...], Any]]


class NativeKernel:
    """See the module docstring. Thread-safe."""

    emitter = "native"

    def __init__(self, nest: LoopNest) -> None:
        self.nest = nest
        self.lanes = lanes_for(nest, vector_bits())
        self.split = nest.rows == 0 and can_split_columns(nest)
        self._layouts: dict[tuple[Any, ...], _Layout | None] = {}
        self._variants: dict[tuple[Stride, ...], tuple[Any, Code]] = {}
        self._tiles: TileKernel | None = None
        self._local = threading.local()

    @property
    def source(self) -> str:
        """The loop nest, for people."""
        return str(self.nest)

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        """Fresh outputs for arrays in the order of the nest's inputs."""
        given = [a if type(a) is np.ndarray else np.asarray(a) for a in arrays]
        key = tuple([(a.shape, a.strides) for a in given])
        if key not in self._layouts:
            if len(self._layouts) >= _MAX_LAYOUTS:
                self._layouts.clear()
            self._layouts[key] = self._layout(given)
        layout = self._layouts[key]
        if layout is None:
            return self._whole()(*arrays)
        outputs = [empty(shape, dtype) for shape, dtype in layout.outputs]
        # the axes of the nest are those of the arrays, so both begin at one address
        packed = array("q", [a.__array_interface__["data"][0] for a in (*given, *outputs)])
        packed.extend(layout.tail)
        self._run(layout.function, layout.code, packed, layout.rows, layout.columns, outputs)
        return tuple(outputs)

    def _layout(self, arrays: Sequence[Any]) -> _Layout | None:
        """What follows from shapes and strides; None where the column axes do not collapse."""
        nest = self.nest
        sizes = nest_sizes(nest, arrays)
        outputs = [_empty(b, sizes) for b in nest.outputs]
        views = [as_nest(b, a) for b, a in
                 zip((*nest.inputs, *nest.outputs), (*arrays, *outputs), strict=True)]  # fmt: skip
        shape = _collapsed(nest, views, sizes)
        if shape is None:
            return None
        strides, columns = shape
        rows = 1
        for size in sizes[: nest.rows]:
            rows *= size
        classes = tuple(_class(s[-1]) if nest.rows < len(sizes) else "zero" for s in strides)
        function, code = self._variant(classes)
        flat = [*sizes[: nest.rows], *([columns] if nest.rows < len(sizes) else [])]
        tail = array("q", [s for each in strides for s in each] + flat)
        return _Layout(function, code, tail, rows, columns, [(o.shape, o.dtype) for o in outputs])

    def _run(
        self, function: Any, code: Code, packed: array[int], rows: int, columns: int,
        outputs: Sequence[Any],
    ) -> None:  # fmt: skip
        address = packed.buffer_info()[0]
        scratch = sum((columns + self.lanes) * width for _, width in code.scratch)
        cells = min(max(CHUNK, rows * columns // _CHUNKS), _MOST * CHUNK)
        chunk = cells if self.split else max(1, cells // max(1, columns))
        n = columns if self.split else rows
        parts = _Partials(self.nest, code, columns, -(-n // chunk))

        def work(start: int, stop: int) -> None:
            place = parts.address(start // chunk)
            held = self._scratch(scratch)
            if self.split:
                function(address, 0, 1, start, stop, held, place)
            else:
                function(address, start, stop, 0, columns, held, place)

        run_chunks(work, n, chunk)
        parts.combine(outputs)

    def _scratch(self, size: int) -> int | None:
        """The address of this thread's memory for held cells."""
        if not size:
            return None
        have = getattr(self._local, "scratch", None)
        if have is None or have.nbytes < size + 64:
            have = self._local.scratch = np.empty(size + 64, np.uint8)
        start: int = have.__array_interface__["data"][0]
        return (start + 63) & ~63

    def _variant(self, classes: tuple[Stride, ...]) -> tuple[Any, Code]:
        """The code for one pattern of column strides."""
        found = self._variants.get(classes)
        if found is None:
            rows = self.nest.rows
            nest = replace(
                self.nest, sizes=self.nest.sizes[: rows + 1],
                inputs=tuple(_one_column(b, rows) for b in self.nest.inputs),
                outputs=tuple(_one_column(b, rows) for b in self.nest.outputs),
            )  # fmt: skip
            code = emit_ir(with_picks(nest), classes, self.lanes)
            found = self._variants[classes] = compile_kernel(code.text), code
        return found

    def _whole(self) -> TileKernel:
        """The numpy tiles, for columns that do not collapse."""
        if self._tiles is None:
            self._tiles = TileKernel(self.nest)
        return self._tiles


class _Partials:
    """What each chunk of rows folds, and the sum of it, chunk by chunk."""

    def __init__(self, nest: LoopNest, code: Code, columns: int, chunks: int) -> None:
        self.folds = code.folds
        self.width = 0
        self.places: list[tuple[int, Any, int]] = []
        for k, _, of_cells in code.folds:
            dtype = to_numpy_dtype(nest.outputs[k].dtype)
            count = columns if of_cells else 1
            self.places.append((self.width, dtype, count))
            self.width += (count * dtype.itemsize + 63) & ~63
        self.memory = np.empty((chunks, self.width), np.uint8)
        for (at, dtype, count), (_, kind, of_cells) in zip(self.places, self.folds, strict=True):
            if of_cells:
                self.part(at, dtype, count)[...] = _identity(kind, dtype)

    def part(self, at: int, dtype: Any, count: int) -> Any:
        return self.memory[:, at : at + count * dtype.itemsize].view(dtype)

    def address(self, chunk: int) -> int | None:
        if not self.width:
            return None
        start: int = self.memory.__array_interface__["data"][0]
        return start + chunk * self.width

    def combine(self, outputs: Sequence[Any]) -> None:
        for (at, dtype, count), (k, kind, _) in zip(self.places, self.folds, strict=True):
            parts = self.part(at, dtype, count)
            with np.errstate(all="ignore"):
                total = REDUCE[kind].reduce(parts, axis=0, dtype=dtype)
            outputs[k].reshape(-1)[...] = total


def _identity(kind: str, dtype: Any) -> Any:
    if kind in ("sum", "prod"):
        return 0 if kind == "sum" else 1
    if dtype.kind == "f":
        return -np.inf if kind == "max" else np.inf
    info = np.iinfo(dtype)
    return info.min if kind == "max" else info.max


def _empty(buffer: Buffer, sizes: Sequence[int]) -> Any:
    shape = [1] * len(buffer.shape)
    for axis, dim in enumerate(buffer.dims):
        if dim is not None:
            shape[dim] = sizes[axis]
    return np.empty(shape, to_numpy_dtype(buffer.dtype))


def _one_column(buffer: Buffer, rows: int) -> Buffer:
    """The buffer with its column axes as one."""
    columns = [d for d in buffer.dims[rows:] if d is not None]
    tail = (columns[-1] if columns else None,) if len(buffer.dims) > rows else ()
    return replace(buffer, dims=(*buffer.dims[:rows], *tail))


def _collapsed(
    nest: LoopNest, views: Sequence[Any], sizes: Sequence[int]
) -> tuple[list[list[int]], int] | None:
    """Strides in elements with one column axis, and its size; None where the axes do not join."""
    found = []
    columns = 1
    for size in sizes[nest.rows :]:
        columns *= size
    for view in views:
        item = view.itemsize
        if any(s % item for s in view.strides):
            return None
        steps = [0 if n == 1 else s // item for n, s in zip(view.shape, view.strides, strict=True)]
        tail = list(
            zip(sizes[nest.rows :], view.shape[nest.rows :], steps[nest.rows :], strict=True)
        )
        tail = [(size, n, step) for size, n, step in tail if size != 1]
        for (_, n, step), (size, m, following) in itertools.pairwise(tail):
            if (n == 1) != (m == 1) or step != following * size:
                return None
        last = [tail[-1][2] if tail else 0] if len(sizes) > nest.rows else []
        found.append([*steps[: nest.rows], *last])
    return found, columns


def _class(step: int) -> Stride:
    return "one" if step == 1 else "zero" if step == 0 else "any"
