"""When calls of scipy's functions begin to be caught: at a trace's start, or once they are loaded.

    def f(x):
        from scipy.signal import lfilter          # loaded here for the first time
        return lfilter(b, a, x) + scipy.stats.norm.logpdf(x)      # an attribute loads a part, too

A process that never loads scipy never loads its adaptors, and no part of it is loaded by a trace.
Those of numpy.polynomial, which numpy loads when it is asked for, are among them.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import ModuleType
from typing import TYPE_CHECKING

from gradof.ir import forks
from gradof.tracer.numpy.active import SURROUNDINGS

if TYPE_CHECKING:
    from gradof.tracer.numpy.recorder import Recorder

_LOCK = forks.lock()


class _Watch(MetaPathFinder):
    """Finds what the other finders find, and hears of it when it is loaded."""

    def __init__(self) -> None:
        self.loads: list[Callable[[], None]] = []  # of the traces that run
        self.thread = threading.local()  # .depth: modules of scipy that are being loaded

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's spec, for those of scipy."""
        if name.partition(".")[0] != "scipy":
            return None
        for finder in [f for f in sys.meta_path if f is not self]:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if isinstance(spec.loader, SourceFileLoader):
                    self._listen(spec.loader)
                return spec
        return None

    def _listen(self, loader: SourceFileLoader) -> None:
        execute = loader.exec_module

        def heard(module: ModuleType) -> None:
            depth = getattr(self.thread, "depth", 0)
            self.thread.depth = depth + 1
            try:
                execute(module)
            finally:
                self.thread.depth = depth
            if not depth:  # with all that it imports itself
                for load in list(self.loads):
                    load()

        loader.exec_module = heard  # type: ignore[method-assign]


_WATCH = _Watch()


@contextmanager
def _watching(load: Callable[[], None]) -> Iterator[None]:
    """Within it, `load` is called after modules of scipy have been loaded."""
    with _LOCK:
        if not _WATCH.loads:
            sys.meta_path.insert(0, _WATCH)
        _WATCH.loads.append(load)
    try:
        yield
    finally:
        with _LOCK:
            _WATCH.loads.remove(load)
            if not _WATCH.loads:
                sys.meta_path.remove(_WATCH)


@contextmanager
def _scipy_calls(recorder: Recorder) -> Iterator[None]:
    """While active, scipy's functions that have an adaptor record for `recorder`."""
    with ExitStack() as stack:

        def load() -> None:
            from gradof.tracer.scipy.adaptors import caught

            stack.enter_context(caught())

        if not sys.modules.keys().isdisjoint(("scipy", "numpy.polynomial")):
            load()
        with _watching(load):
            yield


def catch_calls() -> None:
    """From now on, what traces do with scipy's functions is recorded."""
    if _scipy_calls not in SURROUNDINGS:
        SURROUNDINGS.append(_scipy_calls)
