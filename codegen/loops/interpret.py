"""A loop nest evaluated by whole numpy arrays: the reference every emitter is compared with.

Each value is an array with the nest's axes, of size 1 where it does not vary. Elementwise ops are
the registry's numpy lowerings, in the dtype of their operands, as the unfused code has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gradof.codegen.loops.ir import Buffer, Instr, LoopNest
from gradof.codegen.lowering.numpy import call, lowering
from gradof.errors import CodegenError
from gradof.ir.attrs import to_numpy_dtype
from gradof.ops.registry import get_op

REDUCE = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


def run_nest(nest: LoopNest, arrays: Sequence[Any]) -> list[Any]:
    """The outputs of a nest; arrays in the order of `nest.inputs`, outputs of `nest.outputs`."""
    sizes = nest_sizes(nest, arrays)
    columns = tuple(range(nest.rows, len(sizes)))
    rows = tuple(range(nest.rows))
    values: dict[str, Any] = {}
    outputs: list[Any] = [None] * len(nest.outputs)
    for i in nest.body:
        args = [values[a] if isinstance(a, str) else a for a in i.args]
        with np.errstate(all="ignore"):
            if i.op in ("store", "fold"):
                value = args[0]
                if i.op == "fold":
                    levels = {"row": (*rows, *columns), "cell": rows}[i.level]
                    value = _varying(value, sizes, rows)
                    value = _reduce(i, value, levels, value.dtype)
                k = _index(i)
                outputs[k] = _stored(i, nest.outputs[k], value, sizes, outputs[k])
            else:
                values[i.name] = _value(i, args, nest, arrays, sizes, columns)
    return outputs


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


def _value(
    i: Instr, args: list[Any], nest: LoopNest, arrays: Sequence[Any], sizes: tuple[int, ...],
    columns: tuple[int, ...],
) -> Any:  # fmt: skip
    if i.op == "load":
        return _load(i, args, nest.inputs[_index(i)], arrays[_index(i)], sizes)
    if i.op == "index":
        axis = i.attrs["axis"]
        assert isinstance(axis, int)
        shape = [1] * len(sizes)
        shape[axis] = sizes[axis]
        return np.arange(sizes[axis], dtype=np.int64).reshape(shape)
    if i.op == "reduce":
        return _reduce(i, _varying(args[0], sizes, columns), columns, to_numpy_dtype(i.dtype))
    record = get_op(i.op)
    low = lowering(record, "numpy")
    if i.op == "cast":
        args = [np.asarray(args[0])]  # of a number, too
    names = [f"_{k}" for k in range(len(args))]
    space = {"np": np, **dict(zip(names, args, strict=True))}
    if low.function is not None:
        space[low.text] = low.function
    attrs = {k: v for k, v in i.attrs.items() if k in record.attrs}
    return np.asarray(eval(call(record, low, names, attrs), space))


def _load(i: Instr, args: list[Any], buffer: Buffer, array: Any, sizes: tuple[int, ...]) -> Any:
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


def _index(i: Instr) -> int:
    k = i.attrs["buffer"]
    assert isinstance(k, int)
    return k


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
    return np.array(value.reshape(output_shape(buffer, sizes)), dtype=to_numpy_dtype(buffer.dtype))


def _varying(value: Any, sizes: tuple[int, ...], axes: tuple[int, ...]) -> Any:
    return np.broadcast_to(value, [n if k in axes else value.shape[k] for k, n in enumerate(sizes)])


def _reduce(i: Instr, value: Any, axes: tuple[int, ...], dtype: Any) -> Any:
    kind = i.attrs["kind"]
    assert isinstance(kind, str)
    if kind in ("sum", "prod"):
        return REDUCE[kind].reduce(value, axis=axes, keepdims=True, dtype=dtype)
    return REDUCE[kind].reduce(value, axis=axes, keepdims=True)
