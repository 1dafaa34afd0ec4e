"""Which numpy trace the current thread is in."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gradof.tracer.numpy.recorder import Recorder

_THREAD = threading.local()  # .recorder
# What libraries on top of numpy put in place while a trace runs; they register here.
SURROUNDINGS: list[Callable[[Recorder], AbstractContextManager[None]]] = []


def active_recorder() -> Recorder | None:
    """The recorder of the trace this thread is in; None outside of one."""
    return getattr(_THREAD, "recorder", None)


@contextmanager
def activate(recorder: Recorder) -> Iterator[None]:
    """Within it, `recorder` is the active one of this thread."""
    before = active_recorder()
    _THREAD.recorder = recorder
    try:
        with ExitStack() as stack:
            for around in SURROUNDINGS:
                stack.enter_context(around(recorder))
            yield
    finally:
        _THREAD.recorder = before
