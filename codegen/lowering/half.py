"""Dtypes numpy does not have: bfloat16, raw or held in float32, and complex32, held in complex64.

>>> round_bf16(np.array([1.0, 1.00390625, 3.4e38], np.float32))     # to nearest, ties to even
array([1., 1., inf], dtype=float32)
>>> narrow_bf16(np.array([1.0, -2.0], np.float32)), widen_bf16(np.array([0x3F80], np.uint16))
(array([16256, 49152], dtype=uint16), array([1.], dtype=float32))

Note [Half precision]
numpy has no bfloat16. An op on such values is computed in float32 from float32 operands and then
rounded, which is how torch computes one: sums and products are accumulated in float32, and each op
rounds once. float16 is numpy's own, which computes in the same way; complex32, a pair of them, is
held like bfloat16. An array of bfloat16 is one of two things in emitted code:

- *held*: float32 numbers that bfloat16 has. Statements of numpy and torch read and write those, as
  do numpy callers, the reference interpreter and exported files.
- *raw*: their 16 bits each, as uint16. Kernels read and write those. For a torch caller they are
  what comes in and goes out: the tensors' own memory (`runtime.torch_arrays`). Native kernels widen
  vectors as they load them and round after each op (`passes/widen_half`), so that a cell is 2 bytes
  in memory; float16 is loaded in the same way.

`raw.with_raw` puts `widen_bf16` and `narrow_bf16` where the two meet.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradof.ir.attrs import to_numpy_dtype
from gradof.ir.core import Node, Value
from gradof.ir.opinfo import has_trait
from gradof.ir.types import BF16, C32, F16, DType, ScalarType, TensorType

HELD = frozenset({BF16, C32})
HALVES = (F16, BF16)
# Ops to which torch gives a Python number in float32 beside half precision. It rounds that of
# others, as numpy does all: 1e5 beside float16 is infinity then.
WEAK = frozenset({"mul", "div", "floor_divide"})


def held_dtype(value: Value) -> DType | None:
    """The dtype of a value that numpy holds in a wider array, or None."""
    type_ = value.type
    return type_.dtype if isinstance(type_, TensorType) and type_.dtype in HELD else None


def rounds_number(node: Node, index: int, library: str) -> DType | None:
    """The half precision to which an operand is rounded that is a Python number; else None."""
    is_number = isinstance(node.inputs[index].type, ScalarType)
    if not is_number or not has_trait(node.kind, "elementwise"):
        return None
    if node.kind in ("where", "cast") or (library == "torch" and node.kind in WEAK):
        return None  # what `where` picks is rounded as a result
    for value in node.inputs:
        if isinstance(value.type, TensorType) and value.type.dtype in HALVES:
            return value.type.dtype
    return None


def round_number(value: float, dtype: DType) -> float:
    """A number as half precision has it."""
    with np.errstate(over="ignore"):
        return float((round_bf16 if dtype == BF16 else round_f16)(value))


def raw_numpy_dtype(dtype: DType) -> Any:
    """The numpy dtype of what a kernel reads and writes: as many bits as the dtype has."""
    return np.dtype(np.uint16) if dtype == BF16 else to_numpy_dtype(dtype)


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


def round_f16(array: Any) -> Any:
    """The nearest float16 numbers, as a fresh float32 array."""
    return np.asarray(array, np.float32).astype(np.float16).astype(np.float32)


def round_c32(array: Any) -> Any:
    """Both parts rounded to float16, as a fresh complex64 array."""
    parts = np.ascontiguousarray(array, np.complex64).view(np.float32).astype(np.float16)
    return parts.astype(np.float32).view(np.complex64).reshape(np.shape(array))


def widen_bf16(bits: Any) -> Any:
    """Raw bfloat16 numbers as a fresh float32 array."""
    return (np.asarray(bits).astype(np.uint32) << np.uint32(16)).view(np.float32)


def narrow_bf16(array: Any) -> Any:
    """float32 numbers as raw bfloat16, rounded."""
    return (round_bf16(array).view(np.uint32) >> np.uint32(16)).astype(np.uint16)


def torch_round_bf16(array: Any) -> Any:
    """`round_bf16` by torch: in one pass, on its threads."""
    return _tensor(array).bfloat16().float().numpy()


def torch_widen_bf16(bits: Any) -> Any:
    """`widen_bf16` by torch."""
    import torch

    return _tensor(bits).view(torch.bfloat16).float().numpy()


def torch_narrow_bf16(array: Any) -> Any:
    """`narrow_bf16` by torch."""
    import torch

    return _tensor(array).bfloat16().view(torch.uint16).numpy()


def _tensor(array: Any) -> Any:
    from gradof.codegen.lowering.numpy import as_tensor

    return as_tensor(array)


ROUND = {"round_bf16": round_bf16, "round_c32": round_c32}
# What emitted source calls: for a numpy caller, and for a torch caller.
CONVERT = {**ROUND, "widen_bf16": widen_bf16, "narrow_bf16": narrow_bf16}
CONVERT_BY_TORCH = {
    **CONVERT, "round_bf16": torch_round_bf16, "widen_bf16": torch_widen_bf16,
    "narrow_bf16": torch_narrow_bf16,
}  # fmt: skip
