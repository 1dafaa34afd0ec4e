"""Antialiased resampling of aten: separable and linear, so a matrix per dim.

The matrices are read off torch itself, by resampling unit vectors, so the weights are eager's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from gradof.ir.types import BF16, F16, F32
from gradof.ops.expr import Expr, F
from gradof.tracer.aten.registry import Call, aten
from gradof.tracer.aten.types import dense_of


@aten("_upsample_bilinear2d_aa.default", "_upsample_bicubic2d_aa.default",
      "_upsample_lanczos2d_aa.default")  # fmt: skip
def upsample_antialiased(
    c: Call, x: Expr, size: Sequence[int], align_corners: bool,
    scales_h: float | None = None, scales_w: float | None = None,
) -> Expr:  # fmt: skip
    dtype, x = x.dtype, x.cast(F32) if x.dtype in (F16, BF16) else x
    n, channels, height, width = x.shape
    rows = _weights(c, height, size[0], align_corners, scales_h)
    columns = _weights(c, width, size[1], align_corners, scales_w)
    planes = x.reshape((n * channels * height, width))
    wide = F.mm(planes, columns).reshape((n * channels, height, size[1]))
    flipped = wide.mT.reshape((n * channels * size[1], height))
    tall = F.mm(flipped, rows).reshape((n, channels, size[1], size[0]))
    return tall.mT.cast(dtype)


def _weights(c: Call, n: int, m: int, align_corners: bool, scale: float | None) -> Expr:
    """The [n, m] matrix that resamples one dim."""
    func: Any = c.func
    # Planes of two equal columns: torch 2.13 takes those of one for another memory layout.
    dtype = torch.promote_types(c.results[0].dtype, torch.float32)
    unit = torch.eye(n, dtype=dtype).reshape(n, 1, n, 1).repeat(1, 1, 1, 2)
    resampled = func(unit, (m, 2), align_corners, scale, None)
    return c.constant(dense_of(resampled[..., 0].reshape(n, m)))
