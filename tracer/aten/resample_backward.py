"""Backward ops of interpolation and padding: the adjoints of what is linear in every dim.

    upsample_bilinear2d_backward(g)       columns by a matrix, then rows: [n, m] of each dim
    upsample_nearest1d_backward(g)        each element added to the place that it was taken from

The matrices and the places are read off torch itself, by resampling unit vectors and numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gradof.ir.attrs import Dense
from gradof.ir.types import BF16, F16, F32
from gradof.ops.expr import Expr, F
from gradof.tracer.aten.registry import Call, aten
from gradof.tracer.aten.types import dense_of

Ints = Sequence[int]
_ATEN = torch.ops.aten


@aten("upsample_linear1d_backward.default", "upsample_bilinear2d_backward.default",
      "upsample_trilinear3d_backward.default", "upsample_bicubic2d_backward.default",
      "_upsample_bilinear2d_aa_backward.default", "_upsample_bicubic2d_aa_backward.default",
      "_upsample_lanczos2d_aa_backward.default")  # fmt: skip
def upsample_backward(
    c: Call, g: Expr, size: Ints, input_size: Ints, align_corners: bool,
    *scales: float | None,
) -> Expr:  # fmt: skip
    name = c.func.name().removeprefix("aten::").removesuffix("_backward")
    # one dim of a plane is resampled as one of a line, or of a space
    plane = name if "2d" in name else "upsample_bilinear2d"
    dtype, g = g.dtype, _wide(g)
    for d, n in enumerate(input_size[2:]):
        scale = scales[d] if d < len(scales) else None
        g = _along(g, d + 2, _weights(c, plane, n, size[d], align_corners, scale))
    return g.cast(dtype)


def _wide(g: Expr) -> Expr:
    return g.cast(F32) if g.dtype in (F16, BF16) else g


def _weights(
    c: Call, name: str, n: int, m: int, align_corners: bool, scale: float | None
) -> Expr:
    """The [m, n] matrix of what each of m places takes from each of n."""
    dtype = torch.promote_types(c.results[0].dtype, torch.float32)
    unit = torch.eye(n, dtype=dtype).reshape(n, 1, n, 1).repeat(1, 1, 1, 2)  # see `resample`
    made = getattr(_ATEN, name).default(unit, (m, 2), align_corners, scale, None)
    return c.constant(dense_of(made[..., 0].reshape(n, m).mT.contiguous()))


def _along(g: Expr, dim: int, matrix: Expr) -> Expr:
    """The product of one dim with a matrix [m, n]: [..., n, ...]."""
    order = [d for d in range(g.rank) if d != dim] + [dim]
    moved = F.permute(g, dims=tuple(order))
    flat = moved.reshape((moved.type.size // max(moved.shape[-1], 1), moved.shape[-1]))
    made = F.mm(flat, matrix).reshape((*moved.shape[:-1], matrix.shape[1]))
    return F.permute(made, dims=tuple(order.index(d) for d in range(g.rank)))


@aten("upsample_nearest1d_backward.default", "upsample_nearest2d_backward.default",
      "upsample_nearest3d_backward.default", "_upsample_nearest_exact1d_backward.default",
      "_upsample_nearest_exact2d_backward.default",
      "_upsample_nearest_exact3d_backward.default")  # fmt: skip
def nearest_backward(
    c: Call, g: Expr, size: Ints, input_size: Ints, *scales: float | None
) -> Expr:
    forward = _forward(c)
    dtype, g = g.dtype, _wide(g)
    for d, n in enumerate(input_size[2:]):
        here = [m if i == d else 1 for i, m in enumerate(size)]
        factors = [s if i == d else None for i, s in enumerate(scales)]
        g = _added(g, d + 2, forward(_numbers(d, n, len(size)), here, *factors), n)
    return g.cast(dtype)


@aten("replication_pad1d_backward.default", "replication_pad2d_backward.default",
      "replication_pad3d_backward.default")  # fmt: skip
def replication_pad_backward(c: Call, g: Expr, x: Expr, padding: Ints) -> Expr:
    forward, rank = _forward(c), len(padding) // 2
    dtype, g = g.dtype, _wide(g)
    for d, n in enumerate(x.shape[-rank:]):
        last = 2 * (rank - 1 - d)
        here = [p if i in (last, last + 1) else 0 for i, p in enumerate(padding)]
        g = _added(g, g.rank - rank + d, forward(_numbers(d, n, rank), here), n)
    return g.cast(dtype)


def _forward(c: Call) -> Any:
    name = c.func.name().removeprefix("aten::").removesuffix("_backward")
    return getattr(_ATEN, name).default


def _numbers(d: int, n: int, rank: int) -> torch.Tensor:
    """0 to n - 1 along one of `rank` dims, of which the others have one element."""
    shape = [n if i == d else 1 for i in range(rank)]
    return torch.arange(n, dtype=torch.float64).reshape(1, 1, *shape)


def _added(g: Expr, dim: int, taken: torch.Tensor, n: int) -> Expr:
    """What was taken from n places of a dim, added up there."""
    places: NDArray[np.int64] = taken.reshape(-1).numpy().astype(np.int64)
    m = len(places)
    if n and m % n == 0 and (places == np.arange(m) // (m // n)).all():
        parts = g.reshape((*g.shape[:dim], n, m // n, *g.shape[dim + 1 :]))
        return parts.sum(dims=(dim + 1,), keepdims=False)
    shape = (*g.shape[:dim], n, *g.shape[dim + 1 :])
    zeros = F.full.with_emitter(g.emitter)(
        shape=shape, dtype=g.dtype, value=0.0, device=g.type.device
    )
    return F.index_add(zeros, Dense.of(places), g, dim=dim)
