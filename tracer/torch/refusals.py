"""Errors of the trace that the traced function may catch: it ends with them all the same.

    try:
        scale = float(np.median(x.numpy()))     # refused, as it cannot be traced
    except Exception:
        scale = 1.0                             # eager does not come here

Each that leaves the tracer for code that is traced is noted. The outermost call of torch's API
notes what it raises: within it our own code may try, and do otherwise.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gradof.errors import TraceError
from gradof.tracer.state.unheard import unheard


class _Thread(threading.local):
    """The first error of the trace that runs, and whether a call of the API does."""

    def __init__(self) -> None:
        self.error: TraceError | None = None
        self.inside = False


_THREAD = _Thread()


@contextmanager
def noting_refusals() -> Iterator[None]:
    """Around the run of a function: raises what was noted where the function has returned."""
    before, _THREAD.error, inside, _THREAD.inside = _THREAD.error, None, _THREAD.inside, False
    try:
        yield
        if _THREAD.error is not None:
            raise _THREAD.error
    finally:
        _THREAD.error, _THREAD.inside = before, inside


def note(error: TraceError) -> None:
    """An error is raised to code that is traced, or to a call of the API, which notes it."""
    if not _THREAD.inside and _THREAD.error is None:
        _THREAD.error = error


def notes_refusals(call: Callable[..., Any]) -> Callable[..., Any]:
    """The same function of a mode, unheard, whose errors are noted."""

    @unheard
    @functools.wraps(call)
    def run(*args: Any, **kwargs: Any) -> Any:
        if _THREAD.inside:
            return call(*args, **kwargs)
        _THREAD.inside = True
        try:
            return call(*args, **kwargs)
        except TraceError as error:
            _THREAD.inside = False
            note(error)
            raise
        finally:
            _THREAD.inside = False

    return run
