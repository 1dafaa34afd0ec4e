"""Which numpy trace the current thread is in."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gradof.tracer.numpy.recorder import Recorder

_THREAD = threading.local()  # .recorder


def active_recorder() -> Recorder | None:
    """The recorder of the trace this thread is in; None outside of one."""
    return getattr(_THREAD, "recorder", None)


@contextmanager
def activate(recorder: Recorder) -> Iterator[None]:
    """Within it, `recorder` is the active one of this thread."""
    before = active_recorder()
    _THREAD.recorder = recorder
    try:
        yield
    finally:
        _THREAD.recorder = before
