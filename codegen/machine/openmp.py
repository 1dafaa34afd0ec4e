"""The OpenMP library that torch is linked with, whose threads share torch's loops.

    if has_threads():
        together(worker, 2)      # worker() on two of torch's threads, this one among them

Note [Whose threads]
Torch's OpenMP threads spin for some milliseconds after every one of torch's own loops and products.
Threads of ours would wait for the cores on which they do, and the caller with them: after a layer
norm of torch's, numpy tiles of one took twice as long. So torch callers' work is theirs to run. In
a process that may have been forked they are gone and would be waited for for ever.
"""

from __future__ import annotations

import ctypes
import functools
import multiprocessing
import os
import sys
from collections.abc import Callable
from pathlib import Path

_FIRST_PROCESS = os.getpid() if multiprocessing.parent_process() is None else None
_BODY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_PARALLEL = ctypes.CFUNCTYPE(None, _BODY, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)


@functools.cache
def torch_cpu() -> ctypes.CDLL | None:
    """Torch's own library, through which its OpenMP's functions are found; None where it is none.

    It is loaded already: nothing is loaded here.
    """
    import torch

    path = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    if not path.exists():
        return None
    return ctypes.CDLL(str(path), mode=os.RTLD_NOLOAD | os.RTLD_LAZY)


@functools.cache
def torch_symbol(name: str) -> int:
    """The address of a function that torch's library has or is linked with; 0 if there is none."""
    loaded = torch_cpu()
    if loaded is None or not hasattr(loaded, name):
        return 0
    return ctypes.cast(getattr(loaded, name), ctypes.c_void_p).value or 0


def gomp_parallel() -> int:
    """The address of `GOMP_parallel` in that library; 0 if there is none.

    LLVM's and Intel's OpenMP have a function of that name, too.
    """
    return torch_symbol("GOMP_parallel")


def has_threads() -> bool:
    """Whether torch is loaded, and its threads are in this process and can be had."""
    return "torch" in sys.modules and os.getpid() == _FIRST_PROCESS and gomp_parallel() != 0


def together(worker: Callable[[], None], threads: int) -> None:
    """`worker()` on as many of torch's threads, or fewer; the first exception is raised.

    Where `has_threads()`. Each of them waits for Python's lock, and gives it back while numpy and
    torch compute.
    """
    errors: list[BaseException] = []

    def body(_: int | None) -> None:
        try:
            worker()
        except BaseException as error:  # ctypes would print it and go on
            errors.append(error)

    _PARALLEL(gomp_parallel())(_BODY(body), None, threads, 0)
    for error in errors:
        raise error
