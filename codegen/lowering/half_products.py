"""Matrix products of half precision, for a torch caller; summed in float32 and rounded once.

    y = mm_bf16(a, b)               # raw arrays: see Note [Half precision] in `half`

oneDNN multiplies bfloat16 as it is where the processor has 512-bit vectors, as eager does, in a
quarter of the time of float32. float16 it multiplies on few processors; elsewhere torch has loops
that take twenty times as long as to widen both operands.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from gradof.codegen.lowering.numpy import as_tensor

KINDS = frozenset({"mm", "bmm"})


def mm_bf16(a: Any, b: Any) -> Any:
    """The product of matrices, or of stacks of them, from raw bfloat16 to raw bfloat16."""
    import torch

    x, y = (as_tensor(v).view(torch.bfloat16) for v in (a, b))
    return _product(x, y).view(torch.uint16).numpy()


def mm_f16(a: Any, b: Any) -> Any:
    """The same of float16, by way of float32."""
    return _product(as_tensor(a).float(), as_tensor(b).float()).half().numpy()


def _product(x: Any, y: Any) -> Any:
    import torch

    if torch.is_autocast_enabled("cpu"):  # what autocast does was recorded as casts
        with torch.autocast("cpu", enabled=False):
            return torch.matmul(x, y)
    return torch.matmul(x, y)


@functools.cache
def multiplies(dtype: str) -> bool:
    """Whether oneDNN multiplies "bf16" or "fp16" on this processor."""
    import torch

    found: Callable[[], bool] | None = getattr(
        torch.ops.mkldnn, f"_is_mkldnn_{dtype}_supported", None
    )
    return bool(torch._C._has_mkldnn) and found is not None and found()
