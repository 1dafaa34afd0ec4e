"""Memory that a call of native code works in, kept by each thread for its next call."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from gradof.ops.memory import ALIGNED, LEAST, empty


class Scratch:
    """Memory of one kernel. Thread-safe, for every thread has its own."""

    def __init__(self) -> None:
        self._local = threading.local()

    def take(self, size: int) -> tuple[int, Any]:
        """The address of at least so many bytes, aligned for vectors, and what is to be held.

        This thread's next call gets the same again.
        """
        have: tuple[int, Any] | None = getattr(self._local, "memory", None)
        if have is None or have[1].nbytes < size + ALIGNED:
            fresh = empty((size + ALIGNED,), np.dtype("u1"))
            start: int = fresh.__array_interface__["data"][0]
            have = start + -start % ALIGNED, fresh
            if size <= LEAST:  # larger memory is used again by whoever wants it
                self._local.memory = have
        return have
