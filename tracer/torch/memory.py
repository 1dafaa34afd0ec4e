"""Which elements of which memory a tensor has.

    address(x) == address(x.view(-1))                    # they share their memory
    same_elements(x, x.view(-1))                         # all of it, in the same order
"""

from __future__ import annotations

import torch

from gradof.ir.core import Value
from gradof.ir.types import TensorType
from gradof.tracer.torch.recorder import Recorder

Tensor = torch.Tensor


def base_of(tensor: Tensor) -> Tensor:
    """The tensor that autograd says it is a view of, or itself."""
    base = tensor._base
    return tensor if base is None else base


def address(tensor: Tensor) -> int:
    """What tensors over one memory have in common."""
    with torch._C.DisableTorchFunction():
        return int(tensor.untyped_storage()._cdata)


def memory_of(tensor: Tensor) -> range:
    """The addresses of the bytes behind a tensor: of all of its storage."""
    storage = tensor.untyped_storage()
    start = storage.data_ptr()
    return range(start, start + storage.nbytes() if start else 0)


def meet(a: range, b: range) -> bool:
    """Whether two pieces of memory have bytes in common.

    Storages may, that are made over parts of one array of numpy's.
    """
    return max(a.start, b.start) < min(a.stop, b.stop)


def same_elements(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors over one memory have the same elements of it, in the same order."""
    if a.storage_offset() != b.storage_offset():
        return False
    if a.shape == b.shape and a.stride() == b.stride():
        return True
    return a.numel() == b.numel() and a.is_contiguous() and b.is_contiguous()


def reshaped(recorder: Recorder, value: Value, like: Tensor) -> Value:
    """A value in the shape of a tensor, with the gradient that it has."""
    shape = tuple(like.shape)
    assert isinstance(value.type, TensorType)
    if value.type.shape == shape:
        return value
    made = recorder.emitter.wrap(value).reshape(shape).value
    for kind in (recorder.varying, recorder.attached, recorder.cut):
        if value in kind:
            kind.add(made)
    return made
