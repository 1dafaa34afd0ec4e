"""Indexing written as gathers, slices and reshapes; every op here is a composite.

`index(x, i, j; dims=(0, 2))` is `x[i, :, j]`: the index arrays broadcast together, negative entries
count from the end, and the result's index dims stand where the first indexed dim was if the
indexed dims are adjacent, else in front (the rule of both numpy and torch).

>>> F.index(x, rows, columns, dims=(0, 1))      # x[rows, columns]
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from gradof.errors import InferenceError
from gradof.ir.attrs import Dense
from gradof.ir.types import DType
from gradof.ops.expr import Expr, F
from gradof.ops.families import broadcast_shapes, check_dims, composite
from gradof.ops.registry import op

Ints = tuple[int, ...]

# --- index arrays -------------------------------------------------------------------------------


def wrap_negative(index: Expr, n: int) -> Expr:
    """An index with its negative entries counted from the end of a dim of size `n`."""
    return F.in_range(index, size=n, wraps=True, error="index")


class _Rows:
    """`x` as rows: the indexed dims in front and flattened to one, which one index array names."""

    def __init__(self, x: Expr, indices: Sequence[Expr], dims: Ints) -> None:
        if check_dims(dims, x.rank) != tuple(sorted(dims)) or len(dims) != len(indices):
            raise InferenceError(f"{len(indices)} index arrays for the dims {dims}")
        shape = broadcast_shapes(*(i.shape for i in indices))
        assert shape is not None
        self.x, self.dims, self.shape = x, dims, shape
        self.order = (*dims, *(d for d in range(x.rank) if d not in dims))
        self.rest = tuple(x.shape[d] for d in self.order[len(dims) :])
        self.count = math.prod(shape)
        adjacent = dims == tuple(range(dims[0], dims[-1] + 1))
        self.front = dims[0] if adjacent else 0
        places: Expr | None = None
        for d, index in zip(dims, indices, strict=True):
            entry = wrap_negative(index, x.shape[d]).expand(shape)
            places = entry if places is None else places * x.shape[d] + entry
        assert places is not None
        self.places = places.reshape((self.count,))

    def rows(self) -> Expr:
        """[indexed elements, *rest]."""
        n = math.prod(self.x.shape[d] for d in self.dims)
        return self.x.permute(self.order).reshape((n, *self.rest))

    def unrows(self, rows: Expr) -> Expr:
        """The inverse of `rows`."""
        moved = rows.reshape(tuple(self.x.shape[d] for d in self.order))
        return moved.permute(tuple(self.order.index(i) for i in range(self.x.rank)))

    def result(self, picked: Expr) -> Expr:
        """[count, *rest] in the layout of `x[...]`."""
        k, f = len(self.shape), self.front
        y = picked.reshape((*self.shape, *self.rest))
        return y.permute((*range(k, k + f), *range(k), *range(k + f, y.rank)))

    def source(self, values: Expr) -> Expr:
        """Values for `x[...]` as [count, *rest]: the inverse of `result`, broadcasting first."""
        k, f = len(self.shape), self.front
        y = values.expand((*self.rest[:f], *self.shape, *self.rest[f:]))
        y = y.permute((*range(f, f + k), *range(f), *range(f + k, y.rank)))
        return y.reshape((self.count, *self.rest))


def _is_every_row(index: Expr, n: int) -> bool:
    """Whether an index array is known to be 0, 1, ... n - 1."""
    node = index.value.node
    if node is not None and node.kind == "cast":
        node = node.inputs[0].node
    if node is None or index.shape != (n,):
        return False
    if node.kind == "arange":
        return node.attrs["start"] == 0 and node.attrs["step"] == 1
    value = node.attrs["value"] if node.kind == "Constant" else None
    return isinstance(value, Dense) and bool(np.array_equal(value.numpy(), np.arange(n)))


def _index(x: Expr, *indices: Expr, dims: Ints) -> Expr:
    if x.rank == len(indices) == 2 and dims == (0, 1) and indices[1].shape == x.shape[:1]:
        # x[arange(n), t], one element a row, which fuses with what is computed of the rows
        n, width = x.shape
        if _is_every_row(indices[0], n):
            column = wrap_negative(indices[1], width).reshape((n, 1))
            return F.gather(x, column, dim=1).reshape((n,))
    plan = _Rows(x, indices, dims)
    return plan.result(F.index_select(plan.rows(), plan.places, dim=0))


op("index(*xs; dims) -> y", family=composite(_index), expand=_index,
   doc="x[...] with integer arrays (the operands after x) at `dims`, in rising order.")


def _index_put(x: Expr, values: Expr, *indices: Expr, dims: Ints, accumulate: bool) -> Expr:
    plan = _Rows(x, indices, dims)
    rows, src = plan.rows(), plan.source(values)
    if accumulate:
        return plan.unrows(F.index_add(rows, plan.places, src, dim=0))
    places = plan.places.reshape((plan.count,) + (1,) * len(plan.rest)).expand(src.shape)
    return plan.unrows(F.scatter(rows, places, src, dim=0))


op("index_put(*xs; dims, accumulate) -> y", family=composite(_index_put), expand=_index_put,
   doc="x with x[...] set to the second operand (or, with accumulate, increased by it).")


def _take(x: Expr, index: Expr) -> Expr:
    n = x.type.size
    places = wrap_negative(index, n).reshape((index.type.size,))
    return F.index_select(x.reshape((n,)), places, dim=0).reshape(index.shape)


op("take(x, index) -> y", family=composite(_take), expand=_take,
   doc="Elements of the flattened operand.")


def _embedding(weight: Expr, index: Expr, padding_idx: int) -> Expr:
    if padding_idx >= 0:
        at = np.arange(weight.shape[0]).reshape(-1, 1) == padding_idx
        weight = F.where(Dense.of(at), F.detach(weight), weight)
    index = F.in_range(index, size=weight.shape[0], wraps=False, error="index")
    rows = F.index_select(weight, index.reshape((index.type.size,)), dim=0)
    return rows.reshape((*index.shape, *weight.shape[1:]))


op("embedding(weight, index; padding_idx) -> y", family=composite(_embedding), expand=_embedding,
   doc="Rows of the weight; the row `padding_idx` (-1 for none) gets no gradient.")


def _one_hot(index: Expr, n: int, dtype: DType) -> Expr:
    classes = F.arange.with_emitter(index.emitter)(
        n=n, start=0, step=1, dtype=index.dtype, device=index.type.device
    )
    return (index.reshape((*index.shape, 1)) == classes).cast(dtype)


op("one_hot(index; n, dtype) -> y", family=composite(_one_hot), expand=_one_hot,
   doc="A new last dim of size n, 1 at the index and 0 elsewhere.")


def _masked_fill(x: Expr, mask: Expr, value: Expr) -> Expr:
    return F.where(mask, value, x)


op("masked_fill(x, mask, value) -> y", family=composite(_masked_fill, elementwise=True),
   expand=_masked_fill)

# --- fixed places -------------------------------------------------------------------------------


def _select(x: Expr, dim: int, index: int) -> Expr:
    check_dims((dim,), x.rank)
    at = index + x.shape[dim] if index < 0 else index
    part = F.slice(x, dim=dim, start=at, stop=at + 1, step=1)
    return part.reshape(x.shape[:dim] + x.shape[dim + 1 :])


op("select(x; dim, index) -> y", family=composite(_select), expand=_select)


def _diagonal_slice(n: int, m: int, offset: int) -> tuple[int, int, int, int]:
    """Start, stop, step and length of a diagonal in the flattened n x m matrix."""
    length = max(0, min(n, m - offset) if offset >= 0 else min(n + offset, m))
    start = (offset if offset >= 0 else -offset * m) if length else 0
    return start, start + (length - 1) * (m + 1) + 1 if length else start, m + 1, length


def _diagonal(x: Expr, offset: int, dim1: int, dim2: int) -> Expr:
    check_dims((dim1, dim2), x.rank)
    rest = tuple(d for d in range(x.rank) if d not in (dim1, dim2))
    n, m = x.shape[dim1], x.shape[dim2]
    start, stop, step, _ = _diagonal_slice(n, m, offset)
    flat = x.permute((*rest, dim1, dim2)).reshape((*(x.shape[d] for d in rest), n * m))
    return F.slice(flat, dim=len(rest), start=start, stop=stop, step=step)


op("diagonal(x; offset, dim1, dim2) -> y", family=composite(_diagonal), expand=_diagonal)


def _diag_embed(x: Expr, offset: int, dim1: int, dim2: int) -> Expr:
    lead, rank = x.rank - 1, x.rank + 1
    check_dims((dim1, dim2), rank)
    n = x.shape[-1] + abs(offset)
    start, stop, step, _ = _diagonal_slice(n, n, offset)
    flat = F.unslice(x, shape=(*x.shape[:-1], n * n), dim=lead, start=start, stop=stop, step=step)
    rest = tuple(d for d in range(rank) if d not in (dim1, dim2))
    order = (*rest, dim1, dim2)
    moved = flat.reshape((*x.shape[:-1], n, n))
    return moved.permute(tuple(order.index(i) for i in range(rank)))


op("diag_embed(x; offset, dim1, dim2) -> y", family=composite(_diag_embed), expand=_diag_embed,
   doc="Square matrices with x's last dim on the diagonal and zeros elsewhere.")


def _roll(x: Expr, shifts: Ints, dims: Ints) -> Expr:
    for shift, dim in zip(shifts, dims, strict=True):
        n = x.shape[dim]
        k = shift % n if n else 0
        if k:
            tail = F.slice(x, dim=dim, start=n - k, stop=n, step=1)
            x = F.cat(tail, F.slice(x, dim=dim, start=0, stop=n - k, step=1), dim=dim)
    return F.alias(x)


op("roll(x; shifts, dims) -> y", family=composite(_roll), expand=_roll)


def _repeat(x: Expr, repeats: Ints) -> Expr:
    if len(repeats) < x.rank or any(r < 0 for r in repeats):
        raise InferenceError(f"repeats {repeats} for a tensor of rank {x.rank}")
    shape = (1,) * (len(repeats) - x.rank) + x.shape
    apart = x.reshape(tuple(k for n in shape for k in (1, n)))
    wide = apart.expand(tuple(k for n, r in zip(shape, repeats, strict=True) for k in (r, n)))
    return wide.reshape(tuple(n * r for n, r in zip(shape, repeats, strict=True)))


op("repeat(x; repeats) -> y", family=composite(_repeat), expand=_repeat,
   doc="The whole tensor side by side, as torch.Tensor.repeat and numpy.tile do.")


def _unfold(x: Expr, dim: int, size: int, step: int) -> Expr:
    n = x.shape[dim]
    if not 0 < size <= n or step < 1:
        raise InferenceError(f"windows of {size} by {step} in a dim of size {n}")
    count = (n - size) // step + 1
    order = (*(d for d in range(x.rank + 1) if d != dim + 1), dim + 1)
    if step == size:  # every element is in one window at most
        whole = F.slice(x, dim=dim, start=0, stop=count * size, step=1)
        return whole.reshape((*x.shape[:dim], count, size, *x.shape[dim + 1 :])).permute(order)
    places = np.arange(count)[:, None] * step + np.arange(size)
    flat = F.index_select(x, Dense.of(places.reshape(-1)), dim=dim)
    y = flat.reshape((*x.shape[:dim], count, size, *x.shape[dim + 1 :]))
    return y.permute(order)


op("unfold(x; dim, size, step) -> y", family=composite(_unfold), expand=_unfold,
   doc="Windows along a dim, as a new last dim.")
