"""The hand-written C of loops_by_hand.c as one more side, where a C compiler is installed."""

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
from loop_programs import Row

ROOM = {"chain": 3, "garch": 1, "rk4": 8}  # numbers that each step saves


@functools.cache
def library() -> ctypes.CDLL | None:
    """The compiled programs; None without a compiler, which is said."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        print("no C compiler: the hand-written programs are left out")
        return None
    source = str(Path(__file__).with_name("loops_by_hand.c"))
    with tempfile.TemporaryDirectory(prefix="gradof-loops-", ignore_cleanup_errors=True) as folder:
        target = str(Path(folder) / "loops.so")  # which may go once it is loaded
        subprocess.run(
            [compiler, "-O3", "-march=native", "-shared", "-fPIC", source, "-o", target, "-lm"],
            check=True,
        )
        return ctypes.CDLL(target)


def c_side(row: Row) -> Callable[[], tuple[float, Any]] | None:
    """Value and gradient by hand; None where there is none."""
    loaded = library() if row.name in ROOM else None
    if loaded is None:
        return None
    function = getattr(loaded, row.name)
    function.restype = ctypes.c_double
    arrays = row.program().arguments
    room = np.empty(ROOM[row.name] * row.steps)

    def run() -> tuple[float, Any]:
        grad = np.empty_like(arrays[0])
        inputs = [ctypes.c_void_p(a.ctypes.data) for a in arrays]
        outputs = [ctypes.c_void_p(a.ctypes.data) for a in (grad, room)]
        value: float = function(*inputs, ctypes.c_long(row.steps), *outputs)
        return value, grad

    return run
