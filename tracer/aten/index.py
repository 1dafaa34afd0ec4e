"""Indexing of aten: gathers, scatters, fancy indexing, embedding, order statistics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradof.errors import InferenceError
from gradof.ir.attrs import Dense
from gradof.ir.types import BOOL, I64
from gradof.ops.expr import Expr, F, Number
from gradof.tracer.aten.registry import Call, Operand, aten, scalar_for
from gradof.tracer.aten.shape import wrap_dim


def within(index: Expr, x: Expr, dim: int, error: str = "runtime") -> Expr:
    """The index, checked: a negative one is refused too, with the class of error of eager's."""
    node = index.value.node
    known = node.attrs["value"] if node is not None and node.kind == "Constant" else None
    if isinstance(known, Dense):  # one of the trace's, which is looked at now
        places: Any = known.numpy()
        if not places.size or (places.min() >= 0 and places.max() < x.shape[dim]):
            return index
    return F.in_range(index, size=x.shape[dim], wraps=False, error=error)


@aten("index_select.default")
def index_select(c: Call, x: Expr, dim: int, index: Expr) -> Expr:
    if x.rank == 0:
        return F.alias(x)
    dim, index = wrap_dim(dim, x.rank), index.reshape((index.type.size,))
    return F.index_select(x, within(index, x, dim, "index"), dim=dim)


