"""Reductions and scans of aten, with dims written out and torch's result dtypes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gradof.ir.types import BOOL, C64, C128, F64
from gradof.ops.expr import Expr, F, Number
from gradof.tracer.aten.registry import Call, aten
from gradof.tracer.aten.shape import wrap_dim

Dims = int | Sequence[int] | None


def all_dims(x: Expr, dims: Dims) -> tuple[int, ...]:
    """Dims as a sorted tuple counted from the front; none given means all."""
    if isinstance(dims, int):
        dims = (dims,)
    if not dims:
        return tuple(range(x.rank))
    return tuple(sorted(wrap_dim(d, x.rank) for d in dims)) if x.rank else ()


@aten("sum.default", "sum.dim_IntList")
def sum_(c: Call, x: Expr, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Expr:
    x = x.cast(c.type().dtype)
    return F.sum(x, dims=all_dims(x, dim), keepdims=keepdim)


@aten("nansum.default")
def nansum(c: Call, x: Expr, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Expr:
    return sum_(c, F.where(F.isnan(x), 0.0, x), dim, keepdim)


@aten("mean.default", "mean.dim")
def mean(c: Call, x: Expr, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Expr:
    x = x.cast(c.type().dtype)
    return F.mean(x, dims=all_dims(x, dim), keepdims=keepdim)


for _name in ("amax", "amin"):

    def _extreme(
        c: Call, x: Expr, dim: Dims = (), keepdim: bool = False, _name: str = _name
    ) -> Expr:
        return F.__getattr__(_name)(x, dims=all_dims(x, dim), keepdims=keepdim)

    aten(f"{_name}.default")(_extreme)

for _name in ("max", "min"):

    def _whole(c: Call, x: Expr, _name: str = _name) -> Expr:
        return F.__getattr__("even_" + _name)(x, dims=all_dims(x, None), keepdims=False)

    def _along(
        c: Call, x: Expr, dim: int, keepdim: bool = False, _name: str = _name
    ) -> tuple[Expr, Expr]:
        if x.rank == 0:
            return F.alias(x), c.full(0, c.type(1))
        # The gradient goes to the element that the index names, not to all that tie with it.
        dim = wrap_dim(dim, x.rank)
        where = F.__getattr__("arg" + _name)(x, dim=dim, keepdims=True)
        value = F.gather(x, where, dim=dim)
        if keepdim:
            return value, where
        shape = x.shape[:dim] + x.shape[dim + 1 :]
        return value.reshape(shape), where.reshape(shape)

    def _where_extreme(
        c: Call, x: Expr, dim: int | None = None, keepdim: bool = False, _name: str = _name
    ) -> Expr:
        name = "arg" + _name
        if dim is None:
            flat = F.__getattr__(name)(x.reshape((x.type.size,)), dim=0, keepdims=False)
            shape = c.type().shape
            assert shape is not None
            return flat.reshape(shape)
        if x.rank == 0:
            return c.full(0)
        return F.__getattr__(name)(x, dim=wrap_dim(dim, x.rank), keepdims=keepdim)

    aten(f"{_name}.default")(_whole)
    aten(f"{_name}.dim")(_along)
    aten(f"arg{_name}.default")(_where_extreme)


@aten("aminmax.default")
def aminmax(
    c: Call, x: Expr, *, dim: int | None = None, keepdim: bool = False
) -> tuple[Expr, Expr]:
    dims = all_dims(x, dim)
    return F.amin(x, dims=dims, keepdims=keepdim), F.amax(x, dims=dims, keepdims=keepdim)


for _name in ("any", "all"):

    def _truth(
        c: Call, x: Expr, dim: Dims = None, keepdim: bool = False, _name: str = _name
    ) -> Expr:
        y = F.__getattr__(_name)(x, dims=all_dims(x, dim), keepdims=keepdim)
        return y.cast(c.type().dtype)

    aten(f"{_name}.default", f"{_name}.dim", f"{_name}.dims")(_truth)


@aten("_is_all_true.default")
def is_all_true(c: Call, x: Expr) -> Expr:
    return F.all(x, dims=all_dims(x, None), keepdims=False)


@aten("_is_any_true.default")
def is_any_true(c: Call, x: Expr) -> Expr:
    return F.any(x, dims=all_dims(x, None), keepdims=False)


@aten("count_nonzero.default", "count_nonzero.dim_IntList")
def count_nonzero(c: Call, x: Expr, dim: Dims = None) -> Expr:
    hits = x if x.dtype is BOOL else x.cast(BOOL)
    return F.sum(hits.cast(c.type().dtype), dims=all_dims(x, dim), keepdims=False)


def _correction(unbiased: Number | None) -> float:
    assert not isinstance(unbiased, complex)
    return 1.0 if unbiased is None else float(unbiased)


def _summed_in(c: Call, x: Expr) -> Expr:
    """An operand as torch's kernels for spreads add it up, which is in float64 on a CPU."""
    return x.cast(F64) if c.results[0].device.type == "cpu" else x


