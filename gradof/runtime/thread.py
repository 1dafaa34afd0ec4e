"""What the current thread is doing: tracing, running the plain reference, or neither."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Thread(threading.local):
    tracing = plain = nan_safe = False  # of the class: what is not there takes ten times as long


_THREAD = _Thread()


@contextmanager
def tracing(nan_safe: bool = False) -> Iterator[None]:
    """Within it, compiled functions that this thread calls are traced through."""
    before, _THREAD.nan_safe = is_nan_safe(), nan_safe
    try:
        with _mode(True, plain=False):
            yield
    finally:
        _THREAD.nan_safe = before


def is_nan_safe() -> bool:
    """Whether the function being traced is differentiated with numerics="nan_safe"."""
    return _THREAD.nan_safe


def is_tracing() -> bool:
    """Whether the current thread is recording a function."""
    return _THREAD.tracing


@contextmanager
def calling_plain() -> Iterator[None]:
    """Within it, compiled functions this thread calls run as they were written: the reference."""
    with _mode(True, plain=True):
        yield


@contextmanager
def calling_compiled() -> Iterator[None]:
    """Within `calling_plain`, for what has no plain form, such as the gradient of numpy code."""
    with _mode(False, plain=False):
        yield


@contextmanager
def _mode(tracing: bool, plain: bool) -> Iterator[None]:
    before = is_tracing(), is_plain_run()
    _THREAD.tracing, _THREAD.plain = tracing, plain
    try:
        yield
    finally:
        _THREAD.tracing, _THREAD.plain = before


def is_plain_run() -> bool:
    """Whether this thread is in `calling_plain`."""
    return _THREAD.plain
