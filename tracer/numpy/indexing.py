"""Indexing of traced arrays: all of numpy's forms whose result shape does not depend on values.

    x[1:, ::-1], x[..., None]     slice, flip and reshape: views (`Basic`)
    x[[0, 2]], x[mask]            constant flat positions (`Fixed`)
    x[i], x[i, :, j]              index arrays of the graph (`Gathered`)

Each of the three reads what the index selects, and writes into it.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np

from gradof.ir.attrs import Dense
from gradof.ir.types import I64
from gradof.ops.expr import Expr, F
from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.calls import item_call, write_call
from gradof.tracer.numpy.index import placed
from gradof.tracer.numpy.numbers import in_assignment, in_index
from gradof.tracer.numpy.operands import contains_traced
from gradof.tracer.numpy.recorder import Array, Recorder, is_plain, real
from gradof.tracer.numpy.view import Elements, View

Shape = tuple[int, ...]
Slices = list[tuple[int, int, int, int]]  # dim, start, stop, step > 0


class Selection(Protocol):
    """What an index selects of an array."""

    def read(self, x: Expr) -> Expr:
        """The selected elements, in the shape of `x[index]`."""
        ...

    def write(self, x: Expr, source: Expr) -> Expr:
        """`x` with the selected elements replaced by `source`, which has their shape."""
        ...


def get_item(array: TracedArray, index: Any) -> TracedArray:
    """`array[index]`; for a traced boolean mask the trace holds for as many elements."""
    index = _with_lists(array.recorder, index)
    result: TracedArray = item_call(
        array, index, _get_item, lambda items, value: _basic_view(array, items, value)
    )
    if type(array.link) is Elements and not result.is_scalar:
        copied: Any = np.copy(result)
        result = copied
    return result


def _basic_view(array: TracedArray, items: tuple[Any, ...], value: Any) -> View | None:
    """How `array[items]`, of which numpy gives `value`, is a view; it is seldom asked."""
    if array.is_scalar or not isinstance(value, np.ndarray):
        return None  # of a scalar it is a copy
    if any([type(i) is TracedArray for i in items]):
        return View(
            array, lambda x: _select(array, items).read(x),
            lambda x, source: _select(array, items).write(x, source),
        )
    shape = array.shape
    return View(
        array, lambda x: Basic(shape, items).read(x),
        lambda x, source: Basic(shape, items).write(x, source),
    )


def _get_item(array: TracedArray, index: Any) -> TracedArray:
    recorder = array.recorder
    recorder.enter()
    index = in_index(recorder, index)
    items = index if isinstance(index, tuple) else (index,)
    items = _without_masks(items)
    value = recorder.deferred.item(array, tuple(map(real, items)))
    selection = _select(array, items)
    link = None
    is_view = isinstance(value, np.ndarray) and not array.is_scalar  # of a scalar it is a copy
    if is_view and all(_is_basic(i) or _is_traced_int(i) for i in items):
        link = View(array, selection.read, selection.write)
    return recorder.wrap(value, selection.read(array.expr), link)


def set_item(array: TracedArray, index: Any, value: Any) -> None:
    """`array[index] = value`: the array, its root, and all views of it change."""
    recorder = array.recorder
    recorder.enter()
    index, value = in_assignment(array, _with_lists(recorder, index), value)
    write_call(array, index, recorder.traced(value), _set_item, _assign)


def _set_item(array: TracedArray, index: Any, source: TracedArray) -> None:
    recorder = array.recorder
    if array.is_scalar:
        raise TypeError(f"'{type(real(array)).__name__}' object does not support item assignment")
    items = index if isinstance(index, tuple) else (index,)
    first = items[0] if len(items) == 1 else None
    mask = first if isinstance(first, TracedArray) and first.dtype == bool else None
    if mask is not None and source.ndim:
        mask = None  # as many values as it selects
    if mask is None:
        items = _without_masks(items)
    recorder.deferred.before_write(array.memory)
    recorder.numpy(_assign, array.memory, items, source)
    if mask is not None:
        updated = _masked(array, mask, source)
    else:
        selected = np.shape(array.memory[tuple(map(real, items))])
        expr = _broadcast(source.expr, selected).cast(array.expr.dtype)
        updated = _select(array, items).write(array.expr, expr)
    array.assign(updated)


def _assign(array: Array, items: tuple[Any, ...], value: Any) -> None:
    array[items] = value


def add_at(array: TracedArray, index: Any, value: Any) -> None:
    """`np.add.at`: positions that repeat add up."""
    recorder = array.recorder
    recorder.enter()
    index = _with_lists(recorder, index)
    items = index if isinstance(index, tuple) else (index,)
    items = _without_masks(items)
    places = _places(array, items)
    source = recorder.traced(value)
    expr = _broadcast(source.expr, places.shape).cast(array.expr.dtype)
    flat = array.expr.reshape((array.size,))
    count = math.prod(places.shape)
    added = F.index_add(flat, places.reshape((count,)), expr.reshape((count,)), dim=0)
    recorder.deferred.before_write(array.memory)
    np.add.at(array.memory, tuple(map(real, items)), real(source))
    array.assign(added.reshape(array.shape))


# --- kinds of index -------------------------------------------------------------------------------


def _is_basic(item: Any) -> bool:
    if type(item) is TracedArray or isinstance(item, (bool, np.bool_)):
        return False
    return item is None or item is Ellipsis or isinstance(item, (int, np.integer, slice))


def _is_traced_int(item: Any) -> bool:
    return isinstance(item, TracedArray) and item.ndim == 0 and item.dtype.kind in "iu"


def _with_lists(recorder: Recorder, index: Any) -> Any:
    """The index with lists of traced integers as arrays."""
    if type(index) is tuple:
        return tuple([_with_lists(recorder, i) if type(i) is list else i for i in index])
    if type(index) is list and contains_traced(index):
        return recorder.traced([placed(i) for i in index])
    return index


def _without_masks(items: tuple[Any, ...]) -> tuple[Any, ...]:
    """The index with traced boolean masks as the places they select, of which there are as many."""
    plain: list[Any] = []
    for item in items:
        if isinstance(item, TracedArray) and item.dtype == bool and not item.is_constant:
            plain += np.nonzero(item) if item.ndim else (bool(item),)  # all, or nothing
        else:
            plain.append(item)
    return tuple(plain)


def _select(array: TracedArray, items: tuple[Any, ...]) -> Selection:
    if all(map(_is_basic, items)):
        return Basic(array.shape, items)
    items = tuple(_lift(array.recorder, i) for i in items)
    if any(isinstance(i, TracedArray) for i in items):
        return Gathered(array, items)
    if any(is_plain(i) or issubclass(type(i), np.generic) for i in items):
        array.recorder.baked = True
    return Fixed(array.shape, items)


def _lift(recorder: Recorder, item: Any) -> Any:
    """An index array that can be read again becomes an input; a constant one a plain array."""
    if is_plain(item) and item.dtype.kind in "iu":
        traced = recorder.traced(item)
        return item if traced.is_constant else traced
    return item.plain() if isinstance(item, TracedArray) and item.is_constant else item


def _places(array: TracedArray, items: tuple[Any, ...]) -> Expr:
    """The flat positions of what an index selects."""
    grid = np.arange(array.size).reshape(array.shape)
    selection = _select(array, items)
    if isinstance(selection, Gathered):
        return selection.read(array.recorder.constant(grid))
    return array.recorder.constant(np.ascontiguousarray(grid[tuple(map(real, items))]))


def _masked(array: TracedArray, mask: TracedArray, source: TracedArray) -> Expr:
    condition = mask.expr.reshape((*mask.shape, *(1,) * (array.ndim - mask.ndim)))
    return F.where(condition, source.expr.cast(array.expr.dtype), array.expr)


def _broadcast(x: Expr, shape: Shape) -> Expr:
    while x.rank > len(shape) and x.shape[0] == 1:  # numpy drops leading ones on assignment
        x = x.reshape(x.shape[1:])
    return x.expand(shape)


def _full(shape: Shape, items: tuple[Any, ...]) -> list[Any]:
    """The index with its `...` (given or implied) written out as slices."""
    given = sum(
        1 if not isinstance(i, np.ndarray) or i.dtype != bool else i.ndim
        for i in items if i is not None and i is not Ellipsis
    )  # fmt: skip
    explicit = any(i is Ellipsis for i in items)
    full: list[Any] = []
    for item in items if explicit else (*items, Ellipsis):
        full += [slice(None)] * (len(shape) - given) if item is Ellipsis else [item]
    return full


class Basic:
    """A basic index (ints, slices, None, ...) of an array of a given shape."""

    def __init__(self, shape: Shape, items: tuple[Any, ...]) -> None:
        self.slices: Slices = []
        self.flips: list[int] = []
        self.result: list[int] = []
        inner: list[int] = []
        dim = 0
        for item in _full(shape, items):
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


class Fixed:
    """An index whose positions are known: plain integer arrays and masks, mixed with slices."""

    def __init__(self, shape: Shape, items: tuple[Any, ...]) -> None:
        grid: Array = np.arange(math.prod(shape)).reshape(shape)
        self.places: Array = np.asarray(grid[items])

    def read(self, x: Expr) -> Expr:
        """The selected elements."""
        flat = x.reshape((math.prod(x.shape),))
        taken = F.index_select(flat, _dense(self.places.reshape(-1)), dim=0)
        return taken.reshape(self.places.shape)

    def write(self, x: Expr, source: Expr) -> Expr:
        """`x` with the selected elements replaced; of positions that repeat, the last counts."""
        places = self.places.reshape(-1)
        source = source.reshape((places.size,))
        unique, last = np.unique(places[::-1], return_index=True)
        if unique.size < places.size:
            source = F.index_select(source, _dense(places.size - 1 - last), dim=0)
            places = unique
        flat = x.reshape((math.prod(x.shape),))
        return F.scatter(flat, _dense(places), source, dim=0).reshape(x.shape)


class Gathered:
    """An index with traced integer arrays; slices are taken first, plain ints are arrays too."""

    def __init__(self, array: TracedArray, items: tuple[Any, ...]) -> None:
        recorder = array.recorder
        full = _full(array.shape, items)
        sizes = iter(array.shape)
        self.wide = tuple(1 if i is None else next(sizes) for i in full)  # None: a new dim
        full = [slice(None) if i is None else i for i in full]
        self.dims = tuple(d for d, i in enumerate(full) if not isinstance(i, slice))
        self.basic = Basic(
            self.wide, tuple(i if isinstance(i, slice) else slice(None) for i in full)
        )
        self.indices = []
        for d in self.dims:
            index = recorder.traced(full[d])
            if index.dtype.kind not in "iu":
                raise recorder.unsupported(f"an index of dtype {index.dtype} among traced arrays")
            self.indices.append(index.expr.cast(I64))

    def read(self, x: Expr) -> Expr:
        """The selected elements."""
        return F.index(self.basic.read(x.reshape(self.wide)), *self.indices, dims=self.dims)

    def write(self, x: Expr, source: Expr) -> Expr:
        """`x` with the selected elements replaced; of positions that repeat, the last counts."""
        size, count = math.prod(x.shape), math.prod(source.shape)
        body = x.emitter.body
        grid = Expr(body.constant(Dense.of(np.arange(size).reshape(x.shape))), x.emitter)
        places = self.read(grid).reshape((count,))
        source = source.reshape((count,))
        # Which write to a position is the last is known only at run time: only it has a gradient.
        order = Expr(body.constant(_dense(np.arange(count))), x.emitter)
        unset = F.full.with_emitter(x.emitter)(
            dtype=I64, shape=(size,), device="cpu", value=0
        )
        winner = F.index_select(F.scatter(unset, places, order, dim=0), places, dim=0) == order
        source = F.where(winner, source, F.detach(source))
        return F.scatter(x.reshape((size,)), places, source, dim=0).reshape(x.shape)


def _dense(array: Array) -> Dense:
    return Dense.of(np.ascontiguousarray(array, dtype=np.int64))
