"""Pooling of a torch caller: sums over windows, what is added to windows, and to maxima.

torch has a call for each, which goes through memory once; numpy's way is a statement for each place
of a window. Imported only where torch's arrays are run.
"""

from __future__ import annotations

import math
from typing import Any

from gradof.codegen.lowering.numpy import as_tensor

Ints = tuple[int, ...]
_POOLS = 3  # dims that torch pools over, at most


def is_torchs(dtype: str, rank: int) -> bool:
    """Whether torch has the pooling of such elements over so many dims."""
    return dtype in ("f32", "f64") and rank <= _POOLS


def window_sum(x: Any, *, kernel: Ints, stride: Ints, out: Ints) -> Any:
    """See the op."""
    import torch

    rank = len(kernel)
    ends = [(m - 1) * s + k for m, s, k in zip(out, stride, kernel, strict=True)]
    tensor = as_tensor(x)
    for dim, end in enumerate(ends, tensor.dim() - rank):
        tensor = tensor.narrow(dim, 0, end)
    planes, kernel, stride = _in_planes(tensor, rank, kernel, stride)
    pool = torch.ops.aten.avg_pool3d if len(kernel) == 3 else torch.ops.aten.avg_pool2d
    sums = pool(planes, kernel, stride, (0,) * len(kernel), False, True, 1)
    return sums.reshape((*x.shape[: x.ndim - rank], *out)).numpy()


def window_spread(x: Any, *, kernel: Ints, stride: Ints, space: Ints) -> Any:
    """See the op."""
    import torch

    rank, lead = len(kernel), x.shape[: x.ndim - len(kernel)]
    out = x.shape[x.ndim - rank :]
    ends = [(m - 1) * s + k for m, s, k in zip(out, stride, kernel, strict=True)]
    sizes = [n if (n - k) // s + 1 == m else end
             for n, m, s, k, end in zip(space, out, stride, kernel, ends, strict=True)]  # fmt: skip
    given, kernel, stride = _in_planes(as_tensor(x), rank, kernel, stride)
    inner = [1] * (len(kernel) - rank) + sizes
    like = given.new_empty((*given.shape[: given.dim() - len(kernel)], *inner))
    name = "avg_pool3d_backward" if len(kernel) == 3 else "avg_pool2d_backward"
    spread = getattr(torch.ops.aten, name)(
        given, like, kernel, stride, (0,) * len(kernel), False, True, 1
    ).reshape((*lead, *sizes))
    rest = [p for n, m in zip(reversed(space), reversed(sizes), strict=True) for p in (0, n - m)]
    return (torch.nn.functional.pad(spread, rest) if any(rest) else spread).numpy()


def scatter_maxima(g: Any, indices: Any, *, space: Ints) -> Any:
    """See the op."""
    import torch

    rank, lead = len(space), g.shape[: g.ndim - len(space)]
    backward = torch.ops.aten.adaptive_max_pool2d_backward
    if rank == 3:
        backward = torch.ops.aten.adaptive_max_pool3d_backward
    given, where = as_tensor(g), as_tensor(indices)
    if g.ndim not in (rank + 1, rank + 2):
        one = (math.prod(lead), *g.shape[g.ndim - rank :])
        given, where = given.reshape(one), where.reshape(one)
    like = given.new_empty((*given.shape[: given.dim() - rank], *space))
    return backward(given, like, where.contiguous()).reshape((*lead, *space)).numpy()


def _in_planes(tensor: Any, rank: int, kernel: Ints, stride: Ints) -> tuple[Any, Ints, Ints]:
    """[..., *space] with one or two dims before those of a pooling over two or three."""
    lead = tensor.dim() - rank
    if rank == 1:
        tensor, kernel, stride = tensor.unsqueeze(-2), (1, *kernel), (1, *stride)
    if lead not in (1, 2):
        space = tensor.shape[lead:]
        tensor = tensor.reshape((math.prod(tensor.shape[:lead]), *space))
    return tensor, kernel, stride
