"""The hand-written C of loops.c as one more side, where a C compiler is installed."""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from workloads import Workload

Run = Callable[[], list[Any]]
# workload → function, whether it takes rows and columns
LOOPS = {
    "gelu-bias-mse 4096x1024": "gelu", "rmsnorm 4096x1024": "rmsnorm",
    "cross-entropy 1024x4096": "cross_entropy", "Black-Scholes 1M f64": "black_scholes",
}  # fmt: skip


@functools.cache
def library() -> ctypes.CDLL | None:
    """The compiled loops; None without a compiler, which is said."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        print("no C compiler: the hand-written loops are left out")
        return None
    source = str(Path(__file__).with_name("loops.c"))
    with tempfile.TemporaryDirectory(prefix="gradof-loops-", ignore_cleanup_errors=True) as folder:
        compiled, target = (str(Path(folder) / name) for name in ("loops.o", "loops.so"))
        fast = [compiler, "-Ofast", "-march=native", "-fopenmp", "-fPIC", "-c", source]
        # Linked with -Ofast, gcc before 13 lets the library flush subnormals of the whole process.
        link = [compiler, "-shared", "-fopenmp", compiled, "-o", target, "-lm"]
        for command in ([*fast, "-o", compiled], link):
            subprocess.run(command, check=True)
        return ctypes.CDLL(target)  # which may go once it is loaded


def c_run(w: Workload, arrays: list[Any]) -> Run | None:
    """Value and gradients by the loop of a workload; None where there is none."""
    name = LOOPS.get(w.name)
    loaded = library() if name else None
    if name is None or loaded is None:
        return None
    function = getattr(loaded, name)
    function.restype = ctypes.c_double
    sizes = arrays[0].shape

    def run() -> list[Any]:
        grads = [np.empty_like(arrays[i]) for i in w.argnums]
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in (*arrays, *grads)]
        function(*pointers, *map(ctypes.c_long, sizes))
        return grads

    return run
