"""Which graph the current thread records, for marks around checkpointed regions."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gradof.ir.builder import Builder

_THREAD = threading.local()  # .builder, .region


@contextmanager
def recording_into(builder: Builder) -> Iterator[None]:
    """Within it, regions of this thread are marked in the graph that `builder` extends."""
    before = getattr(_THREAD, "builder", None), getattr(_THREAD, "region", 0)
    _THREAD.builder, _THREAD.region = builder, 0
    try:
        yield
    finally:
        _THREAD.builder, _THREAD.region = before


def is_recording() -> bool:
    """Whether this thread records a graph in which a region can be marked."""
    return getattr(_THREAD, "builder", None) is not None


@contextmanager
def checkpointed_region() -> Iterator[None]:
    """What is recorded within it is computed again for the gradient."""
    builder: Builder = _THREAD.builder
    number = _THREAD.region
    _THREAD.region = number + 1
    builder.emit_node("checkpoint_begin", region=number)
    try:
        yield
    finally:
        builder.emit_node("checkpoint_end", region=number)
