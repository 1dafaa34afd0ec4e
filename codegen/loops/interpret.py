"""A loop nest evaluated by whole numpy arrays: its meaning, with which every emitter is compared.

    run_nest(nest, [x, w])              # the outputs, in the order of the nest

Each value is an array with the nest's axes, of size 1 where it does not vary. What an instruction
computes stands in `instructions`; here are the arrays around them: what is loaded, and stored.
bfloat16 is held in float32, and rounded after each instruction (Note [Half precision] in
`gradof.codegen.lowering.half`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gradof.codegen.loops.instructions import evaluate, reduced
from gradof.codegen.loops.ir import Buffer, Instr, LoopNest
from gradof.codegen.lowering.half import round_bf16
from gradof.errors import CodegenError
from gradof.ir.attrs import to_numpy_dtype
from gradof.ir.types import BF16


def run_nest(nest: LoopNest, arrays: Sequence[Any]) -> list[Any]:
    """The outputs of a nest; arrays in the order of `nest.inputs`, outputs of `nest.outputs`."""
    running = _Running(nest, arrays)
    with np.errstate(all="ignore"):
        for i in nest.body:
            running.step(i)
    return running.outputs


class _Running:
    """The arrays of one evaluation: a `Space` of `instructions`."""

    def __init__(self, nest: LoopNest, arrays: Sequence[Any]) -> None:
        self.nest = nest
        self.arrays = arrays
        self.sizes = nest_sizes(nest, arrays)
        self.rows = tuple(range(nest.rows))
        self.columns = tuple(range(nest.rows, len(self.sizes)))
        self.values: dict[str, Any] = {}
        self.beside: dict[str, dict[str, Any]] = {}
        self.outputs: list[Any] = [None] * len(nest.outputs)

    def step(self, i: Instr) -> None:
        args = [self.values[a] if isinstance(a, str) else a for a in i.args]
        if i.op not in ("store", "fold"):
            self.values[i.name] = evaluate(self, i, args)
            return
        value = self.folded(i, args[0]) if i.op == "fold" else args[0]
        k = i.buffer
        self.outputs[k] = _stored(i, self.nest.outputs[k], value, self.sizes, self.outputs[k])

    def folded(self, i: Instr, value: Any) -> Any:
        """The operand of a fold, reduced over the rows; of row values, one number."""
        if "part" in i.attrs:
            value = self.beside[str(i.args[0])]["weight"]
        value = reduced(i, value, self.rows, self.sizes)
        return np.negative(value) if i.attrs.get("negated") else value

    def load(self, i: Instr, args: Sequence[Any]) -> Any:
        """The cells of an input; see `Space`."""
        k = i.buffer
        value = _load(i, args, self.nest.inputs[k], self.arrays[k], self.sizes)
        return value.astype(to_numpy_dtype(i.dtype), copy=False)

    def body(self, i: Instr) -> Any:
        """The last cell of a body, whose names are its own."""
        outside = self.values
        self.values = dict(outside)
        for j in i.body:
            self.step(j)
        found = self.values[i.body[-1].name]
        self.values = outside
        return found


def _stored(
    i: Instr, buffer: Buffer, value: Any, sizes: tuple[int, ...], before: Any
) -> Any:  # fmt: skip
    found = _as_output(replace(buffer, times=()), value, sizes)
    if not buffer.times:
        return found
    if before is None:
        before = np.empty(output_shape(buffer, sizes), found.dtype)
    axis, offset = i.attrs["axis"], i.attrs["offset"]
    assert isinstance(axis, int) and isinstance(offset, int)
    dim = buffer.dims[axis]
    assert dim is not None
    before[(slice(None),) * dim + (slice(offset, offset + sizes[axis]),)] = found
    return before


def _load(
    i: Instr, args: Sequence[Any], buffer: Buffer, array: Any, sizes: tuple[int, ...]
) -> Any:  # fmt: skip
    value = as_nest(buffer, array)
    for axis, first, last in buffer.windows:
        value = np.broadcast_to(
            value, [last - first if k == axis else n for k, n in enumerate(value.shape)]
        )
        pads = [(0, 0)] * len(sizes)
        pads[axis] = (first, sizes[axis] - last)
        other: Any = i.attrs["other"]
        value = np.pad(value, pads, constant_values=other)
    if args:  # the cells that are named along an axis
        along = i.attrs["axis"]
        assert isinstance(along, int)
        one = tuple(1 if k == along else n for k, n in enumerate(value.shape))
        shape = np.broadcast_shapes(one, args[0].shape)
        whole = [value.shape[k] if k == along else n for k, n in enumerate(shape)]
        index = np.broadcast_to(args[0], shape)
        value = np.take_along_axis(np.broadcast_to(value, whole), index, along)
    return value


def nest_sizes(nest: LoopNest, arrays: Sequence[Any]) -> tuple[int, ...]:
    """The sizes the arrays have, which need not be those the nest was made for."""
    sizes = list(nest.sizes)
    for buffer, array in zip(nest.inputs, arrays, strict=True):
        for axis, dim in enumerate(buffer.dims):
            if dim is not None and all(axis != a for a, _, _ in buffer.windows):
                sizes[axis] = array.shape[dim]
    return tuple(sizes)


def as_nest(buffer: Buffer, array: Any) -> Any:
    """The array with the nest's axes, of size 1 where it does not vary."""
    array = np.asarray(array)
    return AsNest(buffer, array.shape).of(array)


class AsNest:
    """What gives arrays of one shape the nest's axes, of size 1 where they do not vary."""

    __slots__ = ("order", "shape")

    def __init__(self, buffer: Buffer, shape: tuple[int, ...]) -> None:
        named = [d for d in buffer.dims if d is not None]
        rest = [d for d in range(len(shape)) if d not in named]
        if any(shape[d] != 1 for d in rest):
            raise CodegenError(f"{buffer.name} varies along an axis the loop nest does not have")
        self.order = None if named == sorted(named) else (*named, *rest)
        moved = shape if self.order is None else tuple([shape[d] for d in self.order])
        axes = tuple([1 if d is None else shape[d] for d in buffer.dims])
        self.shape = None if axes == moved else axes

    def of(self, array: Any) -> Any:
        """A view of the array."""
        if self.order is not None:
            array = array.transpose(self.order)
        return array if self.shape is None else array.reshape(self.shape)


def output_shape(buffer: Buffer, sizes: Sequence[int]) -> tuple[int, ...]:
    """The shape of an output for the sizes of a nest."""
    shape = [1] * len(buffer.shape)
    times = dict(buffer.times)
    for axis, dim in enumerate(buffer.dims):
        if dim is not None:
            shape[dim] = sizes[axis] * times.get(axis, 1)
    return tuple(shape)


def _as_output(buffer: Buffer, value: Any, sizes: tuple[int, ...]) -> Any:
    named = [k for k, d in enumerate(buffer.dims) if d is not None]
    value = np.broadcast_to(
        value, [n if k in named else value.shape[k] for k, n in enumerate(sizes)]
    )
    value = value.reshape([sizes[k] for k in named])
    dims = [d for d in buffer.dims if d is not None]
    value = value.transpose(np.argsort(dims)) if dims else value
    value = value.reshape(output_shape(buffer, sizes))
    if buffer.dtype == BF16:
        return round_bf16(value)
    return np.array(value, dtype=to_numpy_dtype(buffer.dtype))
