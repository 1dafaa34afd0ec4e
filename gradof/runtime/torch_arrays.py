"""Tensors as the arrays that emitted code reads, and arrays of emitted code as tensors.

The memory is the same on both sides, but for dtypes that numpy has not.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch.utils.dlpack import from_dlpack

from gradof.ir.types import BF16, DType
from gradof.tracer.aten.types import to_torch_dtype

Tensor = torch.Tensor
Array = np.ndarray[Any, Any]
Operand = TypeVar("Operand", Tensor, Tensor | Array)
PLAIN = frozenset({torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64,
                   torch.bool, torch.complex64, torch.complex128, torch.complex32})
_NUMPYS = frozenset({torch.float32, torch.float64, torch.int64, torch.bool})
_IN_DLPACK = PLAIN - {torch.complex32}
_FSDP = "torch.distributed.fsdp"
_WIDER = {torch.bfloat16: torch.float32, torch.complex32: torch.complex64}


def from_numpy(array: Any) -> Tensor:
    """A tensor over a fresh array; torch has no negative strides, so a flipped one is copied."""
    try:
        return torch.from_numpy(array)
    except ValueError:  # asking for the strides first takes as long as the tensor
        return torch.from_numpy(array.copy())


def from_raw(array: Any, held: DType | None) -> Tensor:
    """A tensor over a fresh array of emitted code, of the dtype numpy has none of, if one is named.

    Raw bfloat16 stays where it is; Note [Half precision] in `gradof.codegen.lowering.half`.
    """
    tensor = from_numpy(array)
    if held is None:
        return tensor
    if held != BF16:
        return tensor.to(to_torch_dtype(held))
    # tensor.view(torch.bfloat16) were a view to autograd, too
    made = torch.empty(0, dtype=torch.bfloat16, device="cpu")
    storage, at = tensor.untyped_storage(), tensor.storage_offset()
    return made.set_(storage, at, tensor.shape, tensor.stride())


def to_arrays(operands: Sequence[Tensor | Array]) -> list[Any]:
    """`to_raw` of each, in few steps for most: after large arrays nothing is in the caches.

    Arrays of emitted code are handed on as they are.
    """
    made: list[Any] = []
    for operand in resizable(operands):
        if isinstance(operand, np.ndarray):
            made.append(operand)
        elif operand.dtype in _NUMPYS and not operand._is_zerotensor():
            made.append(operand.numpy(force=True))
        else:
            made.append(to_raw(operand))
    return made


def resizable(operands: Sequence[Operand]) -> Sequence[Operand]:
    """The operands; where FSDP is in use, other tensors over the same memory.

    torch lets no storage be resized that numpy has seen, and FSDP gives memory back by doing so.
    Other libraries import it: it is in use in a process of a group alone.
    """
    if _FSDP not in sys.modules or not torch.distributed.is_initialized():
        return operands
    return [_over_same_memory(x) for x in operands]


def _over_same_memory(tensor: Operand) -> Operand:
    if isinstance(tensor, np.ndarray):
        return tensor
    plain = resolved(tensor.detach())
    return from_dlpack(plain) if plain.dtype in _IN_DLPACK else plain


def to_raw(tensor: Tensor) -> Any:
    """A numpy view of a dense CPU tensor as emitted code takes it: the bits, if of bfloat16."""
    if tensor.dtype is torch.bfloat16:
        return resolved(tensor.detach()).view(torch.uint16).numpy()
    return to_numpy(tensor)


def resolved(tensor: Tensor) -> Tensor:
    """The tensor, with what torch keeps beside its memory (conjugates, signs, zeros) in it."""
    if tensor._is_zerotensor():
        return tensor.detach().clone()
    return tensor.resolve_conj().resolve_neg()


def to_numpy(tensor: Tensor) -> Any:
    """A numpy view of a dense CPU tensor, without a copy; dtypes numpy has not are widened."""
    if tensor._is_zerotensor():  # not in memory
        tensor = tensor.detach().clone()
    wide = _WIDER.get(tensor.dtype)
    if wide is not None:
        tensor = tensor.detach().to(wide)
    return tensor.numpy(force=True)  # without history; pending conjugates and signs are resolved
