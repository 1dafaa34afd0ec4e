"""Triton compiles kernels side by side: those of all tiles that are tried, of all of a program.

    with_dtypes = partial(planned.compile, [torch.float32, torch.float32])
    compile_at_once([with_dtypes, ...])         # returns when all are compiled; nothing is launched

Until triton 3.6 the function that launches a kernel is C, compiled for each list of parameter
types, which takes longer than many a kernel: it is made here, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

Compile = Callable[[], Sequence[Any]]  # gives what triton's `warmup` gave


def compile_at_once(todo: Sequence[Compile]) -> None:
    """What cannot be compiled says so where it is launched."""
    from triton import AsyncCompileMode

    with ThreadPoolExecutor(max(1, min(len(todo), os.cpu_count() or 1))) as pool:
        with AsyncCompileMode(pool, ignore_errors=True):
            begun = [each for compile_ in todo for each in compile_()]
        list(pool.map(_make_launcher, _kernels(begun)))


def _kernels(begun: Iterable[Any]) -> list[Any]:
    """The compiled kernels, once each; a future has none where its compilation failed."""
    found = (getattr(each, "kernel", each) if hasattr(each, "finalize_compile") else each
             for each in begun)  # fmt: skip
    return list({id(kernel): kernel for kernel in found if kernel is not None}.values())


def _make_launcher(kernel: Any) -> None:
    """Into triton's cache, from where the first launch takes it."""
    from triton.runtime import driver

    driver.active.launcher_cls(kernel.src, kernel.metadata)
