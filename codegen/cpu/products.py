"""Matrix products of a torch caller's arrays.

torch.mm is MKL's. On processors that are not Intel's MKL keeps to 256-bit vectors; oneDNN, which
torch brings along, makes code for what there is: on an AMD Zen 5 with 512-bit vectors a float32
product takes half the time (0.45 against 0.95 ms for 128x784 by 784x512 on one core), but for the
product of two long, narrow ones (64x1024 by 1024x64), which MKL sums up on several cores. Of a
result with few columns and a first operand that is transposed (the gradient of a last layer) it is
given the transposed product, which it computes in half the time and less.

Small products are numpy's, without the microseconds of torch's call, as long as OpenBLAS stays on
one thread: its others would keep the cores from torch's for a tenth of a second.

The choice follows from the processor, the shapes and strides, so that results are the same from run
to run.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np

from gradof.codegen.cpu.lowering import as_tensor

SMALL = 1 << 18  # multiplications up to which OpenBLAS takes one thread,
_SMALL_VECTOR = 9216  # and where one of the operands has one row or column
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
    (m, k), n = a.shape, b.shape[1]
    if m * k * n <= (SMALL if min(m, n) > 1 else _SMALL_VECTOR) and a.dtype.char in "fd":
        return np.matmul(a, b)
    return _large(as_tensor(a), as_tensor(b))


def _large(x: Any, y: Any) -> Any:
    import torch

    (m, k), n = x.shape, y.shape[1]
    if (
        x.dtype is torch.float32 and m * k * n and k < _NARROW * max(m, n)
        and float32_library() == "oneDNN"
    ):  # fmt: skip
        if n * _NARROW <= m and x.stride(0) == 1:
            return _linear()(y.t(), x, None, "none", [], "").t().contiguous().numpy()
        return _linear()(x, y.t(), None, "none", [], "").numpy()
    if torch.is_autocast_enabled("cpu"):  # what autocast does was recorded as casts
        with torch.autocast("cpu", enabled=False):
            return torch.mm(x, y).numpy()
    return torch.mm(x, y).numpy()


def _is_amd() -> bool:
    path = Path("/proc/cpuinfo")
    return path.exists() and "AuthenticAMD" in path.read_text()
