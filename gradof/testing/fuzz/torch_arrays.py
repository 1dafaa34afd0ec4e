"""What the judge asks of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

Tensor = torch.Tensor


def apart(tensor: Tensor) -> bool:
    """Whether no two elements share memory, so that each can be moved by itself."""
    steps = zip(tensor.stride(), tensor.shape, strict=True)
    whole = tensor.untyped_storage().nbytes() >= tensor.numel() * tensor.element_size()
    return whole and not any(step == 0 and n > 1 for step, n in steps)


def wide(tensor: Any) -> Any:
    """A tensor in double precision; anything else as it is."""
    if not isinstance(tensor, Tensor):
        return tensor
    source = tensor.detach()
    if source.is_floating_point():
        source = source.double()
    elif source.is_complex():
        source = source.to(torch.complex128)
    else:
        return tensor
    return source.requires_grad_(tensor.requires_grad)


def where_number(a: Any, b: Any) -> tuple[Any, Any]:
    """Two arrays with zero where the second is nan."""
    known = ~np.isnan(b)
    return np.where(known, a, 0.0), np.where(known, b, 0.0)


def where_finite(a: Any, b: Any, exact: Any) -> tuple[Any, Any]:
    """Two arrays with zero where the second overflows and the first is about the exact one."""
    known = ~np.isfinite(b) & np.isfinite(a) & np.isfinite(exact)
    near = np.abs(a - exact) <= 0.05 * np.abs(exact)
    return np.where(known & near, 0.0, a), np.where(known & near, 0.0, b)


def where_added_up(a: Any, b: Any, exact: Any) -> tuple[Any, Any, Any]:
    """All with zero where neither of two is finite, one is nan, and the exact one is finite."""
    known = ~np.isfinite(a) & ~np.isfinite(b) & (np.isnan(a) | np.isnan(b)) & np.isfinite(exact)
    return np.where(known, 0.0, a), np.where(known, 0.0, b), np.where(known, 0.0, exact)


def array(tensor: Tensor) -> Any:
    """The numbers of a tensor in float64, complex ones as pairs; of a sparse one all."""
    if tensor.is_sparse:
        tensor = tensor.to_dense()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.double().numpy(force=True)


def eps(tensor: Tensor) -> float:
    """The distance of 1 and the next number; 0 of integers."""
    if tensor.is_floating_point() or tensor.is_complex():
        return float(torch.finfo(tensor.dtype).eps)
    return 0.0


def is_in_rows(strides: Any, result: torch.Tensor | None) -> bool:
    """Whether a result lies in rows, so that a view of any shape can be taken of it."""
    if strides is None or result is None or len(strides) < 2:
        return False
    step = 1
    for n, stride in zip(reversed(result.shape), reversed(strides), strict=True):
        if n > 1 and stride != step:
            return False
        step *= n
    return True
