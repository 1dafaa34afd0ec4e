"""Traces of calls in inference mode.

    with torch.inference_mode():
        fast(x)                 # traced outside of that mode, without gradients

A trace asks of tensors whether they were changed, which those that are made in inference mode do
not know. So the mode is off while the function runs on what stands for its tensors; what the
function asks about the mode, and its tensors, is answered as eager would. Results are made in the
mode of their call.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import torch

from gradof.ir import forks
from gradof.tracer.torch.functional import plainly

_LOCK = forks.lock()
_BEGUN: set[int] = set()  # threads whose trace has begun in inference mode
_is_enabled = torch.is_inference_mode_enabled


def begun_here() -> bool:
    """Whether this thread's trace is of a call in inference mode, which its code has not left."""
    return has_begun() and not torch.is_grad_enabled()


def has_begun() -> bool:
    """Whether this thread's trace is of a call in inference mode."""
    return threading.get_ident() in _BEGUN


def _answer() -> bool:
    return _is_enabled() or begun_here()


@contextlib.contextmanager
def without_inference_mode() -> Iterator[None]:
    """Inside inference mode is off, and so are gradients if it was on; see the module docstring."""
    if not _is_enabled():
        yield
        return
    here = threading.get_ident()
    with _LOCK:
        outer = here in _BEGUN
        _BEGUN.add(here)
        torch.is_inference_mode_enabled = _answer
    try:
        with torch.inference_mode(False), torch.no_grad():
            yield
    finally:
        with _LOCK:
            if not outer:
                _BEGUN.discard(here)
            if not _BEGUN:
                torch.is_inference_mode_enabled = _is_enabled


def of_same_memory(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the same memory that counts its own changes: to be read alone."""
    if not tensor.is_inference() or tensor.is_conj() or tensor.is_neg():
        return tensor.data  # detach() would count our writes as theirs
    place = tensor.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride()
    with plainly():
        made = torch.empty((0,), dtype=tensor.dtype, device=tensor.device)
        return made.set_(*place)
