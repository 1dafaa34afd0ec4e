"""Functions of torch that take views of their operands before they compute.

    torch.matmul(x, y)      # of three dims: x.expand(...).reshape(...), then a product of batches

They neither write to an operand nor return a view of one, so that it may be another object for the
same elements (`Histories.apart`).
"""

from __future__ import annotations

from typing import Any

import torch

_TENSOR: Any = torch.Tensor
_FUNCTIONAL: Any = torch.nn.functional
_PRODUCTS = (
    torch.matmul, _TENSOR.matmul, _TENSOR.__matmul__, _TENSOR.__rmatmul__, torch.bmm, _TENSOR.bmm,
    torch.einsum, torch.tensordot, torch.inner, _TENSOR.inner, torch.linalg.multi_dot, torch.cdist,
    torch.kron, _FUNCTIONAL.linear, _FUNCTIONAL.bilinear, _FUNCTIONAL.scaled_dot_product_attention,
)  # fmt: skip
_WINDOWS = (
    *(getattr(_FUNCTIONAL, f"{kind}{n}d") for n in (1, 2, 3) for kind in (
        "conv", "conv_transpose", "max_pool", "avg_pool", "adaptive_avg_pool")),
    *(getattr(torch, f"{kind}{n}d") for n in (1, 2, 3) for kind in ("conv", "max_pool")),
    torch.avg_pool1d, torch.adaptive_avg_pool1d, torch.max_pool1d_with_indices,
)  # fmt: skip
TAKE_VIEWS = frozenset((*_PRODUCTS, *_WINDOWS))
