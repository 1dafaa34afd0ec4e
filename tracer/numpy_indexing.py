"""Indexing of traced arrays: all of numpy's forms whose result shape does not depend on values.

Basic indices (ints, slices, None, ...) are chains of slice, flip and reshape, and give views. An index with
arrays is turned into flat positions, which are constants unless the index is itself traced.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradof.errors import DataDependentShapeError
from gradof.ir.types import I64
from gradof.ops.expr import Expr, F
from gradof.tracer.numpy_array import TracedArray, View
from gradof.tracer.numpy_recorder import Array, Recorder, real

Slices = list[tuple[int, int, int, int]]  # dim, start, stop, step > 0


def get_item(array: TracedArray, index: Any) -> TracedArray:
    """`array[index]`; DataDependentShapeError for a traced boolean mask."""
    recorder = array.recorder
    recorder.enter()
    items = index if isinstance(index, tuple) else (index,)
    if all(_is_basic(i) for i in items):
        basic = Basic(array.real.shape, items)
        value = array.real[index]
        view = View(array, basic.read, basic.write)
        return recorder.wrap(value, basic.read(array.expr), view)
    value = array.real[real_index(recorder, items)]
    if any(isinstance(i, TracedArray) for i in items):
        return recorder.wrap(value, _traced_gather(array, items, value.shape))
    flat = _positions(array.real.shape, items)
    return recorder.wrap(value, _take_flat(array.expr, flat, value.shape))


def set_item(array: TracedArray, index: Any, value: Any) -> None:
    """`array[index] = value`: the array, its root, and all views of it change."""
    recorder = array.recorder
    recorder.enter()
    items = index if isinstance(index, tuple) else (index,)
    mask = items[0] if len(items) == 1 else None
    if isinstance(mask, TracedArray) and mask.dtype == bool:
        _set_masked(array, mask, value)
        return
    if any(isinstance(i, TracedArray) for i in items):
        raise recorder.unsupported(
            "assignment at positions that depend on values", "use a mask with np.where"
        )
    selected = array.real[index]
    source = recorder.traced(value)
    expr = source.expr.cast(array.expr.dtype)
    expr = _broadcast(expr, tuple(selected.shape))
    if all(_is_basic(i) for i in items):
        updated = Basic(array.real.shape, items).write(array.expr, expr)
    else:
        flat = _positions(array.real.shape, items)
        updated = _put_flat(array.expr, flat, expr)
    array.real[index] = source.real
    array.assign(updated)


def _set_masked(array: TracedArray, mask: TracedArray, value: Any) -> None:
    recorder = array.recorder
    source = real(value)
    if np.ndim(source) != 0:
        raise DataDependentShapeError(
            "as many values as a traced mask selects", loc=recorder.loc,
            hint="assign one value, or use np.where(mask, value, array)",
        )
    extra = array.ndim - mask.ndim
    condition = mask.expr.reshape((*mask.shape, *(1,) * extra))
    operand = value
    if isinstance(value, TracedArray):
        operand = value.expr.cast(array.expr.dtype)
    elif array.dtype.kind == "f":
        operand = float(source)
    updated = F.where(condition, operand, array.expr)
    array.real[mask.real] = source
    array.assign(updated)


def _is_basic(item: Any) -> bool:
    if isinstance(item, (bool, np.bool_)):
        return False
    return item is None or item is Ellipsis or isinstance(item, (int, np.integer, slice))


def real_index(recorder: Recorder, items: tuple[Any, ...]) -> tuple[Any, ...]:
    """The concrete index; a traced boolean mask is refused."""
    for item in items:
        if isinstance(item, TracedArray) and item.dtype == bool:
            raise DataDependentShapeError(
                "a traced boolean mask selects a number of elements that depends on values",
                loc=recorder.loc, hint="use np.where(mask, x, 0.0), which keeps the shape",
            )
    return tuple(real(i) for i in items)


def _positions(shape: tuple[int, ...], items: tuple[Any, ...]) -> Array:
    grid: Array = np.arange(int(np.prod(shape, dtype=np.int64))).reshape(shape)
    return np.asarray(grid[items])


def _take_flat(x: Expr, flat: Array, shape: tuple[int, ...]) -> Expr:
    index = x.emitter.body.constant(_dense(flat.reshape(-1)))
    taken = F.index_select(x.reshape((_count(x.shape),)), Expr(index, x.emitter), dim=0)
    return taken.reshape(tuple(shape))


def _put_flat(x: Expr, flat: Array, source: Expr) -> Expr:
    index = Expr(x.emitter.body.constant(_dense(flat.reshape(-1))), x.emitter)
    put = F.scatter(
        x.reshape((_count(x.shape),)), index, source.reshape((flat.size,)), dim=0
    )
    return put.reshape(x.shape)


def _traced_gather(array: TracedArray, items: tuple[Any, ...], shape: tuple[int, ...]) -> Expr:
    """Integer arrays, some traced: flat positions computed in the graph. Slices must be full."""
    recorder = array.recorder
    arrays = [i for i in items if not isinstance(i, slice) or i != slice(None)]
    lead = [i for i in range(len(items)) if isinstance(items[i], slice)]
    if len(arrays) + len(lead) != len(items) or any(k < len(arrays) for k in lead):
        raise recorder.unsupported(
            "this mix of traced index arrays and slices", "index with arrays first, then slice"
        )
    rest = array.shape[len(arrays) :]
    position: Expr | None = None
    for item, size in zip(arrays, array.shape, strict=False):
        expr = recorder.traced(item).expr.cast(I64)
        expr = F.where(expr < 0, expr + size, expr)
        position = expr if position is None else position * size + expr
    assert position is not None
    inner = _count(rest)
    table = array.expr.reshape((_count(array.shape) // max(inner, 1), *rest))
    taken = F.index_select(table, position.reshape((_count(position.shape),)), dim=0)
    return taken.reshape(tuple(shape))


def _broadcast(x: Expr, shape: tuple[int, ...]) -> Expr:
    while x.rank > len(shape) and x.shape[0] == 1:  # numpy drops leading ones on assignment
        x = x.reshape(x.shape[1:])
    return x.expand(shape)


def _dense(array: Array) -> Any:
    from gradof.ir.attrs import Dense

    return Dense.of(np.ascontiguousarray(array, dtype=np.int64))


def _count(shape: tuple[int, ...]) -> int:
    n = 1
    for d in shape:
        n *= d
    return n


class Basic:
    """A basic index of an array of a given shape: how to read the view, how to write into it."""

    def __init__(self, shape: tuple[int, ...], items: tuple[Any, ...]) -> None:
        given = sum(1 for i in items if i is not None and i is not Ellipsis)
        full: list[Any] = []
        for item in items if Ellipsis in items else (*items, Ellipsis):
            full += [slice(None)] * (len(shape) - given) if item is Ellipsis else [item]
        self.slices: Slices = []
        self.flips: list[int] = []
        self.result: list[int] = []
        inner: list[int] = []
        dim = 0
        for item in full:
            if item is None:
                self.result.append(1)
                continue
            n = shape[dim]
            if isinstance(item, slice):
                inner.append(self._slice(dim, n, item))
                self.result.append(inner[-1])
            else:
                at = int(item) + (n if item < 0 else 0)
                self.slices.append((dim, at, at + 1, 1))
                inner.append(1)
            dim += 1
        self.inner = tuple(inner)

    def _slice(self, dim: int, n: int, item: slice) -> int:
        start, stop, step = item.indices(n)
        count = len(range(start, stop, step))
        if step < 0:
            self.flips.append(dim)
            last = start + (count - 1) * step
            start, stop, step = (last, start + 1, -step) if count else (0, 0, 1)
        elif count == 0:
            start, stop = 0, 0
        stop = min(stop, n)
        if (start, stop, step) != (0, n, 1):
            self.slices.append((dim, start, stop, step))
        return count

    def read(self, x: Expr) -> Expr:
        """The view's value."""
        for dim, start, stop, step in self.slices:
            x = F.slice(x, dim=dim, start=start, stop=stop, step=step)
        if self.flips:
            x = F.flip(x, dims=tuple(self.flips))
        return x.reshape(tuple(self.result))

    def write(self, x: Expr, source: Expr) -> Expr:
        """`x` with the view's value replaced."""
        source = source.reshape(self.inner)
        if self.flips:
            source = F.flip(source, dims=tuple(self.flips))
        return self._scatter(x, source, self.slices)

    def _scatter(self, x: Expr, source: Expr, slices: Slices) -> Expr:
        if not slices:
            return source
        dim, start, stop, step = slices[0]
        where = {"dim": dim, "start": start, "stop": stop, "step": step}
        if len(slices) > 1:
            source = self._scatter(F.slice(x, **where), source, slices[1:])
        return F.slice_scatter(x, source, **where)
