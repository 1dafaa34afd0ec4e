"""Which numpy trace the current thread is in."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from gradof.tracer.numpy.recorder import Recorder

_THREAD = threading.local()  # .recorder, .namespace
# What is called in the place of a function of numpy's or a ufunc that meets traced arrays.
OVERRIDES: dict[Any, Callable[..., Any]] = {}
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


@contextmanager
def deactivated() -> Iterator[None]:
    """Within it, this thread records nothing."""
    before = active_recorder()
    _THREAD.recorder = None
    try:
        yield
    finally:
        _THREAD.recorder = before


def namespace() -> Any:
    """numpy as the traced code of this thread knows it."""
    return getattr(_THREAD, "namespace", np)


@contextmanager
def naming(module: Any) -> Iterator[None]:
    """Within it, `module` is numpy to the traced code of this thread."""
    before = namespace()
    _THREAD.namespace = module
    try:
        yield
    finally:
        _THREAD.namespace = before
