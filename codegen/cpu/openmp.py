"""The OpenMP library that torch is linked with, whose threads share torch's loops."""

from __future__ import annotations

import ctypes
import functools
import os
from pathlib import Path


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
def gomp_parallel() -> int:
    """The address of `GOMP_parallel` in that library; 0 if there is none.

    LLVM's and Intel's OpenMP have a function of that name, too.
    """
    loaded = torch_cpu()
    if loaded is None or not hasattr(loaded, "GOMP_parallel"):
        return 0
    return ctypes.cast(loaded.GOMP_parallel, ctypes.c_void_p).value or 0
