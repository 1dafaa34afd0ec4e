"""torch.utils.checkpoint inside traced code marks a region, as gradof.checkpoint does.

torch's own would run the function again under its autograd, of which a trace keeps nothing. The
two helpers that `torch.utils.checkpoint.checkpoint` calls are replaced while a trace runs, and
behave as before on threads that record nothing: the function itself may have been imported by name.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.utils.checkpoint as torch_checkpoint

from gradof.errors import TraceError
from gradof.tracer.regions import checkpointed_region, is_recording
from gradof.tracer.source import user_loc

_REENTRANT = torch_checkpoint.CheckpointFunction
_GENERATOR: Callable[..., Any] = torch_checkpoint._checkpoint_without_reentrant_generator


class _Reentrant:
    @staticmethod
    def apply(function: Callable[..., Any], preserve: bool, *args: Any) -> Any:
        """The function's result."""
        if not is_recording():
            return _REENTRANT.apply(function, preserve, *args)  # type: ignore[no-untyped-call]
        with checkpointed_region():
            return function(*args)


def _around(
    fn: Callable[..., Any], preserve: bool = True,
    context_fn: Callable[..., Any] = torch_checkpoint.noop_context_fn, *args: Any, **kwargs: Any,
) -> Generator[None, None, None]:  # fmt: skip
    """Runs up to its first yield before the function, and to its end after it."""
    if not is_recording():
        yield from _GENERATOR(fn, preserve, context_fn, *args, **kwargs)
        return
    if context_fn is not torch_checkpoint.noop_context_fn:
        raise TraceError(
            "torch.utils.checkpoint is given a context_fn, which a trace cannot follow",
            loc=user_loc(), hint="choose what is saved with differentiate(..., memory_budget=...)",
        )  # fmt: skip
    with checkpointed_region():
        yield


@contextmanager
def torch_checkpoints() -> Iterator[None]:
    """Within it, torch.utils.checkpoint marks regions on the threads that record."""
    module: Any = torch_checkpoint
    before = module.CheckpointFunction, module._checkpoint_without_reentrant_generator
    module.CheckpointFunction = _Reentrant
    module._checkpoint_without_reentrant_generator = _around
    try:
        yield
    finally:
        module.CheckpointFunction, module._checkpoint_without_reentrant_generator = before


@contextmanager
def without_saved_tensors_hooks() -> Iterator[None]:
    """Within it, the caller's saved_tensors_hooks see nothing: a trace saves nothing of theirs."""
    autograd: Any = torch._C._autograd
    hooks = []
    while (top := autograd._top_saved_tensors_default_hooks(False)) is not None:
        hooks.append(top)
        autograd._pop_saved_tensors_default_hooks()
    try:
        yield
    finally:
        for pack, unpack in reversed(hooks):
            autograd._push_saved_tensors_default_hooks(pack, unpack)
