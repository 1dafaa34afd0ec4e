"""Functions of torch's that a trace treats by themselves: what they ask for, cut or show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch


def _getters(*names: str) -> frozenset[Any]:
    # Not every version of torch has all of them.
    there = (getattr(torch.Tensor, name, None) for name in names)
    return frozenset(attribute.__get__ for attribute in there if attribute is not None)


METADATA = _getters(
    "shape", "dtype", "device", "requires_grad", "is_leaf", "ndim", "layout", "is_cuda", "is_cpu",
    "is_sparse", "is_quantized", "is_meta", "is_mkldnn", "is_nested", "itemsize", "nbytes",
    "names", "output_nr", "is_mps", "is_xpu", "is_sparse_csr",
) | frozenset(
    {
        torch.Tensor.size, torch.Tensor.dim, torch.Tensor.numel, torch.Tensor.stride,
        torch.Tensor.storage_offset,
        torch.Tensor.__len__, torch.Tensor.is_floating_point, torch.Tensor.is_complex,
        torch.Tensor.element_size, torch.Tensor.is_contiguous, torch.Tensor.nelement,
        torch.Tensor.ndimension, torch.Tensor.__hash__, torch.Tensor.is_signed,
        torch.is_floating_point, torch.is_complex, torch.numel, torch.is_tensor,
        torch.result_type, torch.Tensor.get_device, torch.is_signed,
    }
)  # fmt: skip
_TENSOR: Any = torch.Tensor  # its properties are read as descriptors
GET_DATA = _TENSOR.data.__get__
DETACHES = frozenset({torch.Tensor.detach, torch.detach, GET_DATA})
CUTS = DETACHES | {torch.Tensor.detach_, torch.detach_}
PRINTS = frozenset({torch.Tensor.__repr__, torch.Tensor.__format__})
NUMBERS_OUT = frozenset({
    torch.Tensor.numpy, torch.Tensor.__array__, torch.Tensor.data_ptr,
    torch.Tensor.untyped_storage, torch.Tensor.storage,
})  # fmt: skip
# Calls that copy an array of numpy's into a tensor.
FROM_NUMPY = frozenset({
    torch.tensor, torch.as_tensor, torch.asarray, torch.scalar_tensor, torch.Tensor.new_tensor,
    torch.Tensor.new,
})  # fmt: skip


def cuts_inside(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a function of torch changes its argument under no_grad, or what it gives may be
    changed so: the same bits as numbers of another dtype have no history.
    """
    if func is torch.Tensor.view:
        return any(isinstance(given, torch.dtype) for given in (*args, *kwargs.values()))
    return getattr(func, "__module__", None) == "torch.nn.init"
