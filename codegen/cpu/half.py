"""Dtypes numpy does not have, held in wider arrays: bfloat16 in float32, complex32 in complex64.

>>> round_bf16(np.array([1.0, 1.00390625, 3.4e38], np.float32))     # to nearest, ties to even
array([1., 1., inf], dtype=float32)

Note [Half precision]
numpy has no bfloat16. A value of that dtype is computed in float32 from float32 operands and then
rounded, which is how torch computes one op on it: sums and products are accumulated in float32,
and each op rounds once. Arrays change at the border, where tensors come in and go out
(`runtime.torch_bridge`), and for ops that run in torch on its own dtype. float16 is numpy's own,
which computes in the same way; complex32, a pair of them, is held like bfloat16.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradof.ir.core import Node, Value
from gradof.ir.opinfo import has_trait
from gradof.ir.types import BF16, C32, DType, TensorType

HELD = frozenset({BF16, C32})


def held_dtype(value: Value) -> DType | None:
    """The dtype of a value that numpy holds in a wider array, or None."""
    type_ = value.type
    return type_.dtype if isinstance(type_, TensorType) and type_.dtype in HELD else None


def roundings(node: Node) -> list[str | None]:
    """Per result, the function that rounds it, or None; views only pick what is rounded."""
    if has_trait(node.kind, "view"):
        return [None] * len(node.outputs)
    dtypes = [held_dtype(v) for v in node.outputs]
    return [None if d is None else f"round_{d.name}" for d in dtypes]


def round_bf16(array: Any) -> Any:
    """The nearest bfloat16 numbers, ties to even, as a fresh float32 array; nan stays nan."""
    bits = np.asarray(array, np.float32).view(np.uint32)
    even = (bits >> np.uint32(16)) & np.uint32(1)
    rounded = (bits + (np.uint32(0x7FFF) + even)) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(array), np.float32(np.nan), rounded.view(np.float32))


def round_c32(array: Any) -> Any:
    """Both parts rounded to float16, as a fresh complex64 array."""
    parts = np.ascontiguousarray(array, np.complex64).view(np.float32).astype(np.float16)
    return parts.astype(np.float32).view(np.complex64).reshape(np.shape(array))


ROUND = {"round_bf16": round_bf16, "round_c32": round_c32}
