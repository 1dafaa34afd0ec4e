"""The few private entries of torch that functionalization needs, in one place and typed.

A *wrapper* is what the user's code sees; its *inner* tensor holds the data, and is replaced when
the wrapper is changed in place.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.utils._device import DeviceContext

from gradof.errors import LeafTypeError, TraceError

_private: Any = torch
_forward_ad: Any = forward_ad


def is_wrapper(tensor: torch.Tensor) -> bool:
    """Whether the tensor is a functional wrapper."""
    return bool(_private._is_functional_tensor(tensor))


def is_base(wrapper: torch.Tensor) -> bool:
    """Whether a wrapper is no view of another."""
    return bool(_private._is_functional_tensor_base(wrapper))


def wrap(tensor: torch.Tensor) -> torch.Tensor:
    """A wrapper around a plain tensor without autograd history."""
    wrapper: torch.Tensor = _private._to_functional_tensor(tensor)
    return wrapper


def become_like(wrapper: torch.Tensor, tensor: torch.Tensor) -> None:
    """Make a wrapper of a Parameter one: `isinstance` holds, and modules take it as such."""
    if issubclass(type(tensor), torch.nn.Parameter):  # not isinstance: that asks an attribute
        wrapper.__class__ = type(tensor)


def inner(wrapper: torch.Tensor) -> torch.Tensor:
    """The plain tensor that a wrapper holds now, pending changes of its views applied."""
    _private._sync(wrapper)
    tensor: torch.Tensor = _private._from_functional_tensor(wrapper)
    return tensor


def is_written(wrapper: torch.Tensor) -> bool:
    """Whether the memory of a wrapper was changed in place."""
    return bool(_private._functionalize_has_data_mutation(wrapper))


def write_back(wrapper: torch.Tensor) -> None:
    """Let its memory have what a wrapper holds, so that other views of it are taken of that."""
    _private._functionalize_commit_update(wrapper)
    inner(wrapper)


@contextlib.contextmanager
def functionalization() -> Iterator[None]:
    """Ops on wrappers arrive functional at the dispatch modes."""
    _private._enable_functionalization(reapply_views=True)
    try:
        yield
    finally:
        _private._disable_functionalization()


@contextlib.contextmanager
def plainly() -> Iterator[None]:
    """Ops inside are on plain tensors, whether functionalization is on or not."""
    is_on = torch._C._dispatch_tls_is_dispatch_key_included(torch._C.DispatchKey.Functionalize)
    if is_on:
        _private._disable_functionalization()
    try:
        with torch._C.DisableTorchFunction(), torch.inference_mode(False):
            yield
    finally:
        if is_on:
            _private._enable_functionalization(reapply_views=True)


def scalar(value: float, dtype: torch.dtype) -> torch.Tensor:
    """A plain 0-d tensor, made while functionalization is on."""
    with plainly():
        return torch.tensor(value, dtype=dtype)


_OUTSIDE = {"flash": True}  # of the trace that runs: there is one at a time


def had_flash_attention() -> bool:
    """Whether eager may compute attention by torch's fused kernel, where the trace was begun."""
    return _OUTSIDE["flash"]


@contextlib.contextmanager
def unfused() -> Iterator[None]:
    """Fused kernels off, so that everything arrives in parts; the random state is put back."""
    state = torch.get_rng_state()
    fast = torch.backends.mha.get_fastpath_enabled()
    onednn = _private._C._get_mkldnn_enabled()
    _OUTSIDE["flash"] = torch._C._get_flash_sdp_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    _private._C._set_mkldnn_enabled(False)
    try:
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            yield
    finally:
        _private._C._set_mkldnn_enabled(onednn)
        torch.backends.mha.set_fastpath_enabled(fast)
        torch.set_rng_state(state)


def has_tangent(tensor: torch.Tensor) -> bool:
    """Whether the tensor carries a tangent of torch's forward mode."""
    return (
        _forward_ad._current_level >= 0  # outside of every dual level there are no tangents
        and _forward_ad.unpack_dual(tensor).tangent is not None
    )


def within_transform() -> bool:
    """Whether a transform of torch.func runs."""
    active: bool = _private._C._are_functorch_transforms_active()
    return active


def transforms_active() -> bool:
    """Whether tensors may carry tangents, or be wrapped by a transform of torch.func."""
    return within_transform() or _forward_ad._current_level >= 0


def _function_modes() -> list[Any]:
    core = _private._C
    return [core._get_function_stack_at(i) for i in range(core._len_torch_function_stack())]


def only_of_devices() -> bool:
    """Whether all of torch's function modes say where tensors are made, and see nothing else."""
    return all(type(mode) is DeviceContext for mode in _function_modes())


def refuse_observers() -> None:
    """Refuse a call of which something sees each op, as compiled code would show none; TraceError.

    Such are modes (of `make_fx`, a counter of operations, a logger) and `torch.jit.trace`. Modes
    that say where tensors are made (`torch.set_default_device`) see what is new alone.
    """
    core, who = _private._C, None
    if core._get_tracing_state() is not None:
        who = "torch.jit.trace"
    elif (n := core._len_torch_dispatch_stack()) > 0:
        who = type(core._get_dispatch_stack_at(n - 1)).__name__
    else:
        seen = (type(mode) for mode in _function_modes())
        who = next((kind.__name__ for kind in seen if kind is not DeviceContext), None)
    if who is not None:
        raise TraceError(f"{who} sees each op of this call", hint="call it outside of that")


def refuse_transformed(tensor: torch.Tensor, what: str) -> None:
    """Refuse a tensor with a tangent, or one that a transform of torch.func wraps; LeafTypeError.

    Compiled code reads the data of a tensor: the tangent would be lost without a word.
    """
    if has_tangent(tensor):
        raise LeafTypeError(
            f"{what} is a dual tensor of torch's forward mode, whose tangent would be lost",
            hint="gradof.jvp(fn, primals, tangents) gives the value and its tangent",
        )
    if _private._C._functorch.is_functorch_wrapped_tensor(tensor):
        raise LeafTypeError(
            f"{what} is within a transform of torch.func (grad, vmap, jvp, ...) or batched",
            hint="transform with gradof.grad, vjp, hvp, jvp, jacobian, hessian, or row by row",
        )
