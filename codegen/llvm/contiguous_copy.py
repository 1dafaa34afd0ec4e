"""Native kernels over copies, where columns do not collapse (Note [Columns that collapse]
in `collapse`).

    kernel = Rearranged(nest, openmp)       # batch norm of x[n, c, h, w]: rows c, columns n, h, w
    dx, dw = kernel(x, w, g)                # x and g copied to [c, n, h, w], dx copied back

For half precision alone: a copy moves 2 bytes a cell, and numpy tiles would convert every array and
round by several passes. Only what does not collapse is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gradof.codegen.llvm.collapse import collapsed
from gradof.codegen.llvm.kernel import NativeKernel
from gradof.codegen.loops.interpret import as_nest, nest_sizes
from gradof.codegen.loops.ir import Buffer, LoopNest
from gradof.codegen.loops.verify import checked


def can_rearrange(nest: LoopNest) -> bool:
    """Whether every output varies along all of the columns, or none: then a copy collapses."""
    return all(_columns(nest, b) in ((), _columns(nest)) for b in nest.outputs)


def in_order(nest: LoopNest) -> LoopNest:
    """The nest of arrays that have their axes in its order."""
    return replace(
        nest, inputs=tuple(_in_order(nest, b) for b in nest.inputs),
        outputs=tuple(_in_order(nest, b) for b in nest.outputs),
    )  # fmt: skip


class Rearranged:
    """See the module docstring. Thread-safe."""

    emitter = "native"

    def __init__(self, nest: LoopNest, openmp: bool) -> None:
        self.nest = nest
        self.kernel = NativeKernel(checked(in_order(nest), "llvm", "order-axes"), openmp)

    @property
    def source(self) -> str:
        """The loop nest, for people."""
        return self.kernel.source

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        """Fresh outputs for arrays in the order of the nest's inputs."""
        sizes = nest_sizes(self.nest, arrays)
        given = [self._given(b, a, sizes) for b, a in zip(self.nest.inputs, arrays, strict=True)]
        made = zip(self.nest.outputs, self.kernel(*given), strict=True)
        return tuple([_as_output(b, a) for b, a in made])

    def _given(self, buffer: Buffer, array: Any, sizes: Sequence[int]) -> Any:
        view, rows = as_nest(buffer, array), self.nest.rows
        if _columns(self.nest, buffer):
            view = np.broadcast_to(view, (*view.shape[:rows], *sizes[rows:]))
        is_free = collapsed(self.nest, [view], sizes) is not None
        return view if is_free else np.ascontiguousarray(view)


def _columns(nest: LoopNest, buffer: Buffer | None = None) -> tuple[int, ...]:
    """The column axes, or those along which a buffer varies."""
    axes = range(nest.rows, len(nest.sizes))
    return tuple(
        k for k in axes if nest.sizes[k] != 1 and (buffer is None or buffer.dims[k] is not None)
    )


def _in_order(nest: LoopNest, buffer: Buffer) -> Buffer:
    """The buffer with the axes of the nest, and with all of the columns or none."""
    has_columns = bool(_columns(nest, buffer))
    dims = tuple(
        k if (has_columns if k >= nest.rows else d is not None) else None
        for k, d in enumerate(buffer.dims)
    )
    shape = tuple(n if d is not None else 1 for n, d in zip(nest.sizes, dims, strict=True))
    return replace(buffer, shape=shape, dims=dims)


def _as_output(buffer: Buffer, array: Any) -> Any:
    """An array with the nest's axes in the order of the buffer's own, contiguous."""
    axes = [k for k, d in enumerate(buffer.dims) if d is not None]
    dims = [d for d in buffer.dims if d is not None]
    shape = [1] * len(buffer.shape)
    for k, d in zip(axes, dims, strict=True):
        shape[d] = array.shape[k]
    named = array.reshape([array.shape[k] for k in axes])
    return np.ascontiguousarray(named.transpose(np.argsort(dims))).reshape(shape)