def _complex_spread(
    c: Call, x: Expr, name: str, dims: tuple[int, ...], correction: float, keepdims: bool
) -> Expr:
    """The variance of both parts together, or its root by a norm, whose slope at 0 is 0."""
    if name == "var":
        parts = (_summed_in(c, part) for part in (F.real(x), F.imag(x)))
        real, imag = (
            F.var(p, dims=dims, correction=correction, keepdims=keepdims) for p in parts
        )
        return real + imag
    x = x.cast(C128) if c.results[0].device.type == "cpu" else x
    away = F.abs(x - F.mean(x, dims=dims, keepdims=True))
    count = max(math.prod(x.shape[d] for d in dims) - correction, 0.0)
    size = F.torch_norm(away, ord=2.0, dims=dims, keepdims=keepdims)
    return size * (1 / math.sqrt(count) if count else math.inf)


for _name in ("var", "std"):

    def _spread(
        c: Call, x: Expr, dim: Dims = None, *, correction: Number | None = None,
        keepdim: bool = False, _name: str = _name,
    ) -> Expr:  # fmt: skip
        options: dict[str, Any] = {
            "dims": all_dims(x, dim), "correction": _correction(correction), "keepdims": keepdim,
        }  # fmt: skip
        if x.dtype.is_complex:
            spread = _complex_spread(c, x, _name, **options)
        else:
            spread = F.__getattr__(_name)(_summed_in(c, x), **options)
        return spread.cast(c.type().dtype)

    def _spread_mean(
        c: Call, x: Expr, dim: Dims = None, *, correction: Number | None = None,
        keepdim: bool = False, _name: str = _name,
    ) -> tuple[Expr, Expr]:  # fmt: skip
        spread = _spread(c, x, dim, correction=correction, keepdim=keepdim, _name=_name)
        wide = x if x.dtype.is_complex else _summed_in(c, x)
        return spread, F.mean(wide, dims=all_dims(x, dim), keepdims=keepdim).cast(x.dtype)

    aten(f"{_name}.correction")(_spread)
    aten(f"{_name}_mean.correction")(_spread_mean)


@aten("prod.default")
def prod(c: Call, x: Expr, *, dtype: Any = None) -> Expr:
    return F.prod(x.cast(c.type().dtype), dims=all_dims(x, None), keepdims=False)


@aten("prod.dim_int")
def prod_dim(c: Call, x: Expr, dim: int, keepdim: bool = False, *, dtype: Any = None) -> Expr:
    return F.prod(x.cast(c.type().dtype), dims=all_dims(x, dim), keepdims=keepdim)


@aten("cumsum.default")
def cumsum(c: Call, x: Expr, dim: int, *, dtype: Any = None) -> Expr:
    x = x.cast(c.type().dtype)
    return F.alias(x) if x.rank == 0 else F.cumsum(x, dim=wrap_dim(dim, x.rank))


@aten("linalg_vector_norm.default", "norm.ScalarOpt_dim", "norm.Scalar")
def vector_norm(
    c: Call, x: Expr, p: Number = 2, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None
) -> Expr:
    p = 2 if p is None else p
    assert not isinstance(p, complex)
    if x.dtype.is_complex:
        x = F.abs(x.cast(C128 if c.type().dtype == F64 else C64))
    x = x.cast(c.type().dtype)
    dims = all_dims(x, dim)
    real = x.dtype.kind == "float"
    if p != 0 and not real and all(x.shape[d] == 1 for d in dims):
        size = F.abs(x)
        return size if keepdim else F.sum(size, dims=dims, keepdims=False)
    plain = p in (0, 1) or math.isinf(p) or not real
    norm = F.vector_norm if plain else F.torch_norm
    return norm(x, ord=float(p), dims=dims, keepdims=keepdim)


@aten("dist.default")
def dist(c: Call, x: Expr, y: Expr, p: Number = 2) -> Expr:
    away = x - y if x.dtype.is_complex or y.dtype.is_complex else (
        x.cast(c.type().dtype) - y.cast(c.type().dtype))  # fmt: skip
    return vector_norm(c, away, p)


@aten("trace.default")
def trace(c: Call, x: Expr) -> Expr:
    diagonal = F.diagonal(x, offset=0, dim1=0, dim2=1)
    dtype = c.type().dtype
    wide = _summed_in(c, diagonal) if dtype.kind == "float" else diagonal.cast(dtype)
    return F.sum(wide, dims=(0,), keepdims=False).cast(dtype)
