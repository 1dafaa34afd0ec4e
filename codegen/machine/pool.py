"""Threads of our own for native kernels, asleep between calls; see Note [A pool of threads].

    pool(2).run(job)            # True when every chunk is done, False where another thread has it

The threads are Python's, which never come back from one call without the GIL, until the process
ends.
"""

from __future__ import annotations

import atexit
import os
import threading

import numpy as np

from gradof.codegen.machine.runtime_ir import POOL_FIELDS, runtime

_LOCK = threading.Lock()
_POOL: Pool | None = None


class Pool:
    """Threads that wait for jobs. One job at a time."""

    def __init__(self) -> None:
        self.process = os.getpid()
        memory = np.zeros(POOL_FIELDS + 8, np.int64)
        skip = -memory.__array_interface__["data"][0] % 64 // 8
        self.memory = memory[skip:]
        self.address: int = self.memory.__array_interface__["data"][0]
        self.threads: list[threading.Thread] = []
        self.lock = threading.Lock()

    def grow(self, threads: int) -> None:
        """Have as many threads as that, the caller's among them."""
        while len(self.threads) < threads - 1:
            thread = threading.Thread(
                target=runtime("work"), args=(self.address,), name="gradof", daemon=True
            )
            thread.start()
            self.threads.append(thread)

    def run(self, job: int) -> bool:
        """Run a job; False, and nothing is done, where another thread runs one."""
        if not self.lock.acquire(blocking=False):
            return False
        try:
            runtime("share")(self.address, job)
        finally:
            self.lock.release()
        return True

    def halt(self) -> None:
        """Let the threads end, before the interpreter takes away what they run."""
        if self.process == os.getpid():
            runtime("halt")(self.address)
            for thread in self.threads:
                thread.join(1.0)


def pool(threads: int) -> Pool:
    """The pool of this process: threads do not survive a fork."""
    global _POOL
    found = _POOL
    if found is not None and len(found.threads) >= threads - 1 and found.process == os.getpid():
        return found
    with _LOCK:
        if _POOL is None or _POOL.process != os.getpid():
            _POOL = Pool()
            atexit.register(_POOL.halt)
        _POOL.grow(threads)
        return _POOL


def _after_fork() -> None:
    """Another thread may have held the lock, which nobody gives back in the child."""
    global _LOCK
    _LOCK = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
