"""Which calls are for some shapes alone: see `lowering_of`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradof import tuning
from gradof.ir.core import Node
from gradof.ir.types import C64, F32, TensorType, Type


def running_sum(x: NDArray[Any], *, dim: int) -> NDArray[Any]:
    """Sums of float32 or complex64, in twice the precision inside."""
    within = np.float64 if x.dtype == np.float32 else np.complex128
    result: NDArray[Any] = np.cumsum(x, axis=dim, dtype=within).astype(x.dtype)
    return result


def running_product(x: NDArray[Any], *, dim: int) -> NDArray[Any]:
    """Products of float32 or complex64, in twice the precision inside."""
    within = np.float64 if x.dtype == np.float32 else np.complex128
    result: NDArray[Any] = np.cumprod(x, axis=dim, dtype=within).astype(x.dtype)
    return result


_RUNNING = {"cumsum": running_sum, "cumprod": running_product}


def running(node: Node) -> Callable[..., NDArray[Any]] | None:
    """Running sums and products of float32, which are float64's inside, as torch's."""
    function = _RUNNING.get(node.kind)
    type_ = node.output.type if function is not None else None
    return function if isinstance(type_, TensorType) and type_.dtype in (F32, C64) else None


def is_pooled_by_torch(node: Node) -> bool:
    """Whether a sum over windows, or its gradient, is a call of torch's."""
    from gradof.codegen.lowering.pooling import is_torchs

    type_, dims = node.inputs[0].type, node.attrs.get("kernel", node.attrs.get("space"))
    assert isinstance(type_, TensorType) and isinstance(dims, tuple)
    return is_torchs(type_.dtype.name, len(dims))


def adds_many(node: Node) -> bool:
    """Whether it is a long sum, which numpy may add one after the other, and lose digits.

    It does for rows, and for columns of an array that lies in columns, which no graph says.
    """
    type_, dims = node.inputs[0].type, node.attrs["dims"]
    if not isinstance(type_, TensorType) or type_.shape is None or not type_.dtype.is_inexact:
        return False
    assert isinstance(dims, tuple)
    count = math.prod(n for d, n in enumerate(type_.shape) if d in dims)
    return len(type_.shape) > 1 and count >= tuning.SUM_ROWS


def are_stacks(a: Type, b: Type) -> bool:
    """Whether they are as many matrices each, of one leading dim."""
    if not isinstance(a, TensorType) or not isinstance(b, TensorType):
        return False
    if a.shape is None or b.shape is None or len(a.shape) != 3 or len(b.shape) != 3:
        return False
    return a.shape[0] == b.shape[0]


def picks_columns(node: Node) -> bool:
    """Whether single numbers are picked of rows, for which torch takes ten times as long as numpy.

    It does not where the rows are one dim, nor has numpy all types in half precision.
    """
    type_, dim = node.inputs[0].type, node.attrs["dim"]
    if not isinstance(type_, TensorType) or type_.shape is None or type_.dtype.itemsize < 4:
        return False
    return len(type_.shape) > 2 and dim == len(type_.shape) - 1
