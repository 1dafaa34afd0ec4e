"""What the derivations and compilations of one function take, in processor time.

>>> compiling = Compiling()
>>> with compiling.timed():
...     made = compile_graph(graph)
>>> compiling.taken()        # since it was asked for the last time
0.4
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from time import thread_time


class Compiling:
    """A count of seconds, each of which is taken once."""

    def __init__(self) -> None:
        self._seconds = 0.0

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        """Count the time of the body."""
        start = thread_time()
        try:
            yield
        finally:
            self._seconds += thread_time() - start

    def taken(self) -> float:
        """The seconds since the last time they were asked for."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds
