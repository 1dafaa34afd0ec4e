"""Slices at places known when the graph runs: reads and writes of a loop's step.

    %row : f64[1,3] = dynamic_slice[dims=(0,), sizes=(1,)](%x, %t)          # x[t:t+1]
    %new : f64[8,8] = dynamic_slice_scatter[dims=(0, 1)](%r, %v, %i, %j)    # r[i:i+1, j:j+1] = v

Operands after the arrays are one start for each of `dims`, integers without dims. A start that
reaches out of the array is moved so that it does not, as XLA does; whoever emits the op sees to it
that there is none where that would be wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradof.errors import InferenceError
from gradof.ir.attrs import Attr
from gradof.ir.types import TensorType, Type
from gradof.ops.expr import Expr, F, Like
from gradof.ops.families import check_dims, int_tuple, known_shape, tensor
from gradof.ops.registry import Family, op

Array = NDArray[Any]
Ints = tuple[int, ...]


def _check_starts(starts: Sequence[Type], dims: Attr, rank: int) -> Ints:
    places = check_dims(dims, rank)
    if len(starts) != len(places):
        raise InferenceError(f"{len(starts)} starts for the dims {places}")
    for start in starts:
        if not isinstance(start, TensorType) or start.shape != () or (
            start.dtype.kind not in ("int", "uint")
        ):
            raise InferenceError(f"a start is an integer without dims, not {start}")
    return places


def _part(whole: Ints, dims: Ints, sizes: Ints) -> Ints:
    """The shape of a part that has these sizes along these dims."""
    if len(sizes) != len(dims) or any(
        not 0 <= n <= whole[d] for d, n in zip(dims, sizes, strict=False)
    ):
        raise InferenceError(f"a part of sizes {sizes} along the dims {dims} of {list(whole)}")
    found = dict(zip(dims, sizes, strict=True))
    return tuple(found.get(d, n) for d, n in enumerate(whole))


def _infer_slice(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    x = tensor(inputs[0])
    shape = known_shape(x)
    dims = _check_starts(inputs[1:], attrs["dims"], len(shape))
    return (x.with_shape(_part(shape, dims, int_tuple(attrs["sizes"], "sizes"))),)


def _infer_scatter(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    if len(inputs) < 2:
        raise InferenceError("dynamic_slice_scatter takes an array, a part and its starts")
    x, src = tensor(inputs[0]), tensor(inputs[1], "the part")
    shape, part = known_shape(x), known_shape(src)
    dims = _check_starts(inputs[2:], attrs["dims"], len(shape))
    if x.dtype != src.dtype or len(part) != len(shape) or (
        _part(shape, dims, tuple(part[d] for d in dims)) != part
    ):
        raise InferenceError(f"{src} is no part of {x} along the dims {dims}")
    return (x,)


def _infer_unslice(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    part = tensor(inputs[0])
    whole = part.with_shape(int_tuple(attrs["shape"], "shape"))
    _infer_scatter([whole, *inputs], {"dims": attrs["dims"]})
    return (whole,)


def place_of(shape: Ints, starts: Sequence[Any], dims: Ints, sizes: Ints) -> tuple[slice, ...]:
    """The index of a part."""
    index = [slice(None)] * len(shape)
    for start, d, n in zip(starts, dims, sizes, strict=True):
        first = max(0, min(int(start), shape[d] - n))
        index[d] = slice(first, first + n)
    return tuple(index)


def _np_slice(x: Array, *starts: Any, dims: Ints, sizes: Ints) -> Array:
    result: Array = x[place_of(x.shape, starts, dims, sizes)]
    return result


def write_slice(x: Array, src: Array, *starts: Any, dims: Ints) -> Array:
    """`dynamic_slice_scatter` into the array itself."""
    x[place_of(x.shape, starts, dims, tuple(src.shape[d] for d in dims))] = src
    return x


def _np_scatter(x: Array, src: Array, *starts: Any, dims: Ints) -> Array:
    return write_slice(x.copy(), src, *starts, dims=dims)


def _np_unslice(part: Array, *starts: Any, dims: Ints, shape: Ints) -> Array:
    return write_slice(np.zeros(shape, part.dtype), part, *starts, dims=dims)


def _slice_vjp(
    g: Expr, xs: list[Expr], xs_like: list[Like], dims: Ints
) -> list[Expr | None]:
    shape = xs_like[0].shape
    return [F.dynamic_unslice(g, *xs[1:], dims=dims, shape=shape), *_none(xs[1:])]


def _scatter_vjp(
    g: Expr, xs: list[Expr], xs_like: list[Like], dims: Ints
) -> list[Expr | None]:
    part, starts = xs_like[1], xs[2:]
    sizes = tuple(part.shape[d] for d in dims)
    kept = F.dynamic_slice_scatter(g, part.zeros(), *starts, dims=dims)
    return [kept, F.dynamic_slice(g, *starts, dims=dims, sizes=sizes), *_none(starts)]


def _unslice_vjp(
    g: Expr, xs: list[Expr], xs_like: list[Like], dims: Ints
) -> list[Expr | None]:
    sizes = tuple(xs_like[0].shape[d] for d in dims)
    return [F.dynamic_slice(g, *xs[1:], dims=dims, sizes=sizes), *_none(xs[1:])]


def _none(starts: Sequence[Expr]) -> list[None]:
    return [None] * len(starts)


op("dynamic_slice(*xs; dims, sizes) -> y", family=Family(_infer_slice), traits={"view"},
   numpy=_np_slice, vjp={"xs": _slice_vjp},
   doc="The part of the first operand that begins at the starts, with `sizes` along `dims`.")

op("dynamic_slice_scatter(*xs; dims) -> y", family=Family(_infer_scatter), numpy=_np_scatter,
   vjp={"xs": _scatter_vjp},
   doc="The first operand with the part that begins at the starts replaced by the second.")

op("dynamic_unslice(*xs; dims, shape) -> y", family=Family(_infer_unslice), numpy=_np_unslice,
   vjp={"xs": _unslice_vjp},
   doc="Zeros of `shape` with that part set: the adjoint of dynamic_slice.")
