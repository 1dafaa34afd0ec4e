"""Which library multiplies matrices: numpy, MKL, oneDNN, or a kernel of our own.

A torch caller's are torch's, and so MKL's. On processors that are not Intel's MKL keeps to 256-bit
vectors; on an AMD processor with 512-bit vectors two others take half the time:

- oneDNN, which torch brings along, for float32 `mm`, but for the product of two long, narrow ones
  (64x1024 by 1024x64), which MKL sums up on several cores. Of a result with few columns and a first
  operand that is transposed (the gradient of a last layer) it is given the transposed product.
- a kernel of our own (`matmul`), where llvmlite is: for stacks of matrices and for float64,
  for which torch has nothing but MKL, and for float32 `mm` where it is quicker than oneDNN: where
  the first operand is transposed, as in the gradient of a weight, which oneDNN copies first, where
  both are long and narrow, and where both are small.
- numpy, part by part, for a few numbers that are long sums, with 256-bit vectors as well: on one
  thread MKL takes 1.3 to 15 times as long, and it adds one product after the other, which loses
  digits.

Small products are numpy's, without the microseconds of torch's call, as long as OpenBLAS stays on
one thread: its others would keep the cores from torch's for a tenth of a second.

A numpy caller's are numpy's, but for stacks of middling matrices, of which numpy multiplies one
after the other: our own kernel shares them out to the cores.

The choice follows from the processor, the shapes and strides, so that results are the same from run
to run.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gradof import tuning
from gradof.codegen.lowering.numpy import Library, as_tensor
from gradof.ir.core import Node
from gradof.ir.types import F32, F64, TensorType


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


@functools.cache
def has_native() -> bool:
    """Whether our own kernel is worth it: where there are 512-bit vectors that MKL leaves."""
    from gradof.codegen.machine.engine import vector_bits

    return _is_amd() and vector_bits() == 512


def native_product(node: Node, library: Library) -> Callable[[Any, Any], Any] | None:
    """What computes a product natively where that is quicker; None where it never is."""
    a, b = (v.type for v in node.inputs)
    if not isinstance(a, TensorType) or not isinstance(b, TensorType):
        return None
    if a.shape is None or b.shape is None or a.dtype not in (F32, F64):
        return None
    (m, k), n = a.shape[-2:], b.shape[-1]
    stacks = math.prod(np.broadcast_shapes(a.shape[:-2], b.shape[:-2]))
    each = m * k * n
    if not _is_worth(m, k, n, stacks):
        return None
    if library == "torch":
        return product if has_native() else None
    many = n >= tuning.MATMUL_COLUMNS and stacks > 1 and tuning.MATMUL_STACK < stacks * each
    many = many and each <= tuning.MATMUL_UNCOPIED
    return stacked if many and has_native() else None


def _is_worth(m: int, k: int, n: int, stacks: int = 1) -> bool:
    """Whether our own kernel may be quicker; that of narrow stacks, too, which MKL is slow with."""
    few = m < tuning.MATMUL_LEAST or (stacks == 1 and n < tuning.MATMUL_LEAST)
    return not few and stacks * m * k * n > tuning.BLAS_ONE_THREAD


def stacked(a: Any, b: Any) -> Any:
    """The product of a numpy caller's stacks of matrices; a fresh array."""
    from gradof.codegen.matmul.products import product as native

    found = native(a, b, openmp=False)
    return np.matmul(a, b) if found is None else found


def product(a: Any, b: Any) -> Any:
    """The product of a torch caller's matrices, or of stacks of them; a fresh array."""
    if _is_native(a, b):
        found = _native(a, b)
        if found is not None:
            return found
    if a.ndim == b.ndim == 2:
        return mm(a, b)
    return _torch(as_tensor(_with_rows(a)), as_tensor(_with_rows(b)))


def chosen(a: Any, b: Any) -> str:
    """Which of `WAYS` a torch caller's product of two matrices takes (`benchmarks/products.py`)."""
    (m, k), n = a.shape, b.shape[1]
    worth = has_native() and _is_worth(m, k, n)
    return "native" if worth and _is_native(a, b) else _library_of(a, b)


def bmm(a: Any, b: Any) -> Any:
    """The product of as many matrices each; a fresh array.

    torch.matmul would take two microseconds more to find that out.
    """
    import torch

    x, y = as_tensor(_with_rows(a)), as_tensor(_with_rows(b))
    if torch.is_autocast_enabled("cpu"):  # what autocast does was recorded as casts
        with torch.autocast("cpu", enabled=False):
            return torch.bmm(x, y).numpy()
    return torch.bmm(x, y).numpy()


def dot(a: Any, b: Any) -> Any:
    """The product of one row and one column; a fresh array of one number.

    numpy's, as torch.mm adds one after the other here. So does numpy of a number that is repeated
    by a stride of 0, which BLAS does not take.
    """
    return np.matmul(np.ascontiguousarray(a), np.ascontiguousarray(b))


