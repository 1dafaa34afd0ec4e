"""torch's dtypes and tensors as IR types and constants. Imported only where torch is in use."""

from __future__ import annotations

import torch

from gradof.errors import DtypeError
from gradof.ir.attrs import Dense
from gradof.ir.core import Loc
from gradof.ir.types import DType, TensorType, dtype

_FROM_TORCH: dict[torch.dtype, DType] = {
    torch.bool: dtype("bool"), torch.uint8: dtype("u8"), torch.uint16: dtype("u16"),
    torch.uint32: dtype("u32"), torch.uint64: dtype("u64"), torch.int8: dtype("i8"),
    torch.int16: dtype("i16"), torch.int32: dtype("i32"), torch.int64: dtype("i64"),
    torch.float16: dtype("f16"), torch.bfloat16: dtype("bf16"), torch.float32: dtype("f32"),
    torch.float64: dtype("f64"), torch.complex64: dtype("c64"), torch.complex128: dtype("c128"),
    torch.complex32: dtype("c32"),
}  # fmt: skip
_TO_TORCH = {ir: th for th, ir in _FROM_TORCH.items()}


def from_torch_dtype(dt: torch.dtype, loc: Loc | None = None) -> DType:
    """The IR dtype of a torch dtype; DtypeError for quantised and 8-bit floats."""
    found = _FROM_TORCH.get(dt)
    if found is None:
        raise DtypeError(f"{dt} tensors cannot be traced", loc=loc, hint="cast to a float dtype")
    return found


def to_torch_dtype(dt: DType) -> torch.dtype:
    """The torch dtype of an IR dtype."""
    return _TO_TORCH[dt]


def type_of(tensor: torch.Tensor, loc: Loc | None = None) -> TensorType:
    """The IR type of a torch tensor; DtypeError if its dtype has none."""
    return TensorType(from_torch_dtype(tensor.dtype, loc), tuple(tensor.shape), str(tensor.device))


_WIDER = {torch.bfloat16: torch.float32, torch.complex32: torch.complex64}


def dense_of(tensor: torch.Tensor) -> Dense:
    """A constant with the tensor's elements (of dtypes that numpy lacks, as what they fit in)."""
    tensor = tensor.to(_WIDER.get(tensor.dtype, tensor.dtype))
    return Dense.of(tensor.detach().cpu().contiguous().numpy())
