"""Matrix products of a torch caller's arrays.

torch.mm is MKL's. On processors that are not Intel's MKL keeps to 256-bit vectors; oneDNN, which
torch brings along, makes code for what there is: on an AMD Zen 5 with 512-bit vectors a float32
product takes half the time (0.45 against 0.95 ms for 128x784 by 784x512 on one core), but for the
product of two long, narrow ones (64x1024 by 1024x64), which MKL sums up on several cores, and of
small ones, for which the call of oneDNN takes longer than the product. The choice follows from the
processor and the shapes, so that results are the same from run to run.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from gradof.codegen.cpu.lowering import as_tensor

_LARGE = 1 << 18  # multiplications that oneDNN's call, ten microseconds, is worth
_NARROW = 8  # how much longer than wide


@functools.cache
def float32_library() -> str:
    """Whose float32 products these are: `oneDNN` or `MKL`."""
    import torch

    has_op = bool(torch._C._has_mkldnn) and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    wide = torch.backends.cpu.get_cpu_capability() == "AVX512"
    return "oneDNN" if has_op and wide and bool(torch._C.has_mkl) and _is_amd() else "MKL"


@functools.cache
def _linear() -> Any:
    """oneDNN's x @ weight.T + bias, with what is to be done to it afterwards."""
    import torch

    return torch.ops.mkldnn._linear_pointwise.default


def mm(a: Any, b: Any) -> Any:
    """The product of two matrices, numpy arrays over memory of torch's; a fresh array."""
    import torch

    x, y = as_tensor(a), as_tensor(b)
    (m, k), n = x.shape, y.shape[1]
    large = m * k * n >= _LARGE and k < _NARROW * max(m, n)
    if large and x.dtype is torch.float32 and float32_library() == "oneDNN":
        return _linear()(x, y.t(), None, "none", [], "").numpy()
    if torch.is_autocast_enabled("cpu"):  # what autocast does was recorded as casts
        with torch.autocast("cpu", enabled=False):
            return torch.mm(x, y).numpy()
    return torch.mm(x, y).numpy()


def _is_amd() -> bool:
    path = Path("/proc/cpuinfo")
    return path.exists() and "AuthenticAMD" in path.read_text()
