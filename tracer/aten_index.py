"""Indexing: gather, scatter, index_select, embedding, and fancy indexing as a flat gather."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gradof.errors import InferenceError
from gradof.ir.attrs import Dense
from gradof.ir.types import BOOL, I64
from gradof.ops.expr import Expr, F, Number
from gradof.tracer.aten_registry import Call, Operand, aten, scalar_for
from gradof.tracer.aten_shape import wrap_dim


def take_last(c: Call, x: Expr, places: Sequence[int]) -> Expr:
    """Elements of the last dim at fixed places."""
    index = c.constant(Dense.of(np.asarray(places, np.int64)))
    return F.index_select(x, index, dim=x.rank - 1)


def positive(index: Expr, n: int) -> Expr:
    """An index with negative entries counted from the end."""
    index = index.cast(I64)
    return F.where(index < 0, index + n, index)


@aten("index_select.default")
def index_select(c: Call, x: Expr, dim: int, index: Expr) -> Expr:
    if x.rank == 0:
        return F.alias(x)
    return F.index_select(x, index.reshape((index.type.size,)), dim=wrap_dim(dim, x.rank))


@aten("embedding.default")
def embedding(
    c: Call, weight: Expr, index: Expr, padding_idx: int = -1, scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Expr:  # fmt: skip
    if scale_grad_by_freq or sparse:
        raise InferenceError("embedding with scale_grad_by_freq or sparse gradients")
    if padding_idx >= 0:
        # The row at padding_idx gets no gradient.
        rows = np.arange(weight.shape[0]).reshape(-1, 1) == padding_idx
        weight = F.where(c.constant(Dense.of(rows)), F.detach(weight), weight)
    flat = F.index_select(weight, index.reshape((index.type.size,)), dim=0)
    return flat.reshape((*index.shape, weight.shape[1]))


@aten("gather.default")
def gather(c: Call, x: Expr, dim: int, index: Expr, *, sparse_grad: bool = False) -> Expr:
    if x.rank == 0:
        return F.alias(x)
    return F.gather(x, index, dim=wrap_dim(dim, x.rank))


def _rows_of(c: Call, x: Expr, index: Expr, src: Operand) -> Expr:
    """The source of a scatter in the shape of the index; torch lets it be larger."""
    if not isinstance(src, Expr):
        return c.full(src, x.type.with_shape(index.shape))
    for dim, n in enumerate(index.shape):
        if src.shape[dim] != n:
            src = F.slice(src, dim=dim, start=0, stop=n, step=1)
    return src.cast(x.dtype)


@aten("scatter.src", "scatter.value")
def scatter(c: Call, x: Expr, dim: int, index: Expr, src: Operand) -> Expr:
    return F.scatter(x, index, _rows_of(c, x, index, src), dim=wrap_dim(dim, x.rank))


@aten("scatter_add.default")
def scatter_add(c: Call, x: Expr, dim: int, index: Expr, src: Expr) -> Expr:
    return F.scatter_add(x, index, _rows_of(c, x, index, src), dim=wrap_dim(dim, x.rank))


@aten("index_add.default")
def index_add(c: Call, x: Expr, dim: int, index: Expr, src: Expr, *, alpha: Number = 1) -> Expr:
    src = src if alpha == 1 else src * scalar_for(alpha, x.type)
    return F.index_add(x, index.reshape((index.type.size,)), src, dim=wrap_dim(dim, x.rank))


@aten("index_fill.int_Scalar", "index_fill.int_Tensor")
def index_fill(c: Call, x: Expr, dim: int, index: Expr, value: Operand) -> Expr:
    dim = wrap_dim(dim, x.rank)
    n = index.type.size
    index = positive(index.reshape((n,)), x.shape[dim])
    shape = (*x.shape[:dim], n, *x.shape[dim + 1 :])
    places = index.reshape((n,) + (1,) * (x.rank - dim - 1)).expand(shape)
    like = x.type.with_shape(shape)
    src = value.cast(x.dtype).expand(shape) if isinstance(value, Expr) else c.full(value, like)
    return F.scatter(x, places, src, dim=dim)


class _Plan:
    """`x[i, :, j]` as one gather: the indexed dims in front, flattened to one of places."""

    def __init__(self, x: Expr, indices: Sequence[Expr | None]) -> None:
        self.dims = [d for d, i in enumerate(indices) if i is not None]
        self.rest = [d for d in range(x.rank) if d not in self.dims]
        self.x = x
        used = [i for i in indices if i is not None]
        if any(i.dtype.kind in ("bool", "uint") for i in used):
            raise InferenceError("a mask among other indices")
        rank = max(i.rank for i in used)
        self.shape = tuple(
            max(i.shape[i.rank - rank + k] if k >= rank - i.rank else 1 for i in used)
            if all(i.shape[i.rank - rank + k] != 0 for i in used if k >= rank - i.rank)
            else 0
            for k in range(rank)
        )
        self.count = int(np.prod(self.shape, dtype=np.int64))
        self.places = self._flat(used)
        adjacent = self.dims == list(range(self.dims[0], self.dims[-1] + 1))
        self.front = self.dims[0] if adjacent else 0

    def _flat(self, used: Sequence[Expr]) -> Expr:
        places: Expr | None = None
        for d, index in zip(self.dims, used, strict=True):
            n = self.x.shape[d]
            entry = positive(index, n).expand(self.shape).reshape((self.count,))
            places = entry if places is None else places * n + entry
        assert places is not None
        return places

    @property
    def rest_shape(self) -> tuple[int, ...]:
        """The dims that are not indexed."""
        return tuple(self.x.shape[d] for d in self.rest)

    def rows(self) -> Expr:
        """x with the indexed dims in front and flattened."""
        moved = self.x.permute((*self.dims, *self.rest))
        n = int(np.prod([self.x.shape[d] for d in self.dims], dtype=np.int64))
        return moved.reshape((n, *self.rest_shape))

    def unrows(self, rows: Expr) -> Expr:
        """The inverse of `rows`."""
        order = (*self.dims, *self.rest)
        moved = rows.reshape(tuple(self.x.shape[d] for d in order))
        return moved.permute(tuple(order.index(i) for i in range(len(order))))

    def result(self, rows: Expr) -> Expr:
        """(count, *rest) as indexing returns it: the index dims where the first indexed dim was."""
        k = len(self.shape)
        y = rows.reshape((*self.shape, *self.rest_shape))
        if self.front == 0:
            return y
        ahead = tuple(range(k, k + self.front))
        return y.permute((*ahead, *range(k), *range(k + self.front, y.rank)))

    def source(self, values: Expr) -> Expr:
        """Values to be stored, broadcast and brought to (count, *rest): the inverse of `result`."""
        shape = (
            *self.rest_shape[: self.front], *self.shape, *self.rest_shape[self.front :],
        )  # fmt: skip
        y, k, f = values.expand(shape), len(self.shape), self.front
        if f:
            y = y.permute((*range(f, f + k), *range(f), *range(f + k, y.rank)))
        return y.reshape((self.count, *self.rest_shape))


@aten("index.Tensor", "_unsafe_index.Tensor")
def index(c: Call, x: Expr, indices: Sequence[Expr | None]) -> Expr:
    plan = _Plan(x, indices)
    return plan.result(F.index_select(plan.rows(), plan.places, dim=0))


@aten("index_put.default", "_unsafe_index_put.default")
def index_put(
    c: Call, x: Expr, indices: Sequence[Expr | None], values: Expr, accumulate: bool = False
) -> Expr:
    if len(indices) == 1 and indices[0] is not None and indices[0].dtype is BOOL:
        return _put_where(x, indices[0], values, accumulate)
    plan = _Plan(x, indices)
    src = plan.source(values.cast(x.dtype))
    rows = plan.rows()
    if accumulate:
        return plan.unrows(F.index_add(rows, plan.places, src, dim=0))
    places = plan.places.reshape((plan.count,) + (1,) * len(plan.rest)).expand(src.shape)
    return plan.unrows(F.scatter(rows, places, src, dim=0))


def _put_where(x: Expr, mask: Expr, values: Expr, accumulate: bool) -> Expr:
    """`x[mask] = v` for one value v: no shape depends on the mask."""
    if values.type.size != 1:
        raise InferenceError("x[mask] = values with more than one value; use torch.where")
    mask = mask.reshape(mask.shape + (1,) * (x.rank - mask.rank))
    value = values.cast(x.dtype).reshape(())
    return F.where(mask, x + value if accumulate else value, x)


@aten("take.default")
def take(c: Call, x: Expr, index: Expr) -> Expr:
    n = x.type.size
    places = positive(index, n).reshape((index.type.size,))
    return F.index_select(x.reshape((n,)), places, dim=0).reshape(index.shape)
