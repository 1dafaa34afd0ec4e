"""Programs for other sizes: interpolation, and padding by what is there; see `torch_programs`.

    torch.nn.functional.interpolate(x, size=(3, 5), mode="bilinear")
        columns first: x[..., i] * (1 - w) + x[..., i + 1] * w; then rows of those
    torch.nn.functional.pad(x, (2, 2), mode="reflect")
        cat([x[..., 1:3].flip(-1), x, x[..., -3:-1].flip(-1)], -1)

A dim after another is what eager's formula of a pixel's four (or eight) neighbours is, rounded as
it rounds; torch's own decomposition takes a difference, which of infinite numbers is nan. Places
that follow one another are slices, and not indices: their gradients are sums of arrays, where
those of indices are added number by number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from gradof.errors import UnsupportedOpError
from gradof.tracer.torch.programs import Programs, constant

Tensor = torch.Tensor
_ATEN = torch.ops.aten
PROGRAMS = Programs()
_FEW = 4  # runs of places, of which slices are put together
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
    if not dtype.is_floating_point:  # torch has weights of its own for bytes: it is called
        raise UnsupportedOpError("linear interpolation of integers, which torch rounds its own way")
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


@PROGRAMS.of(_ATEN.upsample_nearest1d.default, _ATEN.upsample_nearest2d.default,
             _ATEN.upsample_nearest3d.default)  # fmt: skip
def _nearest(x: Tensor, output_size: Sequence[int], *scales: float | None) -> Tensor:
    return _nearest_of(x, output_size, scales, 0.0)


@PROGRAMS.of(_ATEN._upsample_nearest_exact1d.default, _ATEN._upsample_nearest_exact2d.default,
             _ATEN._upsample_nearest_exact3d.default)  # fmt: skip
def _nearest_exact(x: Tensor, output_size: Sequence[int], *scales: float | None) -> Tensor:
    return _nearest_of(x, output_size, scales, 0.5)


def _nearest_of(
    x: Tensor, output_size: Sequence[int], scales: Sequence[float | None], middle: float
) -> Tensor:
    single = np.float32  # eager's, whatever the dtype
    plane = len(output_size) == 2 and not middle  # where eager looks at sizes, not at the scale
    for d in reversed(range(len(output_size))):
        n, size = x.shape[d + 2], output_size[d]
        scale = scales[d] if d < len(scales) else None
        ratio = single(1 / scale) if scale is not None and scale > 0 else single(n) / single(size)
        if plane and size in (n, 2 * n):
            ratio = single(n / size)
        found = np.floor((np.arange(size, dtype=single) + single(middle)) * ratio)
        places = np.minimum(found.astype(np.int64), n - 1)
        x = _picked(x, d + 2, places)
    return x.clone()


@PROGRAMS.of(_ATEN.reflection_pad1d.default, _ATEN.reflection_pad2d.default,
             _ATEN.reflection_pad3d.default)  # fmt: skip
def _reflected(x: Tensor, padding: Sequence[int]) -> Tensor:
    def reflect(places: Any, n: int) -> Any:
        last = n - 1
        return last - np.abs(last - np.abs(places))

    return _padded(x, padding, reflect)


@PROGRAMS.of(_ATEN.replication_pad1d.default, _ATEN.replication_pad2d.default,
             _ATEN.replication_pad3d.default)  # fmt: skip
def _replicated(x: Tensor, padding: Sequence[int]) -> Tensor:
    return _padded(x, padding, lambda places, n: np.clip(places, 0, n - 1))


def _padded(x: Tensor, padding: Sequence[int], inside: Callable[[Any, int], Any]) -> Tensor:
    for k in range(len(padding) // 2):
        dim, before, after = x.ndim - 1 - k, padding[2 * k], padding[2 * k + 1]
        n = x.shape[dim]
        x = _picked(x, dim, inside(np.arange(-before, n + after), n))
    return x.clone()


def _picked(x: Tensor, dim: int, places: Any) -> Tensor:
    """The elements at some places along a dim."""
    n, size = x.shape[dim], len(places)
    if size == n and (places == np.arange(n)).all():
        return x
    times = size // max(n, 1)
    if n and size == times * n and (places == np.arange(size) // times).all():
        wide = (*x.shape[: dim + 1], times, *x.shape[dim + 1 :])
        return x.unsqueeze(dim + 1).expand(wide).reshape(*x.shape[:dim], size, *x.shape[dim + 1 :])
    parts = _runs(places)
    if len(parts) > _FEW:
        return x.index_select(dim, constant(places, x.device))
    return torch.cat([_run(x, dim, first, step, count) for first, step, count in parts], dim)


def _runs(places: Any) -> list[tuple[int, int, int]]:
    """Places as runs that go up, down, or stay: the first, the step, how many."""
    found: list[tuple[int, int, int]] = []
    for place in places.tolist():
        if found:
            first, step, count = found[-1]
            if count == 1 and abs(place - first) <= 1:
                found[-1] = first, place - first, 2
                continue
            if count > 1 and place == first + step * count:
                found[-1] = first, step, count + 1
                continue
        found.append((place, 1, 1))
    return found


def _run(x: Tensor, dim: int, first: int, step: int, count: int) -> Tensor:
    if step == 0:
        shape = [count if d == dim else n for d, n in enumerate(x.shape)]
        return x.narrow(dim, first, 1).expand(shape)
    if step > 0:
        return x.narrow(dim, first, count)
    return x.narrow(dim, first - count + 1, count).flip(dim)