@aten("embedding.default")
def embedding(
    c: Call, weight: Expr, index: Expr, padding_idx: int = -1, scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Expr:  # fmt: skip
    if scale_grad_by_freq or sparse:
        raise InferenceError("embedding with scale_grad_by_freq or sparse gradients")
    return F.embedding(weight, index, padding_idx=padding_idx)


@aten("gather.default")
def gather(c: Call, x: Expr, dim: int, index: Expr, *, sparse_grad: bool = False) -> Expr:
    if sparse_grad:
        raise InferenceError("gather with sparse gradients")
    if x.rank == 0:
        return F.alias(x)
    dim = wrap_dim(dim, x.rank)
    return F.gather(x, within(index, x, dim), dim=dim)


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
    dim = wrap_dim(dim, x.rank)
    return F.scatter(x, within(index, x, dim), _rows_of(c, x, index, src), dim=dim)


@aten("scatter_add.default")
def scatter_add(c: Call, x: Expr, dim: int, index: Expr, src: Expr) -> Expr:
    dim = wrap_dim(dim, x.rank)
    return F.scatter_add(x, within(index, x, dim), _rows_of(c, x, index, src), dim=dim)


@aten("index_add.default")
def index_add(c: Call, x: Expr, dim: int, index: Expr, src: Expr, *, alpha: Number = 1) -> Expr:
    src = src if alpha == 1 else src * scalar_for(alpha, x.type)
    dim, index = wrap_dim(dim, x.rank), index.reshape((index.type.size,))
    return F.index_add(x, within(index, x, dim), src, dim=dim)


def _put_rows(
    c: Call, x: Expr, dim: int, index: Expr, values: Expr, wraps: bool = False
) -> Expr:
    """x with x[..., index, ...] along one dim set to values, broadcast."""
    n = index.type.size
    shape = (*x.shape[:dim], n, *x.shape[dim + 1 :])
    flat = index.reshape((n,)).cast(I64)
    places = F.in_range(flat, size=x.shape[dim], wraps=wraps, error="index")
    places = places.reshape((n,) + (1,) * (x.rank - dim - 1)).expand(shape)
    return F.scatter(x, places, values.cast(x.dtype).expand(shape), dim=dim)


@aten("index_fill.int_Scalar", "index_fill.int_Tensor")
def index_fill(c: Call, x: Expr, dim: int, index: Expr, value: Operand) -> Expr:
    # By where, and not as a copy of rows: an index that repeats fills once.
    dim = wrap_dim(dim, x.rank)
    row = x.type.with_shape((x.shape[dim],)).with_dtype(BOOL)
    one = c.full(True, row.with_shape(()))
    hit = _put_rows(c, c.full(False, row), 0, index, one, wraps=True)
    hit = hit.reshape(tuple(n if d == dim else 1 for d, n in enumerate(x.shape)))
    filling = value if isinstance(value, Expr) else c.full(value, x.type.with_shape(()))
    return F.where(hit, filling, x)


@aten("index_copy.default")
def index_copy(c: Call, x: Expr, dim: int, index: Expr, src: Expr) -> Expr:
    return _put_rows(c, x, wrap_dim(dim, x.rank), index, src)


def _used(indices: Sequence[Expr | None]) -> tuple[tuple[int, ...], list[Expr]]:
    dims = tuple(d for d, i in enumerate(indices) if i is not None)
    used = [i for i in indices if i is not None]
    if any(i.dtype.kind in ("bool", "uint") for i in used):
        raise InferenceError("a mask among other indices")
    return dims, [i.cast(I64) for i in used]


@aten("index.Tensor", "_unsafe_index.Tensor")
def index(c: Call, x: Expr, indices: Sequence[Expr | None]) -> Expr:
    dims, used = _used(indices)
    return F.index(x, *used, dims=dims)


@aten("index_put.default", "_unsafe_index_put.default")
def index_put(
    c: Call, x: Expr, indices: Sequence[Expr | None], values: Expr, accumulate: bool = False
) -> Expr:
    given = [(dim, i) for dim, i in enumerate(indices) if i is not None]
    if len(given) == 1 and given[0][1].dtype is BOOL:
        ((dim, mask),) = given  # those before it are whole dims
        return _put_where(x, mask, dim, values, accumulate)
    dims, used = _used(indices)
    return F.index_put(x, values.cast(x.dtype), *used, dims=dims, accumulate=accumulate)


def _put_where(x: Expr, mask: Expr, dim: int, values: Expr, accumulate: bool) -> Expr:
    """`x[..., mask] = v` with the mask from `dim` on, for one v: no shape depends on the mask."""
    if values.type.size != 1:
        raise InferenceError("x[mask] = values with more than one value; use torch.where")
    mask = mask.reshape((1,) * dim + mask.shape + (1,) * (x.rank - mask.rank - dim))
    value = values.cast(x.dtype).reshape(())
    return F.where(mask, x + value if accumulate else value, x)


@aten("take.default")
def take(c: Call, x: Expr, index: Expr) -> Expr:
    return F.take(x, index)


# --- order --------------------------------------------------------------------------------------


@aten("sort.default", "sort.stable")
def sort(c: Call, x: Expr, *args: Any, **kwargs: Any) -> tuple[Expr, ...]:
    stable = ("stable",) if c.func.name().endswith("stable") else ()
    names = (*stable, "dim", "descending")
    given = dict(zip(names, args, strict=False)) | kwargs
    return F.sort.multiple(
        x, dim=wrap_dim(given.get("dim", -1), x.rank), stable=bool(given.get("stable")),
        descending=bool(given.get("descending", False)),
    )  # fmt: skip


@aten("topk.default")
def topk(
    c: Call, x: Expr, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Expr, ...]:
    dim = wrap_dim(dim, x.rank)
    return F.topk.multiple(x, k=k, dim=dim, largest=largest, sorted=sorted)


@aten("kthvalue.default")
def kthvalue(
    c: Call, x: Expr, k: int, dim: int = -1, keepdim: bool = False
) -> tuple[Expr, ...]:
    return F.kthvalue.multiple(x, k=k, dim=wrap_dim(dim, x.rank), keepdims=keepdim)


@aten("median.default")
def median(c: Call, x: Expr) -> Expr:
    return F.median(x)


@aten("median.dim")
def median_dim(c: Call, x: Expr, dim: int, keepdim: bool = False) -> tuple[Expr, ...]:
    return F.median_dim.multiple(x, dim=wrap_dim(dim, x.rank), keepdims=keepdim)


@aten("cummax.default", "cummin.default")
def running(c: Call, x: Expr, dim: int) -> tuple[Expr, ...]:
    name = c.func.name().removeprefix("aten::")
    return F.__getattr__(name).multiple(x, dim=wrap_dim(dim, x.rank))


@aten("cumprod.default")
def cumprod(c: Call, x: Expr, dim: int, *, dtype: Any = None) -> Expr:
    return F.cumprod(x.cast(c.type().dtype), dim=wrap_dim(dim, x.rank))


@aten("logcumsumexp.default")
def logcumsumexp(c: Call, x: Expr, dim: int) -> Expr:
    return F.logcumsumexp(x, dim=wrap_dim(dim, x.rank))
