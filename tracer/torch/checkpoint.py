"""torch.utils.checkpoint inside traced code marks a region, as gradof.checkpoint does.

torch's own would run the function again under its autograd, of which a trace keeps nothing. The
two helpers that `torch.utils.checkpoint.checkpoint` calls are replaced while a trace runs, and
behave as before on threads that record nothing: the function itself may have been imported by name.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.utils.checkpoint as torch_checkpoint

from gradof.errors import TraceError
from gradof.tracer.core.regions import checkpointed_region, is_recording
from gradof.tracer.state.changes import Change
from gradof.tracer.state.source import user_loc
from gradof.tracer.torch.state import OuterState

_REENTRANT = torch_checkpoint.CheckpointFunction
_GENERATOR: Callable[..., Any] = torch_checkpoint._checkpoint_without_reentrant_generator


class _Regions:
    """Stands for torch's two helpers while a trace runs."""

    def __init__(self, outer: OuterState) -> None:
        self.outer = outer

    def apply(self, function: Callable[..., Any], preserve: bool, *args: Any) -> Any:
        """The function's result."""
        if not is_recording():
            return _REENTRANT.apply(function, preserve, *args)  # type: ignore[no-untyped-call]
        with self._region():
            return function(*args)

    def around(
        self, fn: Callable[..., Any], preserve: bool = True,
        context_fn: Callable[..., Any] = torch_checkpoint.noop_context_fn, *args: Any,
        **kwargs: Any,
    ) -> Generator[None, None, None]:  # fmt: skip
        """Runs up to its first yield before the function, and to its end after it."""
        if not is_recording():
            yield from _GENERATOR(fn, preserve, context_fn, *args, **kwargs)
            return
        if context_fn is not torch_checkpoint.noop_context_fn:
            raise TraceError(
                "torch.utils.checkpoint is given a context_fn, which a trace cannot follow",
                loc=user_loc(), hint="choose what is saved with differentiate(memory_budget=...)",
            )  # fmt: skip
        with self._region():
            yield

    @contextmanager
    def _region(self) -> Iterator[None]:
        before = _written(self.outer.reads.held.changes())
        with checkpointed_region():
            yield
        if _written(self.outer.reads.held.changes()) == before:
            return
        if _written(self.outer.changes()) - before:
            raise TraceError(
                "what is checkpointed writes to Python's state, in the backward once more",
                loc=user_loc(), hint="let it only compute",
            )  # fmt: skip


def _written(changes: Iterable[Change]) -> set[tuple[Any, ...]]:
    return {
        (id(c.container), c.kind, c.key if isinstance(c.key, str) else id(c.key),
         tuple(map(id, c.after)) if c.kind == "all" else id(c.after))
        for c in changes
    }  # fmt: skip


@contextmanager
def torch_checkpoints(outer: OuterState) -> Iterator[None]:
    """Within it, torch.utils.checkpoint marks regions on the threads that record."""
    module: Any = torch_checkpoint
    before = module.CheckpointFunction, module._checkpoint_without_reentrant_generator
    regions = _Regions(outer)
    module.CheckpointFunction = regions
    module._checkpoint_without_reentrant_generator = regions.around
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
