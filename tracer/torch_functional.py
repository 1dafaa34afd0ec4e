"""The few private entries of torch that functionalization needs, in one place and typed.

A *wrapper* is what the user's code sees; its *inner* tensor holds the data, and is replaced when
the wrapper is changed in place.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

_private: Any = torch


def is_wrapper(tensor: torch.Tensor) -> bool:
    """Whether the tensor is a functional wrapper."""
    return bool(_private._is_functional_tensor(tensor))


def wrap(tensor: torch.Tensor) -> torch.Tensor:
    """A wrapper around a plain tensor without autograd history."""
    wrapper: torch.Tensor = _private._to_functional_tensor(tensor)
    return wrapper


def inner(wrapper: torch.Tensor) -> torch.Tensor:
    """The plain tensor that a wrapper holds now, pending changes of its views applied."""
    _private._sync(wrapper)
    tensor: torch.Tensor = _private._from_functional_tensor(wrapper)
    return tensor


@contextlib.contextmanager
def functionalization() -> Iterator[None]:
    """Ops on wrappers arrive functional at the dispatch modes."""
    _private._enable_functionalization(reapply_views=True)
    try:
        yield
    finally:
        _private._disable_functionalization()


def scalar(value: float, dtype: torch.dtype) -> torch.Tensor:
    """A plain 0-d tensor, made while functionalization is on."""
    _private._disable_functionalization()
    try:
        with torch._C.DisableTorchFunction(), torch.inference_mode(False):
            return torch.tensor(value, dtype=dtype)
    finally:
        _private._enable_functionalization(reapply_views=True)


@contextlib.contextmanager
def unfused() -> Iterator[None]:
    """Fused kernels off, so that everything arrives in parts; the random state is put back."""
    state = torch.get_rng_state()
    fast = torch.backends.mha.get_fastpath_enabled()
    onednn = _private._C._get_mkldnn_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    _private._C._set_mkldnn_enabled(False)
    try:
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            yield
    finally:
        _private._C._set_mkldnn_enabled(onednn)
        torch.backends.mha.set_fastpath_enabled(fast)
        torch.set_rng_state(state)
