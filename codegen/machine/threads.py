"""Chunks of work on a pool of threads; numpy, and code called through ctypes, release the GIL.

>>> run_chunks(lambda start, stop: print(start, stop), 10, 4, threads=1)
0 4
4 8
8 10

Chunks are as large as the caller says, whatever the number of threads: results that are combined
chunk by chunk are the same, bit for bit, on every number of threads. The threads are a pool of our
own, or torch's (Note [Whose threads] in `openmp`).
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext

from gradof.codegen.machine import openmp
from gradof.errors import ConfigError
from gradof.ir import forks

_LOCK = forks.lock()
_POOL: tuple[int, int, ThreadPoolExecutor] | None = None  # process, threads, pool


def n_threads() -> int:
    """GRADOF_NUM_THREADS, or what torch uses where it is loaded, or the cores of the process.

    Raises ConfigError where the variable is no positive number.
    """
    text = os.environ.get("GRADOF_NUM_THREADS")
    if text is not None:
        if not text.isdigit() or int(text) == 0:
            raise ConfigError(
                f"GRADOF_NUM_THREADS is {text!r}", hint="a positive number of threads is due"
            )
        return int(text)
    torch = sys.modules.get("torch")
    if torch is not None:
        return int(torch.get_num_threads())
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_chunks(
    work: Callable[[int, int], None],
    n: int,
    chunk: int,
    threads: int | None = None,
    around: Callable[[], AbstractContextManager[object]] = nullcontext,
    torchs: bool = False,
) -> None:
    """`work(start, stop)` for every chunk of `range(n)`; the first exception is raised.

    Every thread has its chunks within `around()`. `torchs` asks for torch's threads, where there
    are such.
    """
    count = -(-n // chunk)
    threads = min(n_threads() if threads is None else threads, count)
    take = iter(range(count))
    lock = threading.Lock()

    def worker() -> None:
        with around():
            while True:
                with lock:
                    k = next(take, None)
                if k is None:
                    return
                work(k * chunk, min(n, (k + 1) * chunk))

    if threads <= 1:
        worker()
    elif torchs and openmp.has_threads():
        openmp.together(worker, threads)
    else:
        run_together(worker, threads)


def run_together(worker: Callable[[], None], threads: int) -> None:
    """`worker()` on as many threads, this one among them; the first exception is raised."""
    futures = [_pool(threads).submit(worker) for _ in range(threads - 1)]
    try:
        worker()  # this thread works too
    finally:
        errors = [f.exception() for f in futures]  # waits for all of them
    for error in errors:
        if error is not None:
            raise error


def _pool(threads: int) -> ThreadPoolExecutor:
    """One pool a process: threads do not survive a fork."""
    global _POOL
    with _LOCK:
        if _POOL is None or _POOL[0] != os.getpid() or _POOL[1] < threads:
            pool = ThreadPoolExecutor(threads, thread_name_prefix="gradof")
            _POOL = (os.getpid(), threads, pool)
        return _POOL[2]
