"""Shapes and dtypes of the layers of networks of images, whose results may wait (`deferred`).

    TYPES[aten.convolution.default](x, w, None, [1, 1], ...)  →  [((8, 64, 32, 32), torch.float32)]

None where the call is wrong, or for what is not known here: then torch runs it, and says so. Fused
kernels are off in a trace, and torch's plain convolution takes several times as long as that of the
compiled code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from gradof.ops.conv import conv_size, transposed_size
from gradof.ops.pool import pooled_size

Tensor = torch.Tensor
Ints = Sequence[int]
Types = list[tuple[tuple[int, ...], torch.dtype]]
_ATEN = torch.ops.aten


def _of_one_dtype(*tensors: Tensor | None) -> bool:
    """Whether all are of one dtype of full precision: then results are, too."""
    dtypes = {t.dtype for t in tensors if t is not None}
    return len(dtypes) == 1 and dtypes <= {torch.float32, torch.float64}


def _per_dim(values: Ints, rank: int) -> Ints:
    return list(values) * rank if len(values) == 1 else values


def _convolution(
    x: Tensor, w: Tensor, bias: Tensor | None, stride: Ints, padding: Ints, dilation: Ints,
    transposed: bool, output_padding: Ints, groups: int,
) -> Types | None:  # fmt: skip
    rank = w.dim() - 2
    if x.dim() != w.dim() or rank < 1 or not _of_one_dtype(x, w, bias):
        return None
    out = w.shape[1] * groups if transposed else w.shape[0]
    if x.shape[1] != (w.shape[0] if transposed else w.shape[1] * groups) or w.shape[0] % groups:
        return None
    if bias is not None and tuple(bias.shape) != (out,):
        return None
    args = zip(x.shape[2:], w.shape[2:], *(_per_dim(v, rank) for v in (stride, padding, dilation)),
               strict=True)  # fmt: skip
    if transposed:
        extra = _per_dim(output_padding, rank)
        space = [transposed_size(*a) + e for a, e in zip(args, extra, strict=True)]
        if any(e >= max(s, d) for e, s, d in zip(
            extra, _per_dim(stride, rank), _per_dim(dilation, rank), strict=True
        )):  # fmt: skip
            return None
    else:
        space = [conv_size(*a) for a in args]
    return [((x.shape[0], out, *space), x.dtype)] if min(space) > 0 else None


def _channels(x: Tensor, *of_channels: Tensor | None) -> bool:
    whole = _of_one_dtype(x, *of_channels) and x.dim() > 1
    return whole and all(t is None or tuple(t.shape) == (x.shape[1],) for t in of_channels)


def _batch_norm_functional(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, var: Tensor, *rest: Any
) -> Types | None:
    if not _channels(x, weight, bias, mean, var):
        return None
    return [(tuple(x.shape), x.dtype), *[((x.shape[1],), x.dtype)] * 4]


def _batch_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor | None,
    var: Tensor | None, training: bool, *rest: Any,
) -> Types | None:  # fmt: skip
    if not _channels(x, weight, bias, mean, var):
        return None
    saved = ((x.shape[1] if training else 0,), x.dtype)  # the CPU saves none of those given
    return [(tuple(x.shape), x.dtype), saved, saved]


def _max_pool2d(
    x: Tensor, kernel: Ints, stride: Ints = (), padding: Ints = (0,), dilation: Ints = (1,),
    ceil_mode: bool = False,
) -> Types | None:  # fmt: skip
    if x.dim() not in (3, 4) or not _of_one_dtype(x):
        return None
    window = _per_dim(kernel, 2)
    space = [
        pooled_size(n, k, s, p, d, ceil_mode) for n, k, s, p, d in zip(
            x.shape[-2:], window, _per_dim(stride, 2) or window, _per_dim(padding, 2),
            _per_dim(dilation, 2), strict=True,
        )
    ]  # fmt: skip
    if min(space) < 1 or any(2 * p > k for k, p in zip(window, _per_dim(padding, 2), strict=True)):
        return None
    shape = (*x.shape[:-2], *space)
    return [(shape, x.dtype), (shape, torch.int64)]


def _cat(tensors: Sequence[Tensor], dim: int = 0) -> Types | None:
    first = tensors[0]
    if not _of_one_dtype(*tensors) or any(t.dim() != first.dim() for t in tensors):
        return None
    if not -first.dim() <= dim < first.dim():
        return None
    dim %= first.dim()
    rests = {(*t.shape[:dim], *t.shape[dim + 1 :]) for t in tensors}
    if len(rests) != 1:
        return None
    along = sum(t.shape[dim] for t in tensors)
    return [((*first.shape[:dim], along, *first.shape[dim + 1 :]), first.dtype)]


TYPES: dict[Any, Callable[..., Types | None]] = {
    _ATEN.convolution.default: _convolution,
    _ATEN._native_batch_norm_legit_functional.default: _batch_norm_functional,
    _ATEN.native_batch_norm.default: _batch_norm,
    _ATEN.max_pool2d_with_indices.default: _max_pool2d,
    _ATEN.cat.default: _cat,
}
