"""Parameters that a traced function makes, and tensors that it copies with `copy.deepcopy`.

    inner = nn.Linear(3, 1)                     # its weights are drawn at each call
    for _ in range(5):
        loss = (inner(x) - y).square().mean()
        ...                                     # torch.autograd.grad by inner.parameters()
    fast = copy.deepcopy(model)                 # with leaves of its own, at each call

A Parameter is the tensor it is made of, cut off from its history, over the same memory. A copy is
a clone without history, which requires grad where the original does. torch makes both below its
API, of the memory itself, so that no mode sees it.
"""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Iterator
from typing import Any, Protocol

import torch

from gradof.errors import TraceError
from gradof.tracer.state.source import user_loc
from gradof.tracer.torch.attributes import ReadAttributes
from gradof.tracer.torch.functional import inner, is_written, wrap
from gradof.tracer.torch.histories import Histories
from gradof.tracer.torch.leaves import is_plain as computes_plainly
from gradof.tracer.torch.memory import address, base_of

_TENSOR: Any = torch.Tensor  # methods of both are replaced while a function is traced
_PARAMETER: Any = torch.nn.Parameter


class _Tensors(Protocol):
    """What knows the tensors of a trace."""

    @property
    def histories(self) -> Histories:
        """Which of them share their memory."""
        ...

    @property
    def attributes(self) -> ReadAttributes:
        """Which of them are inputs."""
        ...

    def traced(self, tensor: Any, /) -> Any:
        """The tensor of the trace that stands for one."""
        ...


@contextlib.contextmanager
def parameters_made(api: _Tensors) -> Iterator[None]:
    """Within it, Parameters and copies that this thread makes are tensors of the trace."""
    here = threading.get_ident()
    of_memory, deep_copy = vars(_PARAMETER)["__new__"], _TENSOR.__deepcopy__

    def make(cls: Any, data: Any = None, requires_grad: bool = True) -> Any:
        is_plain = data is None or type(data) in (torch.Tensor, torch.nn.Parameter)
        if threading.get_ident() != here or not is_plain or not computes_plainly(cls):
            return of_memory(cls, data, requires_grad)
        made = _detached(api, torch.empty(0) if data is None else _traced(api, data))
        made.__class__ = cls
        return made.requires_grad_(requires_grad)

    def copied(tensor: Any, memo: Any) -> Any:
        if threading.get_ident() != here or not tensor.is_leaf:  # for which it raises
            return deep_copy(tensor, memo)
        api.attributes.reads.asks = True  # which tensors are one
        if id(tensor) not in memo:
            memo[id(tensor)] = _copy(_traced(api, tensor), memo)
        return memo[id(tensor)]

    _PARAMETER.__new__, _TENSOR.__deepcopy__ = staticmethod(make), copied
    try:
        yield
    finally:
        _PARAMETER.__new__, _TENSOR.__deepcopy__ = of_memory, deep_copy


def _detached(api: _Tensors, tensor: Any) -> Any:
    if not is_written(tensor) or api.attributes.is_input(base_of(tensor)):
        return tensor.detach()
    with torch._C.DisableTorchFunction():
        made = wrap(inner(api.histories.cut(tensor, is_data=False)))
        api.histories.parted.part(tensor, made)
        return made


def _traced(api: _Tensors, tensor: Any) -> Any:
    with torch._C.DisableTorchFunction():  # ours, not the user's
        return api.traced(tensor)


def _copy(tensor: Any, memo: Any) -> Any:
    """A leaf of the same elements, strides and attributes."""
    memory = memo.setdefault("torch", {})
    original, twin = memory.setdefault(address(tensor), (tensor, None))
    with torch.no_grad():
        if twin is None:
            once = tensor[tuple(slice(0, 1 if step == 0 else None) for step in tensor.stride())]
            made = once.detach().clone(memory_format=torch.preserve_format).expand(tensor.shape)
            memory[address(tensor)] = tensor, made
        else:
            made = _part(twin, tensor, original)
    made.requires_grad_(tensor.requires_grad)
    if tensor.grad is not None:
        made.grad = copy.deepcopy(tensor.grad, memo)
    for name, value in copy.deepcopy(tensor.__dict__, memo).items():
        setattr(made, name, value)
    return made


def _part(twin: Any, tensor: Any, original: Any) -> Any:
    """The part of a copy that is to its original as a tensor is, over the same memory."""
    start = tensor.storage_offset() - original.storage_offset()
    end = start + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    if start < 0 or end >= twin.numel() or twin.stride() != original.stride():
        raise TraceError(
            "two tensors over the same memory are copied together, of which the first has not all"
            " of it", loc=user_loc(), hint="copy the larger one, and take the other of the copy",
        )  # fmt: skip
    return twin.detach().as_strided(tensor.shape, tensor.stride(), start)
