"""Programs for linear interpolation to another size; see `torch_programs`.

    torch.nn.functional.interpolate(x, size=(3, 5), mode="bilinear")
        columns first: x[..., i] * (1 - w) + x[..., i + 1] * w; then rows of those

A dim after another is what eager's formula of a pixel's four (or eight) neighbours is, rounded as
it rounds; torch's own decomposition takes a difference, which of infinite numbers is nan.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from gradof.tracer.torch.programs import Programs, constant

Tensor = torch.Tensor
_ATEN = torch.ops.aten
PROGRAMS = Programs()
_HALF = (torch.float16, torch.bfloat16)
_KINDS: dict[torch.dtype, tuple[Any, Any]] = {
    torch.float32: (np.float32, np.float64), torch.float64: (np.float64, np.longdouble),
}  # fmt: skip


@PROGRAMS.of(_ATEN.upsample_linear1d.default, _ATEN.upsample_bilinear2d.default,
             _ATEN.upsample_trilinear3d.default)  # fmt: skip
def _linear(
    x: Tensor, output_size: Sequence[int], align_corners: bool, *scales: float | None
) -> Tensor:
    dtype = x.dtype
    x = x.to(torch.float32) if dtype in _HALF else x
    for d in reversed(range(len(output_size))):
        scale = scales[d] if d < len(scales) else None
        x = _along(x, d + 2, output_size[d], align_corners, scale)
    return x.to(dtype)


def _along(x: Tensor, dim: int, size: int, align_corners: bool, scale: float | None) -> Tensor:
    """The interpolation along one dim: [..., size, ...]."""
    n = x.shape[dim]
    if size == n:  # every place is a pixel, whatever the scale, of weight 1 beside a weight of 0
        return x * 1.0 + x * 0.0
    number, exact = _KINDS[x.dtype]
    place = np.arange(size, dtype=number)
    if align_corners:
        place = place * (number(n - 1) / number(size - 1) if size > 1 else number(0))
    else:
        ratio = number(1 / scale) if scale is not None and scale > 0 else number(n) / number(size)
        # rounded once, as a fused multiply-add
        place = ((place + number(0.5)).astype(exact) * exact(ratio) - exact(0.5)).astype(number)
        place = np.maximum(place, number(0))
    left = np.minimum(place.astype(np.int64), n - 1)
    right = np.minimum(left + 1, n - 1)
    weight = np.clip(place - left.astype(number), 0, 1).reshape((-1,) + (1,) * (x.ndim - dim - 1))

    def near(at: Any, share: Any) -> Tensor:
        """The elements at some places, times their shares."""
        return x.index_select(dim, constant(at, x.device)) * constant(share, x.device)

    return near(left, 1 - weight) + near(right, weight)