def _with_rows(stack: Any) -> Any:
    """The stack with rows or columns that are one in memory.

    Where the matrices lie between one another torch takes ten times as long.
    """
    item = stack.itemsize
    return stack if item in stack.strides[-2:] or not stack.size else np.ascontiguousarray(stack)


def _spread_out(matrix: Any) -> Any:
    """The matrix with each element in a place of its own, which oneDNN asks for."""
    (near, n), (far, m) = sorted(zip(matrix.strides, matrix.shape, strict=True))
    apart = (near > 0 or n == 1) and (far >= near * n or m == 1)
    return matrix if apart else np.ascontiguousarray(matrix)


def mm(a: Any, b: Any) -> Any:
    """The product of two matrices, numpy arrays over memory of torch's; a fresh array."""
    return WAYS[_library_of(a, b)](a, b)


def _library_of(a: Any, b: Any) -> str:
    """Which of `WAYS`, but for our own kernel, is quickest."""
    (m, k), n = a.shape, b.shape[1]
    small = tuning.BLAS_ONE_THREAD if min(m, n) > 1 else tuning.BLAS_ONE_THREAD_VECTOR
    if m * k * n <= small and k <= tuning.SUM_ROWS and a.dtype.char in "fd":
        return "numpy"  # which adds longer rows one product after the other
    if a.dtype.char != "f" or not m * k * n or not _is_of_onednn(m, k, n):
        few = m * tuning.SUM_ROWS * n <= small and k > tuning.SUM_ROWS and a.dtype.char == "f"
        return "numpy in parts" if few and _is_amd() else "torch"
    turned = n * tuning.MATMUL_NARROW <= m and a.strides[0] == a.itemsize
    return "oneDNN turned" if turned else "oneDNN"


def _in_parts(a: Any, b: Any) -> Any:
    """A product of few numbers, each a long sum, which MKL adds one after the other on AMD's."""
    (m, k), n, rows = a.shape, b.shape[1], tuning.SUM_ROWS
    parts = k // rows
    long = parts * rows
    stacks = a[:, :long].reshape(m, parts, rows).swapaxes(0, 1)
    total = np.matmul(stacks, b[:long].reshape(parts, rows, n)).sum(0)
    return total if long == k else total + np.matmul(a[:, long:], b[long:])


def _onednn(a: Any, b: Any) -> Any:
    a, b = _spread_out(a), _spread_out(b)
    return _linear()(as_tensor(a), as_tensor(b).t(), None, "none", [], "").numpy()


def _onednn_turned(a: Any, b: Any) -> Any:
    a, b = _spread_out(a), _spread_out(b)
    turned = _linear()(as_tensor(b).t(), as_tensor(a), None, "none", [], "")
    return turned.t().contiguous().numpy()


def _native(a: Any, b: Any) -> Any:
    from gradof.codegen.matmul.products import product as native

    return native(a, b, openmp=True)


WAYS: dict[str, Callable[[Any, Any], Any]] = {
    "native": _native,
    "numpy": np.matmul,
    "numpy in parts": _in_parts,
    "oneDNN": _onednn,
    "oneDNN turned": _onednn_turned,
    "torch": lambda a, b: _torch(as_tensor(a), as_tensor(b)),
}


def _is_native(a: Any, b: Any) -> bool:
    """Whether our own kernel is quicker than what else there is."""
    m, k, n = int(a.shape[-2]), int(a.shape[-1]), int(b.shape[-1])
    turned, turned_b = a.strides[-2] == a.itemsize, b.strides[-2] == b.itemsize
    if a.ndim == b.ndim == 2 and a.dtype.char == "f" and _is_of_onednn(m, k, n):
        if turned:
            return m * k <= tuning.MATMUL_NEAR
        return m * k * n <= tuning.MATMUL_UNCOPIED and (m >= k or not turned_b)
    far = tuning.MATMUL_FAR
    return m * k <= (far // 2 if turned else far) and k * n <= far


def _is_of_onednn(m: int, k: int, n: int) -> bool:
    """Whether oneDNN multiplies float32 matrices of such sizes, not MKL."""
    return k < tuning.MATMUL_NARROW * max(m, n) and float32_library() == "oneDNN"


def _torch(x: Any, y: Any) -> Any:
    import torch

    if torch.is_autocast_enabled("cpu"):  # what autocast does was recorded as casts
        with torch.autocast("cpu", enabled=False):
            return torch.matmul(x, y).numpy()
    return torch.matmul(x, y).numpy()


@functools.cache
def _is_amd() -> bool:
    path = Path("/proc/cpuinfo")
    return path.exists() and "AuthenticAMD" in path.read_text()
