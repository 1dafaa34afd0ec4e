"""Maxima of windows of unequal size: adaptive and fractional max pooling.

>>> F.adaptive_max_pool2d.multiple(x, size=(3, 3))    # window i: [floor(i n/m), ceil((i+1) n/m))

As for the even kind, the flat index of each maximum in its plane is a second result, and the
gradient goes there.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradof.errors import CodegenError, InferenceError
from gradof.ir.attrs import Attr
from gradof.ir.types import I64, Type
from gradof.ops.expr import Expr, Like
from gradof.ops.families import NUMBERS, int_tuple, known_shape, tensor
from gradof.ops.pool import scatter_to_maxima
from gradof.ops.registry import Family, op

Array = NDArray[Any]
Ints = tuple[int, ...]


def _infer(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    x, size = tensor(inputs[0]), int_tuple(attrs["size"], "size")
    shape, rank = known_shape(x), len(size)
    if x.dtype.kind not in NUMBERS or len(shape) <= rank:
        raise InferenceError(f"pooling over {rank} dims has no maxima of {x}")
    if 0 in shape[-rank:] or any(m < 0 for m in size):
        raise InferenceError(f"pooling of {list(shape[-rank:])} to {list(size)}")
    y = x.with_shape((*shape[:-rank], *size))
    return (y, y.with_dtype(I64))


def _infer_fractional(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    x, kernel = tensor(inputs[0]), int_tuple(attrs["kernel"], "kernel")
    for n, k, m in zip(known_shape(x)[-len(kernel):], kernel, int_tuple(attrs["size"], "size"),
                       strict=True):  # fmt: skip
        if m + k - 1 > n:
            raise InferenceError(f"{m} windows of {k} in a dim of size {n}")
    return _infer(inputs[:1], attrs)


def _np_adaptive_max_pool(x: Array, *, size: Ints) -> tuple[Array, Array]:
    rank, lead = len(size), x.shape[: -len(size)]
    space = x.shape[-rank:]
    places = np.arange(np.prod(space)).reshape(space)
    values = np.empty((*lead, *size), x.dtype)
    indices = np.empty((*lead, *size), np.int64)
    for at in itertools.product(*map(range, size)):
        window: tuple[Any, ...] = tuple(
            slice(i * n // m, -(-(i + 1) * n // m))
            for i, n, m in zip(at, space, size, strict=True)
        )
        every: tuple[Any, ...] = (..., *window)
        here: tuple[Any, ...] = (..., *at)
        flat = x[every].reshape(*lead, -1)
        best = np.argmax(flat, axis=-1)  # nan counts as the largest, for torch as for argmax
        values[here] = np.take_along_axis(flat, best[..., None], axis=-1)[..., 0]
        indices[here] = places[window].reshape(-1)[best]
    return values, indices


def _np_fractional_max_pool(
    x: Array, samples: Array, *, kernel: Ints, size: Ints
) -> tuple[Array, Array]:
    raise CodegenError("fractional max pooling has no counterpart in numpy")


def _vjp(g_values: Expr, x_like: Like, indices: Expr, size: Ints) -> Expr:
    return scatter_to_maxima(g_values, x_like, indices, len(size))


for _rank in (2, 3):
    op(f"adaptive_max_pool{_rank}d(x; size) -> values, indices", family=Family(_infer),
       numpy=_np_adaptive_max_pool, vjp={"x": _vjp}, traits={"selects"},
       torch=f"torch.ops.aten.adaptive_max_pool{_rank}d({{x}}, {{size}})",
       doc="Maxima of as many windows as asked for, and their flat indices within the plane.")
    op(f"fractional_max_pool{_rank}d(x, samples; kernel, size) -> values, indices",
       family=Family(_infer_fractional), numpy=_np_fractional_max_pool,
       vjp={"x": _vjp, "samples": None}, traits={"selects"},
       torch=f"torch.ops.aten.fractional_max_pool{_rank}d({{x}}, {{kernel}}, {{size}}, "
             "{samples})",
       doc="Maxima of windows that begin where `samples` say (Graham 2014); torch only.")
